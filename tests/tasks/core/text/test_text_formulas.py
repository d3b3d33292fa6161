"""No text of a CSV file runs in a spreadsheet, numbers stay numbers, and every text comes back."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.formulas import cell, guarded, unguarded

PARTS = "=+-@＝－﹦'\"\t\r\n ,;|\ufeff\xa0\u200b\u202e019.eE[]a"
TEXTS = st.text(st.sampled_from(PARTS) | st.characters(codec="utf-8"), max_size=20)
ONE_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
NUMBERS = re.compile(rf"{ONE_NUMBER}([,;] *{ONE_NUMBER})*[]}} ]*")
UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")
SIGNS = set("=+-@＝＋－＠﹦﹢﹣﹫")


def runs(piece: str) -> bool:
    """Whether a program that passes over blanks, quotes and unseen characters might take a cell for a formula."""
    seen = "".join(one for one in piece if one == " " or unicodedata.category(one) not in UNSEEN).strip(' "')
    return seen[:1] in SIGNS and not NUMBERS.fullmatch(seen)


@given(TEXTS)
@example("\t =1")
@example("a;\n'\"=cmd|' /C calc'!A0")
@example("  \n")
@example("-2+3")
@example("-1\n*2")
@example("-0\r")
@example("+49 30 123")
@example("x,-1.5,'-2,=-1")
def test_no_piece_of_a_text_runs_and_it_comes_back(text: str) -> None:
    safe = guarded(text)
    assert unguarded(safe) == text
    assert not safe.lstrip(" ").startswith(("\t", "\r", "\n"))
    out = io.StringIO(newline="")
    csv.writer(out).writerow([safe, "b"])
    for written in (safe, out.getvalue()):
        assert not any(map(runs, (safe, *re.split("[,;\t\r\n]", written))))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.none() | st.booleans())
def test_numbers_stay_numbers(value: object) -> None:
    assert cell(value) is value
    assert cell(str(value)) == str(value)
    assert cell([value, value]) == str([value, value])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decimal("-1.50"), "-1.50"),
        ("-1.5e-3", "-1.5e-3"),
        ("+.5 ", "+.5 "),
        ("-1,-2;-3", "-1,-2;-3"),
        ("[-1.5, -2]", "[-1.5, -2]"),
        ("=1+1", "'=1+1"),
        ("-1,5*HYPERLINK(A1)", "'-1,5*HYPERLINK(A1)"),
        ("-1\n*HYPERLINK(A1)", "'-1\n*HYPERLINK(A1)"),
        ("n,-1", "n,'-1"),
        (" -x", " '-x"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("one\n- two", "one\n'- two"),
        ("a;=1", "a;'=1"),
        ("＝1", "'＝1"),
        ("-１", "'-１"),
        ("\tx", "'\tx"),
        ({"quote": "=1"}, "{'quote': '=1'}"),
        (["a", "=1"], "['a', ''=1']"),
        ("rate = 1 - 2", "rate = 1 - 2"),
    ],
)
def test_cells_as_they_are_written(value: object, written: str) -> None:
    assert cell(value) == written


def test_a_long_hostile_text_comes_back_as_it_was() -> None:
    hostile = ("\n", ";'", " ", ";=", "-1", ",-1", "+", "\u200b", "-" * 9 + "1e", "'\t")
    for text in (one * (200_000 // len(one)) for one in hostile):
        assert unguarded(guarded(text)) == text
