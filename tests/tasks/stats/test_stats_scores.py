"""The score frame: held-out responses only, one column per rater, the target as the study names it."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from tasks.contracts.schema import conform
from tasks.contracts.tables.calibration import Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings
from tasks.stats.scores import ScoreTables, narrow, score_frame


def grading(response: str, rater: str, score: float | None, kind: str = "human") -> dict[str, object]:
    reason = None if score is not None else "no_reply"
    return {
        "response_id": response,
        "item_id": "i",
        "rater_id": rater,
        "rater_kind": kind,
        "sample": 0,
        "score": score,
        "trait_scores": {},
        "signals": {},
        "status": "scored" if score is not None else "unscored",
        "unscored_reason": reason,
    }


def tables() -> ScoreTables:
    item = {"item_id": "i", "question": "?", "key_elements": [], "type": "short", "rubric_id": "i"}
    splits = {"r1": "test", "r2": "test", "r3": "calibration"}
    responses = [
        {"response_id": r, "item_id": "i", "text": "", "split": split, "groups": {"g": "x"} if r == "r1" else {}}
        for r, split in splits.items()
    ]
    people = [
        grading("r1", "one", 1.0),
        grading("r1", "two", 2.0),
        grading("r2", "two", 4.0),
        grading("r3", "one", 3.0),
    ]
    machine = [grading(r, "m", score, "llm") for r, score in (("r1", 0.0), ("r2", None), ("r3", 5.0))]
    predictions = [
        {
            "response_id": r,
            "item_id": "i",
            "rater_id": "m",
            "split": splits[r],
            "score": score,
            "clipped": False,
            "route": "review",
        }
        for r, score in (("r1", 1.0), ("r2", None), ("r3", 4.0))
    ]
    made: list[pa.Table] = [
        conform(row, rows)
        for row, rows in (
            (Items, [item]),
            (Responses, responses),
            (Gradings, people),
            (Gradings, machine),
            (Predictions, predictions),
        )
    ]
    items_, responses_, people, gradings, predictions_ = made
    return ScoreTables(items_, responses_, people, narrow(gradings.to_batches()), predictions_)


def frame(target: str = "mean", **more: tuple[str, ...]) -> pd.DataFrame:
    return score_frame([tables()], target, **more).frame.set_index("response_id")


def test_only_held_out_responses_are_in_it() -> None:
    assert list(frame().index) == ["r1", "r2"]


def test_other_splits_can_be_asked_for() -> None:
    assert list(frame(splits=("calibration",)).index) == ["r3"]


def test_the_mean_is_of_the_raters_there_are() -> None:
    assert frame()["target"].to_dict() == {"r1": 1.5, "r2": 4.0}


def test_a_named_rater_is_the_target() -> None:
    target = frame("one")["target"]
    assert target["r1"] == 1.0
    assert pd.isna(target["r2"])


def test_what_the_machine_left_unscored_is_missing() -> None:
    assert pd.isna(frame().loc["r2", ["raw", "calibrated"]]).all()


def test_a_resolved_score_is_no_person() -> None:
    found = tables()
    resolved = conform(Gradings, [grading("r1", "resolved", 9.0, "adjudication")])
    both = found._replace(people=pa.concat_tables([found.people, resolved]))
    scores, _, raters, _ = score_frame([both], "resolved")
    assert raters == ["one", "two"]
    assert scores["target"].dropna().tolist() == [9.0]


def test_groups_and_raters_are_named() -> None:
    found, groups, raters, _ = score_frame([tables()], "mean")
    assert (groups, raters) == (["g"], ["one", "two"])
    assert found["group:g"].tolist()[0] == "x"
