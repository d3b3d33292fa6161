"""Source rows to canonical rows: what the mapping says, and each mistake by its place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row, conform
from rubricflow.tasks.core.contracts.settings.data import Source, Split
from rubricflow.tasks.core.contracts.tables.data import Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.cells import select
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.sources import Stream
from rubricflow.tasks.grading.ingest.survey import Survey, shards, survey

ITEMS = Source(file="items.csv", items={"item_id": "id", "question": "question"})
RESPONSES = Source.model_validate(
    {
        "file": "responses.csv",
        "responses": {"response_id": "rid", "item_id": "item", "text": "answer"},
        "scores": [{"rater": "a", "score": "score_a"}],
    }
)
MARKS = Source.model_validate(
    {
        "file": "marks.csv",
        "marks": {"response_id": "rid", "rater_id": {"const": "a"}, "criterion_id": "point", "level": "mark"},
    }
)


class Canonical(NamedTuple):
    """All rows; `split` is what the source says, and 'test' where it says nothing."""

    items: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]]
    gradings: list[dict[str, Any]]
    judgments: list[dict[str, Any]]


def streamed(sources: list[tuple[Source, pd.DataFrame]], rows: int) -> list[Stream]:
    """The sources as they are read: `rows` rows at a time, only those that the source selects."""

    def chunks(source: Source, frame: pd.DataFrame, report: Any = None) -> Iterator[pd.DataFrame]:
        for at in range(0, max(1, len(frame)), rows):
            yield select(frame.iloc[at : at + rows], source.where, source.file)

    return [Stream(source, partial(chunks, source, frame)) for source, frame in sources]


def surveyed(sources: list[tuple[Source, pd.DataFrame]], by: Any = "response", target: str = "mean") -> Survey:
    return survey(streamed(sources, 1), Split(by=by), target)


def canonical(sources: list[tuple[Source, pd.DataFrame]], limit: int | None = None, rows: int = 1) -> Canonical:
    chunks: list[Any] = []
    found = survey(streamed(sources, rows), Split(), "mean", limit, keep=chunks.append)
    sides = [(side or "test") if kept else None for side, kept in zip(found.given, found.kept, strict=True)]
    made: dict[type[Row], list[dict[str, Any]]] = {row: [] for row in (Responses, Units, Gradings, Judgments)}
    for tables in shards(chunks, found, sides):
        for row, table in tables.items():
            made[row] += conform(row, table).to_pylist(maps_as_pydicts="strict")
    assert [row["response_id"] for row in made[Units]] == [
        row["response_id"] for row in made[Responses] for _ in units(row["text"])
    ]
    responses = {row["response_id"]: row for row in made[Responses]}
    return Canonical(found.items, responses, made[Gradings], made[Judgments])


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})


def items(**columns: list[Any]) -> tuple[Source, pd.DataFrame]:
    return ITEMS, frame(**({"id": ["1", "2"], "question": ["Why?", "How?"]} | columns))


def responses(source: Source = RESPONSES, **columns: list[Any]) -> tuple[Source, pd.DataFrame]:
    cells = {"rid": ["r1", "r2"], "item": ["1", "2"], "answer": ["Heat.", ""], "score_a": ["1", ""]}
    return source, frame(**(cells | columns))


def marks(**columns: list[Any]) -> tuple[Source, pd.DataFrame]:
    return MARKS, frame(**({"rid": ["r1", "r1"], "point": ["P1", "P2"], "mark": ["0", "2"]} | columns))


def remade(source: Source, **changes: Any) -> Source:
    return Source.model_validate(source.model_dump() | changes)


def mapped(**more: Any) -> Source:
    return remade(RESPONSES, responses=RESPONSES.responses | more)


# --- what the mapping says


def test_the_plain_case() -> None:
    found = canonical([items(), responses()])
    assert list(found.items) == ["1", "2"]
    assert found.responses["r2"] == {
        "response_id": "r2",
        "item_id": "2",
        "author_id": None,
        "text": "",
        "split": "test",
        "groups": {},
        "author_name": None,
        "made_from": None,
    }
    assert [(g["response_id"], g["rater_id"], g["score"], g["status"]) for g in found.gradings] == [
        ("r1", "a", 1.0, "scored")
    ]


def test_the_order_of_the_sources_does_not_matter() -> None:
    assert canonical([marks(), responses(), items()]) == canonical([items(), responses(), marks()])


def test_every_column_of_items_is_mapped() -> None:
    names = ("item_id", "question", "context", "reference_answer", "type", "rubric_id", "rubric_text")
    lists = {"key_elements": "key", "key_weights": "weight", "misconceptions": "wrong", "criteria": "list"}
    source = Source.model_validate({"file": "i.jsonl", "items": {**{n: n for n in names}, **lists}})
    cells = {name: [f"{name} 1"] for name in names} | {"weight": [[0.5, "2"]], "wrong": [["b"]]}
    cells["list"] = [[{"id": 1, "text": "c", "weight": "3"}]]
    found = canonical(
        [(source, frame(**cells, key=[["a", 2]])), responses(rid=["r"], item=["item_id 1"], answer=[""], score_a=[""])]
    )
    told = {"key_elements": ["a", "2"], "key_weights": [0.5, 2.0], "misconceptions": ["b"]}
    told["criteria"] = [{"id": "1", "text": "c", "weight": 3.0, "levels": [], "parent": None}]
    told["reference_answers"] = None
    assert found.items["item_id 1"] == {name: f"{name} 1" for name in names} | told


def test_ids_of_numeric_columns_are_whole_numbers() -> None:
    found = canonical([items(id=[1, 2.0]), responses(rid=[10.0, 11], item=[1.0, "2"])])
    assert (list(found.items), list(found.responses)) == (["1", "2"], ["10", "11"])


def test_authors_and_groups_of_blank_cells_are_none() -> None:
    source = remade(mapped(author_id="who"), groups={"first": "first"})
    found = canonical([items(), responses(source, who=["x", " "], first=["no", ""])])
    assert [r["author_id"] for r in found.responses.values()] == ["x", None]
    assert [r["groups"] for r in found.responses.values()] == [{"first": "no"}, {}]


ODD = "  a\r\n\x00\u202e é e\u0301 \U0001f600 "


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, ""), (math.nan, ""), ("", ""), (ODD, ODD), ("a\ud83d b \U0001f600", "a\ufffd b \U0001f600")],
)
def test_a_text_stays_as_it_stands_but_for_half_a_surrogate_pair(cell: Any, text: str) -> None:
    assert canonical([items(), responses(answer=["x", cell])]).responses["r2"]["text"] == text


def test_a_rater_may_mark_traits_only() -> None:
    source = remade(RESPONSES, scores=[{"rater": "t", "traits": {"ideas": "ideas", "style": "style"}}])
    found = canonical([items(), responses(source, ideas=["3", ""], style=["", ""])])
    (grading,) = found.gradings
    assert (grading["score"], grading["trait_scores"]) == (None, {"ideas": 3.0})
    assert (grading["status"], grading["unscored_reason"]) == ("unscored", "traits_only")


def test_blanks_around_authors_groups_and_sides_do_not_make_two_of_one() -> None:
    source = remade(mapped(author_id="who", split="s"), groups={"g": "g"})
    table = responses(source, who=["x", " x\t"], g=["F ", "F"], s=["test ", " test"])
    rows = canonical([items(), table]).responses.values()
    assert [(r["author_id"], r["groups"], r["split"]) for r in rows] == [("x", {"g": "F"}, "test")] * 2


@pytest.mark.parametrize("cell", ["NA", "n/a", "nan", "None", " - "])
def test_a_word_for_an_empty_cell_is_no_author(cell: str) -> None:
    with pytest.raises(InputError, match=r"reads like an empty cell .leave the cell empty") as stop:
        canonical([items(), responses(mapped(author_id="who"), who=["x", cell])])
    assert (stop.value.file, stop.value.row, stop.value.field) == ("responses.csv", 2, "who")


@pytest.mark.parametrize("cell", ["", " ", None, math.nan])
def test_a_blank_score_is_no_grading(cell: Any) -> None:
    assert canonical([items(), responses(score_a=[cell, cell])]).gradings == []


@pytest.mark.parametrize(
    ("where", "cells", "kept"),
    [
        ({"set": 1}, ["1", "2"], ["r1"]),
        ({"set": 1.0}, ["1", "2"], ["r1"]),
        ({"set": "1"}, [1.0, 2], ["r1"]),
        ({"set": True}, ["true", "false"], ["r1"]),
        ({"set": False}, [True, False], ["r2"]),
        ({"set": "x", "rid": "r2"}, ["x", "x"], ["r2"]),
    ],
)
def test_where_keeps_the_rows_that_hold(where: dict[str, Any], cells: list[Any], kept: list[str]) -> None:
    found = canonical([items(), responses(remade(RESPONSES, where=where), set=cells)])
    assert list(found.responses) == kept


def test_a_filter_does_not_renumber_rows() -> None:
    source = remade(RESPONSES, where={"item": "2"})
    with pytest.raises(InputError, match=r"responses\.csv, row 2, field 'score_a'"):
        canonical([items(), responses(source, score_a=["x", "x"])])


def test_marks_are_human_judgments() -> None:
    found = canonical([items(), responses(), marks()])
    assert [(j["criterion_id"], j["decision"], j["rater_id"]) for j in found.judgments] == [
        ("P1", 0, "a"),
        ("P2", 2, "a"),
    ]


def test_marks_that_a_machine_recorded_are_no_persons() -> None:
    source = remade(MARKS, marks=MARKS.marks | {"rater_kind": "kind"})
    found = canonical([items(), responses(), (source, marks(kind=["replayed", ""])[1])])
    assert [j["rater_kind"] for j in found.judgments] == ["replayed", "human"]


def test_scores_that_a_machine_recorded_are_no_persons_and_no_labels() -> None:
    source = remade(RESPONSES, scores=[{"rater": "m", "kind": "replayed", "score": "score_a"}])
    table = responses(source, score_a=["-34", "0.5"])
    assert [(g["rater_kind"], g["score"]) for g in canonical([items(), table]).gradings] == [
        ("replayed", -34.0),
        ("replayed", 0.5),
    ]
    assert not any(surveyed([items(), table]).labelled)


@pytest.mark.parametrize("averaged", [True, False])
def test_a_recorded_mean_of_several_persons_is_told_in_the_signals(averaged: bool) -> None:
    source = remade(RESPONSES, scores=[{"rater": "panel", "score": "score_a", "averaged": averaged}])
    (grading,) = canonical([items(), responses(source)]).gradings
    assert grading["signals"] == ({"averaged": 1.0} if averaged else {})


def test_items_may_come_without_responses() -> None:
    found = surveyed([items()])
    assert (list(found.items), found.places) == (["1", "2"], {})
    assert list(survey(streamed([items()], 1), Split(), "mean", 1).items) == ["1", "2"]


def kept(ids: Sequence[str], limit: int) -> set[str]:
    """What a limit leaves of responses to items 1 and 2 in turn; whoever is first in the file, every time."""
    item = ["1" if name.endswith("a") else "2" for name in ids]
    table = responses(rid=list(ids), item=item, answer=["x"] * len(ids), score_a=["1"] * len(ids))
    found = survey(streamed([items(), table], 100), Split(), "mean", limit)
    return {name for name, place in found.places.items() if found.kept[place]}


@given(st.permutations([f"{n}{item}" for n in range(12) for item in "ab"]), st.integers(1, 13))
def test_a_limit_keeps_the_same_of_each_item_in_any_order_of_the_file(ids: list[str], limit: int) -> None:
    chosen = kept(ids, limit)
    assert chosen == kept(sorted(ids), limit)
    assert chosen < kept(ids, limit + 1) or limit > 11
    assert [sum(name.endswith(item) for name in chosen) for item in "ab"] == [min(limit, 12)] * 2


def test_a_limit_keeps_what_hangs_on_the_responses_that_it_keeps() -> None:
    table = responses(rid=["r1", "r2", "r3"], item=["1", "1", "1"], answer=["a", "b", "c"], score_a=["1", "2", "3"])
    found = canonical([items(), table, marks(rid=["r1", "r3"])], limit=2)
    assert (list(found.items), len(found.responses)) == (["1"], 2)
    assert [g["response_id"] for g in found.gradings] == list(found.responses)
    assert [j["response_id"] for j in found.judgments] == [name for name in found.responses if name != "r2"]


@pytest.mark.parametrize("limit", [None, 2])
def test_it_does_not_matter_where_chunks_are_cut(limit: int | None) -> None:
    table = responses(rid=["r1", "r2", "r3"], item=["1", "1", "1"], answer=["a", "b", "c"], score_a=["1", "2", ""])
    sources = [items(), table, marks(rid=["r1", "r3"])]
    assert canonical(sources, limit, 1) == canonical(sources, limit, 2) == canonical(sources, limit, 9)


# --- what the survey keeps


@pytest.mark.parametrize("target", ["mean", "a", "b", "r"])
def test_the_labelled_are_those_with_a_target_score(target: str) -> None:
    raters = [("a", "human"), ("b", "human"), ("r", "adjudication")]
    source = remade(RESPONSES, scores=[{"rater": name, "kind": kind, "score": name} for name, kind in raters])
    table = responses(source, a=["1", ""], b=["", ""], r=["", "2"])
    gradings = conform(Gradings, canonical([items(), table]).gradings)
    wanted = set(target_scores(gradings, target)["response_id"].to_pylist())
    found = surveyed([items(), table], target=target)
    assert {key for key, place in found.places.items() if found.labelled[place]} == wanted


@pytest.mark.parametrize(("by", "column", "whole"), [("author", "who", "x"), ("item", "item", "1")])
def test_a_split_of_the_source_that_leaks_is_refused(by: Any, column: str, whole: str) -> None:
    source = mapped(author_id="who", split="s")
    table = responses(source, item=["1", "1"], who=["x", "x"], s=["calibration", "test"])
    with pytest.raises(InputError, match=f"{by} '{whole}' is on two sides, 'calibration' and 'test'") as stop:
        surveyed([items(), table], by)
    assert (stop.value.file, stop.value.row, stop.value.field) == ("responses.csv", 2, "s")
    assert surveyed([items(), table]).given == ["calibration", "test"]


def test_by_author_needs_authors_where_the_source_leaves_the_split_open() -> None:
    source = mapped(author_id="who", split="s")
    with pytest.raises(InputError, match="'r2' has none") as stop:
        surveyed([items(), responses(source, who=["x", ""], s=["", ""])], "author")
    assert (stop.value.file, stop.value.row, stop.value.field) == ("responses.csv", 2, "who")
    assert surveyed([items(), responses(source, who=["x", ""], s=["", "test"])], "author").given[1] == "test"


# --- mistakes

ERRORS: list[tuple[str, list[tuple[Source, pd.DataFrame]], str | None, int | None, str | None, str]] = [
    ("missing column", [items(), (RESPONSES, frame(rid=["r"], item=["1"]))], "responses.csv", None, "answer",
     "no such column; there are rid, item"),
    ("missing score column", [items(), responses(remade(RESPONSES, scores=[{"rater": "b", "score": "b"}]))],
     "responses.csv", None, "b", "no such column"),
    ("missing group column", [items(), responses(remade(RESPONSES, groups={"g": "g"}))],
     "responses.csv", None, "g", "no such"),
    ("missing filter column", [items(), responses(remade(RESPONSES, where={"g": "x"}))],
     "responses.csv", None, "g", "no such"),
    ("empty question", [items(question=["Why?", "  "]), responses()], "items.csv", 2, "question", "is empty"),
    ("empty id", [items(), responses(rid=["r1", ""])], "responses.csv", 2, "rid", "is empty"),
    ("missing id", [items(), responses(rid=[None, "r2"])], "responses.csv", 1, "rid", "is empty"),
    ("duplicate response", [items(), responses(rid=["r1", "r1"])], "responses.csv", 2, "rid", "'r1' occurs twice"),
    ("unknown item", [items(), responses(item=["1", "9"])], "responses.csv", 2, "item", "item '9' is unknown"),
    ("conflicting item", [items(id=["1", "1"]), responses()], "items.csv", 2, "question", "given twice with different"),
    ("unknown split", [items(), responses(mapped(split="s"), s=["test", "dev"])],
     "responses.csv", 2, "s", "'dev' is no split"),
    ("score in words", [items(), responses(score_a=["1", "good"])],
     "responses.csv", 2, "score_a", "'good' is not a finite"),
    ("score NaN", [items(), responses(score_a=["nan", "1"])], "responses.csv", 1, "score_a", "'nan' is not a finite"),
    ("score infinite", [items(), responses(score_a=[math.inf, 1])],
     "responses.csv", 1, "score_a", "'inf' is not a finite"),
    ("list where text is due", [items(), responses(answer=["x", ["y"]])], "responses.csv", 2, "answer",
     "is a list, not text"),
    ("object where an id is due", [items(), responses(rid=["r1", {"id": 1}])], "responses.csv", 2, "rid",
     "is an object, not text"),
    ("bytes for a group", [items(), responses(remade(RESPONSES, groups={"g": "g"}), g=["n", b"s"])],
     "responses.csv", 2, "g", "is bytes, not text"),
    ("key elements as text", [(remade(ITEMS, items=ITEMS.items | {"key_elements": "question"}), items()[1]),
      responses()],
     "items.csv", 1, "question", "is not a list"),
    ("mark on an unknown response", [items(), responses(), marks(rid=["r1", "r9"])],
     "marks.csv", 2, "rid", "'r9' is unknown"),
    ("mark of half a level", [items(), responses(), marks(mark=["0", "0.5"])],
     "marks.csv", 2, "mark", "'0.5' is no level"),
    ("mark below 0", [items(), responses(), marks(mark=["-1", "0"])], "marks.csv", 1, "mark", "'-1' is no level"),
    ("blank mark", [items(), responses(), marks(mark=["1", ""])], "marks.csv", 2, "mark", "is empty"),
    ("mark given twice", [items(), responses(), marks(point=["P1", "P1"])],
     "marks.csv", 2, "point", "'P1' of response 'r1' twice"),
    ("no response", [items(), responses(rid=[], item=[], answer=[], score_a=[])],
     "responses.csv", None, None, "no response is left"),
    ("no kind of rater", [items(), responses(), (remade(MARKS, marks=MARKS.marks | {"rater_kind": "kind"}),
      marks(kind=["human", "llm"])[1])],
     "marks.csv", 2, "kind", "'llm' is no kind of rater; use human, replayed"),
    ("no list of criteria", [(remade(ITEMS, items=ITEMS.items | {"criteria": "listed"}),
      items(listed=[None, "Names heat."])[1]), responses()],
     "items.csv", 2, "listed", "is not a list"),
    ("no source", [], None, None, None, "no response is left"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sources", "file", "row", "field", "rule"), ERRORS, ids=[error[0] for error in ERRORS]
)
def test_a_mistake_is_named_by_its_place(
    name: str,
    sources: list[tuple[Source, pd.DataFrame]],
    file: str | None,
    row: int | None,
    field: str | None,
    rule: str,
) -> None:
    with pytest.raises(InputError, match=rule) as stop:
        canonical(sources)
    assert (stop.value.file, stop.value.row, stop.value.field) == (file, row, field)


@pytest.mark.parametrize(
    ("responses", "rule"),
    [
        (
            {"response_id": "rid", "item_id": "item", "text": "t", "txt": "answer"},
            "'txt' is no canonical column; there",
        ),
        ({"item_id": "item", "text": "answer"}, "the mapping names no column for 'response_id'"),
        ({"response_id": "rid", "item_id": "item"}, "the mapping names no column for 'text'"),
    ],
)
def test_a_mapping_names_the_columns_that_there_are(responses: dict[str, str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        remade(RESPONSES, responses=responses)


def test_the_same_item_twice_is_one_item() -> None:
    assert len(canonical([items(id=["1", "1"], question=["Why?", "Why?"]), responses(item=["1", "1"])]).items) == 1


# --- what a file of scores says of how its labels came about

SETTLED = Source.model_validate(
    {
        "file": "settled.csv",
        "scored": "rid",
        "split": "split",
        "scores": [{"rater": "people", "score": "score"}],
    }
)


def settled(
    rid: list[str], split: list[str], score: list[str], target: str = "mean", known: tuple[str, str, str] = ("", "", "")
) -> list[str | None]:
    """What is said of the split of three responses with known scores, once such a file is read."""
    table = responses(rid=["r1", "r2", "r3"], item=["1", "1", "1"], answer=["a", "b", "c"], score_a=[*known])
    return surveyed([items(), table, (SETTLED, frame(rid=rid, split=split, score=score))], target=target).given


@pytest.mark.parametrize(
    ("split", "score", "more", "given"),
    [
        (["chosen", "", "chosen"], ["1", "2", ""], {}, ["chosen", None, None]),  # once it is there
        (["chosen", "", ""], ["1", "", ""], {"target": "a"}, [None, None, None]),  # of another than the target
        (["chosen", "chosen", ""], ["1", "2", ""], {"known": ("3", "", "")}, [None, "chosen", None]),  # there anyway
    ],
)
def test_a_chosen_label_is_on_neither_side(
    split: list[str], score: list[str], more: dict[str, Any], given: list[str | None]
) -> None:
    assert settled(["r1", "r2", "r3"], split, score, **more) == given


def test_a_file_of_scores_says_chosen_or_nothing() -> None:
    with pytest.raises(InputError, match="'test' is neither 'chosen' nor empty") as error:
        settled(["r1", "r2"], ["", "test"], ["1", "2"])
    assert (error.value.file, error.value.row, error.value.field) == ("settled.csv", 2, "split")


def test_only_a_file_of_scores_says_what_was_chosen() -> None:
    with pytest.raises(ValueError, match="responses have a split of their own"):
        remade(RESPONSES, split="split")


def test_a_filter_on_what_another_emptied_leaves_nothing() -> None:
    with pytest.raises(InputError, match="no response is left"):
        canonical([items(), responses(remade(RESPONSES, where={"item": "9", "rid": "r1"}))])


def test_a_limit_does_not_take_the_first_of_a_file() -> None:
    names = [f"{n:03d}a" for n in range(400)]
    halves = [int(name[:3]) // 200 for name in kept(names, 100)]
    assert 30 < sum(halves) < 70  # four standard deviations to either side
    assert sum(name in names[:100] for name in kept(names, 100)) < 45
