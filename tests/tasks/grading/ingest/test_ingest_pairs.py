"""Files of pairs: answers become responses, and what people prefer becomes preferences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.task import ingest

HEAD = "id,question,one,other,label"
ROWS = ["q1,Why?,Heat.,Cold.,A>B", "q2,How?,Slowly.,Fast.,B>A", "q3,When?,Now.,Later.,A=B", "q4,Who?,She.,He.,"]
SOURCE: dict[str, Any] = {
    "file": "pairs.csv",
    "items": {"item_id": "id", "question": "question"},
    "pairs": {"item_id": "id", "text_a": "one", "text_b": "other", "winner": "label"},
    "winners": {"A>B": "a", "B>A": "b", "A=B": "tie"},
}


def read(folder: Path, lines: list[str], limit: int | None = None, **changes: Any) -> tuple[list[Any], list[Any]]:
    """Responses and preferences."""
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    source = SOURCE | changes
    study = {"name": "s", "data": {"sources": [source]}, "rubrics": {"file": "rubrics.yaml"}}
    run = Warehouse.open(folder / "warehouse").run("one")
    data = ingest.fn(run, Study.model_validate(study), folder, limit)
    assert data.preferences is not None
    return run.read(data.responses).to_pylist(), run.read(data.preferences).to_pylist()


def test_a_pair_is_two_responses_and_a_preference(tmp_path: Path) -> None:
    responses, preferences = read(tmp_path, [HEAD, *ROWS])
    assert {row["response_id"]: (row["item_id"], row["text"]) for row in responses} == {
        **{"q1:a": ("q1", "Heat."), "q1:b": ("q1", "Cold."), "q2:a": ("q2", "Slowly."), "q2:b": ("q2", "Fast.")},
        **{"q3:a": ("q3", "Now."), "q3:b": ("q3", "Later."), "q4:a": ("q4", "She."), "q4:b": ("q4", "He.")},
    }
    said = [(row["response_a"], row["response_b"], row["winner"], row["rater_id"]) for row in preferences]
    assert said == [
        ("q1:a", "q1:b", "a", "preferences"),
        ("q2:a", "q2:b", "b", "preferences"),
        ("q3:a", "q3:b", "tie", "preferences"),
    ]


def test_an_answer_of_several_pairs_and_raters_is_one_response(tmp_path: Path) -> None:
    head = "id,question,x,one,y,other,label,who"
    lines = ["q,Why?,m1,Heat.,m2,Cold.,a,ann", "q,Why?,m1,Heat.,m2,Cold.,b,bo", "q,Why?,m2,Cold.,m3,Wind.,a,ann"]
    pairs = SOURCE["pairs"] | {"response_a": "x", "response_b": "y", "rater_id": "who"}
    responses, preferences = read(tmp_path, [head, *lines], pairs=pairs, winners={})
    assert sorted(row["response_id"] for row in responses) == ["m1", "m2", "m3"]
    assert [(row["response_a"], row["winner"], row["rater_id"]) for row in preferences] == [
        *[("m1", "a", "ann"), ("m1", "b", "bo"), ("m2", "a", "ann")]
    ]


def test_a_pair_that_lost_an_answer_to_the_limit_is_left_out(tmp_path: Path) -> None:
    responses, preferences = read(tmp_path, [HEAD, *ROWS], limit=1)
    assert (len(responses), preferences) == (4, [])


@pytest.mark.parametrize(
    ("lines", "changes", "words"),
    [
        (["q1,Why?,Heat.,Cold.,C"], {}, r"row 1.*'label'.*'C' names no winner; there are A>B, B>A, A=B"),
        ([*ROWS, "q1,Why?,Light.,Dark.,A>B"], {}, r"row 5.*'q1:a' is given twice with different words.*pair_id"),
        ([*ROWS, "q1,Why?,Heat.,Cold.,B>A"], {}, r"row 5.*'preferences' prefers one of 'q1:a' and 'q1:b' twice"),
        (
            ["q1,Why?,Heat.,Cold.,A>B", "q1,Why?,Cold.,Heat.,A>B"],
            {"pairs": SOURCE["pairs"] | {"response_a": "one", "response_b": "other"}},
            r"row 2.*'preferences' prefers one of 'Cold.' and 'Heat.' twice",
        ),
        (
            ["q1,Why?,Heat.,Heat.,A>B"],
            {"pairs": SOURCE["pairs"] | {"response_a": "one", "response_b": "other"}},
            r"row 1.*'Heat.' is paired with itself",
        ),
        (["q1,Why?,Heat.,Cold.,A>B"], {"pairs": SOURCE["pairs"] | {"text_b": "nothing"}}, "nothing"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_place(
    tmp_path: Path, lines: list[str], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, [HEAD, *lines], **changes)


@pytest.mark.parametrize(
    "changes",
    [{"pairs": {"item_id": "id"}}, {"scores": [{"rater": "r", "score": "s"}]}, {"winners": {"x": "c"}}],
)
def test_what_no_source_of_pairs_can_say_is_refused(changes: dict[str, Any]) -> None:
    study = {"name": "s", "data": {"sources": [SOURCE | changes]}, "rubrics": {"file": "r.yaml"}}
    with pytest.raises(ValueError, match=r"names no column|no responses, scores|winners"):
        Study.model_validate(study)
