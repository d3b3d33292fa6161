"""Votes by spreadsheet: out, through a spreadsheet's hands, and back."""

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from review_scene import question

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.settle import valid_acts
from rubricflow.tasks.people.review.sheet import COLUMNS, as_csv, read_sheet

TEXTS = st.text(
    st.one_of(st.sampled_from("=+-@＝'\"\t\r\n ,;\ufeffa1é"), st.characters(codec="utf-8")), min_size=1, max_size=12
)
IDS = TEXTS | st.sampled_from(["007", "1e5", "MAR-1", "=1+1", "'", "''=", "TRUE", "a\nb", "-", "\t@x"])


def label(response_id="r1", criterion="c1", rank=1, **changes):
    usual = {"response": "Because.", "concept": "says why", "levels": ("no", "partly", "yes")}
    return question(response_id, criterion, rank, **usual | changes)


SCORE = question("r1", None, 1, "Because.", "", ("0", "0.5", "1"))
TWO = [label(), label(criterion="c2"), label("r2"), label("r2", "c2")]


def rows_of(content):
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def saved(rows, path, delimiter=",", names=COLUMNS, encoding="utf-8-sig"):
    """What a spreadsheet makes of the rows: quotes only where they must be, line feeds inside cells."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, delimiter=delimiter, lineterminator="\r\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def filled(asked, levels, rater="Ann"):
    rows = rows_of(as_csv(asked))
    for row, (level, comment) in zip(rows, levels, strict=True):
        row.update(level=level, comment=comment, rater_id=rater)
    return rows


def said(acts):
    return [(act.kind, act.response_id, act.criterion_id, act.value, act.comment, act.rater_id) for act in acts]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_filled_sheet_becomes_votes_and_a_submit(tmp_path, delimiter):
    rows = filled([*TWO, SCORE], [("2", ""), ("x", " off topic "), ("", ""), (" ", "later"), ("0,50", "")])
    acts = read_sheet(saved(rows, tmp_path / "s.csv", delimiter), "study", [*TWO, SCORE])
    assert said(acts) == [
        ("vote", "r1", "c1", "2", None, "Ann"),
        ("vote", "r1", "c2", "x", "off topic", "Ann"),
        ("submit", "r1", None, None, None, "Ann"),
        ("vote", "r1", None, "0.5", None, "Ann"),
        ("submit", "r1", None, None, None, "Ann"),
    ]
    assert [act.subject_kind for act in acts] == ["label"] * 3 + ["score"] * 2
    assert acts[0].digest == label().ballot["digest"]
    assert acts[0].blind is True
    with Ledger(":memory:") as ledger:
        ledger.add_all(acts * 2)
        stored = ledger.acts("study")
        assert len(stored) == len(acts)
        assert len(valid_acts(stored, {one.subject: one.ballot["digest"] for one in [*TWO, SCORE]}).votes) == 3
        changed = valid_acts(stored, {label().subject: label(response="Because!").ballot["digest"]})
        assert (len(changed.votes), len(changed.stale)) == (0, 3)


def test_two_peoples_sheets_may_be_one(tmp_path):
    rows = [row for rater in ("Ann", "Bob") for row in filled(TWO[:2], [("1", ""), ("0", "")], rater)]
    acts = read_sheet(saved(rows, tmp_path / "s.csv"), "study", TWO)
    assert [act.rater_id for act in acts] == ["Ann"] * 3 + ["Bob"] * 3
    assert len({act.act_id for act in acts}) == 6
    rows[2]["rater_id"] = rows[3]["rater_id"] = " "
    acts = read_sheet(saved(rows, tmp_path / "s.csv"), "study", TWO, "Cyd")
    assert [act.rater_id for act in acts] == ["Ann"] * 3 + ["Cyd"] * 3
    acts = read_sheet(saved(rows[:2], tmp_path / "s.csv", names=COLUMNS[:-2] + COLUMNS[-1:]), "study", TWO, "Dee")
    assert [act.rater_id for act in acts] == ["Dee"] * 3


def test_a_sheet_shows_what_is_asked_and_nothing_of_machines():
    content = as_csv([label(response="one\r\ntwo\rthree"), SCORE])
    assert content.startswith(b"\xef\xbb\xbf")
    first, score = rows_of(content)
    assert first["response"] == "one\ntwo\nthree"
    assert first["levels"] == "0 = no\n1 = partly\n2 = yes"
    assert (first["level"], first["comment"], first["rank"]) == ("", "", "1")
    assert (score["concept"], score["levels"]) == ("Score", "0\n0.5\n1")
    assert set(first) == set(COLUMNS)


@settings(max_examples=50)
@given(st.lists(IDS, min_size=1, max_size=3, unique=True), IDS, TEXTS, TEXTS.filter(str.strip), st.sampled_from(",;\t"))
def test_ids_come_back_through_a_spreadsheet_as_they_were(tmp_path_factory, ids, criterion, text, rater, delimiter):
    asked = [label(one, criterion, response=text, levels=(text, "b")) for one in ids]
    rows = filled(asked, [("1", "ok")] * len(ids), rater)
    path = saved(rows, tmp_path_factory.getbasetemp() / "hostile.csv", delimiter)
    votes = [act for act in read_sheet(path, "study", asked) if act.kind == "vote"]
    assert [(act.response_id, act.criterion_id, act.rater_id) for act in votes] == [
        (i, criterion, rater.strip()) for i in ids
    ]
    assert [act.digest for act in votes] == [one.ballot["digest"] for one in asked]


@pytest.mark.parametrize("name", ["007", "=1+1", "MAR-1", "a'b"])
def test_ids_survive_a_spreadsheet_that_swallows_the_apostrophe(tmp_path, name):
    rows = [
        {key: cell.removeprefix("'") for key, cell in row.items()} for row in filled([label(name, name)], [("1", "")])
    ]
    (vote, _) = read_sheet(saved(rows, tmp_path / "s.csv"), "study", [label(name, name)])
    assert (vote.response_id, vote.criterion_id, vote.rater_id) == (name, name, "Ann")


@settings(max_examples=50)
@given(TEXTS)
def test_no_cell_is_a_formula_however_a_program_splits_the_file(text):
    content = as_csv([label(text, text, response=text, concept=text, levels=(text, text))])
    for piece in re.split("[,;\t\r\n]", content.decode("utf-8-sig")):
        number = r"[+-]([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[\]} ]*\"*$"
        assert not re.match(rf"[\s\"\ufeff]*(?!{number})[=+\-@＝＋－＠]", piece)


def broken(row=0, **cells):
    def change(rows):
        rows[row].update(cells)
        return rows

    return change


@pytest.mark.parametrize(
    ("change", "row", "field", "rule"),
    [
        (broken(1, response_id="'r9"), 2, "response_id", "'r9' is not asked"),
        (broken(1, criterion_id="'c9"), 2, "criterion_id", "'c9' is not asked"),
        (broken(1, criterion_id=""), 2, "response_id", "'r1' is not asked"),
        (broken(level="3"), 1, "level", "'3' is none of 0, 1, 2 and x"),
        (broken(level="0.5"), 1, "level", "'0.5' is none of"),
        (broken(level="nan"), 1, "level", "'nan' is none of"),
        (broken(level="X"), 1, "comment", "x needs a comment"),
        (broken(level="", comment="?"), 2, "level", "but none for 'c1'"),
        (broken(rater_id=" "), 1, "rater_id", "names nobody"),
        (broken(digest="1.5E+30"), 1, "digest", "not as it was written"),
        (lambda rows: [*rows, rows[0]], 5, "criterion_id", "again what row 1"),
        (lambda rows: rows[1:], 1, "level", "none for 'c1'"),
    ],
)
def test_a_bad_row_is_named(tmp_path, change, row, field, rule):
    path = saved(change(filled(TWO, [("1", ""), ("1", ""), ("", ""), ("", "")])), tmp_path / "s.csv")
    with pytest.raises(InputError, match=rule) as caught:
        read_sheet(path, "study", TWO)
    assert (caught.value.file, caught.value.row, caught.value.field) == (path, row, field)


def test_a_bad_file_is_named(tmp_path):
    rows, path = filled(TWO, [("1", "")] * 4), tmp_path / "s.csv"
    with pytest.raises(InputError, match="no such file"):
        read_sheet(path, "study", TWO)
    for content, rule in (("", "is empty"), ("\n", "is empty"), ("a,b\n1,2\n", "one such column")):
        path.write_text(content)
        with pytest.raises(InputError, match=rule):
            read_sheet(path, "study", TWO)
    with pytest.raises(InputError, match=r"field 'digest'"):
        read_sheet(saved(rows, path, names=COLUMNS[:-1]), "study", TWO)
    saved(rows, path)
    path.write_text(path.read_text() + '"open')
    with pytest.raises(InputError, match="is not well-formed: a quotation mark opens"):
        read_sheet(path, "study", TWO)
    saved(rows, path)
    path.write_text(path.read_text() + ",".join("abcdefghijklmno"))
    with pytest.raises(InputError, match=r"\(row 5\): has 15 cells, the header has 11"):
        read_sheet(path, "study", TWO)
