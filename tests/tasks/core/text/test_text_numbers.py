"""A number written as text is of digits 0 to 9; what only Python reads as a number is none."""

from __future__ import annotations

import math
import re
import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Reader
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.foreign import json_keys, read_score
from rubricflow.tasks.core.store.cells import as_number
from rubricflow.tasks.core.text.tokens import Mark, decimal_of, mark_of, number_of

FOREIGN = [
    "٣",
    "３",
    "²",
    "①",
    "３.０",
    "１/２",
    "½",
    "1٣",
    "2.٥",
    "1e٢",
    "٣e1",
    "৩",
    "Ⅳ",
    "三",
    "－1",
    "−1",
    "1_0",
    "0x2",
]
NONE = [*FOREIGN, "nan", "inf", "-Infinity", "1e999", "9" * 400, "1e", ".", "+", "1,5,0", "--1", "1 2", "True", ""]
SOME = {
    " 2 ": 2.0,
    "2\x1f": 2.0,
    "2e0": 2.0,
    "+.5": 0.5,
    "-1.": -1.0,
    "007": 7.0,
    "1E-05": 1e-05,
    "0" * 100_000 + "3": 3.0,
}


def digits_of(text: str) -> tuple[str, str, str]:
    """Sign, digits with their point, and exponent."""
    body, _, exponent = text.strip().lower().partition("e")
    return body[:1], body[body[:1] in ("+", "-") :], exponent


def is_number(text: str) -> bool:
    """The rule, by hand."""
    _, body, exponent = digits_of(text)
    whole, _, part = body.partition(".")
    has_exponent = "e" in text.lower()
    power = exponent[exponent[:1] in ("+", "-") :]
    plain = set(whole + part) <= set(string.digits) and bool(whole + part)
    return plain and (not has_exponent or (bool(power) and set(power) <= set(string.digits)))


@given(
    st.text(st.sampled_from("0123456789+-.eE_ ٣３²½na\n\xa0"), max_size=8) | st.floats().map(str) | st.text(max_size=4)
)
def test_a_text_is_a_number_by_the_rule_and_then_the_one_that_python_reads(text: str) -> None:
    found = number_of(text)
    if is_number(text) and math.isfinite(float(text)):
        assert found == float(text)
    else:
        assert found is None


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number_is_none_anywhere(text: str) -> None:
    assert number_of(text) is None
    if text:
        with pytest.raises(InputError, match=r"f, row 2, field 'x': .* is not a finite number"):
            as_number(text, "f", 2, "x")


@pytest.mark.parametrize(("text", "value"), SOME.items(), ids=lambda given: str(given)[:10])
def test_a_number_is_read_however_it_is_written(text: str, value: float) -> None:
    assert number_of(text) == value
    assert as_number(text, "f", 2, "x") == value


@pytest.mark.parametrize("text", FOREIGN)
def test_a_reply_with_other_digits_states_no_score(text: str) -> None:
    assert read_score(f"Score: {text}", Reader(pattern=r"Score: (\S+)")) is None
    assert json_keys(f'{{"score": "{text}"}}', ["score"]) is None
    artifact, _ = extract(f'{{"score": {text}, "x": 1}}', frozenset({"score"}))
    assert artifact is None or not isinstance(artifact["score"], int | float)


@pytest.mark.parametrize("cell", [True, b"1", math.inf, None.__class__, 10**400, [1]])
def test_a_cell_that_is_no_number_is_refused(cell: object) -> None:
    with pytest.raises(InputError, match="is not a finite number"):
        as_number(cell, "f", 2, "x")


def test_an_endless_number_is_refused_and_not_a_defect() -> None:
    for text in ("9" * 100_000, "9" * 5_000, "-" + "1" * 5_000):
        artifact, _ = extract(f'{{"score": {text}}}', frozenset({"score"}))
        assert artifact is None or json_keys(f'{{"score": {text}}}', ["score"]) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3,5", 3.5),
        ("-0,25", -0.25),
        (" 0,125 ", 0.125),
        ("1000,5", 1000.5),
        ("2.5", 2.5),
        ("1,000", None),
        ("-12,500", None),
    ],
)
def test_a_comma_is_a_decimal_sign_but_where_it_may_part_thousands(text: str, number: float | None) -> None:
    assert decimal_of(text) == number


@given(
    st.decimals(0, 9999, places=2),
    st.decimals("0.5", 999, places=1),
    st.sampled_from(["/", " / ", " von ", " out of ", "\u00a0/\u00a0", " sur ", " из "]),
    st.sampled_from(["", " P.", " pts", " Punkte", " (70 %)"]),
    st.booleans(),
)
def test_a_mark_is_read_in_all_ways_of_writing_it(
    points: Decimal, most: Decimal, of: str, unit: str, is_comma: bool
) -> None:
    written = f"{points}{of}{most}{unit}"
    assert mark_of(written.replace(".", ",") if is_comma and not unit.endswith("P.") else written) == Mark(
        float(points), float(most)
    )
    assert mark_of(f"{points} %") == Mark(float(points), 100)
    assert mark_of(f"--{of}{most}{unit}") == Mark(None, float(most))


@given(st.text("0123456789.,/%- evonptsP()½٣", max_size=9))
def test_whatever_is_a_number_is_a_mark_and_no_mark_is_more_than_its_digits_say(text: str) -> None:
    mark, number = mark_of(text), decimal_of(text)
    assert number is None or "e" in text or mark == Mark(number, None)
    if mark and mark.points is not None:
        digits = re.findall(r"[0-9]*[.,]?[0-9]+", text)
        assert abs(mark.points) == float(digits[0].replace(",", "."))


@pytest.mark.parametrize(
    "text", ["", "-", "–", "abc", "½", "2½/5", "3rd", "3 apples", "4/5/2026", "3/5 (late)", "1,000 / 2", "A-"]
)
def test_what_is_no_mark_is_none(text: str) -> None:
    assert mark_of(text) is None


def test_a_question_that_is_worth_nothing_has_no_mark() -> None:
    assert mark_of("0.00 / 0") == mark_of("-- / 0") == Mark(None, None)
