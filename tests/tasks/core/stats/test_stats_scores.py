"""The score frame: held-out responses only, one column per rater, the target as the study names it."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from builders.rows import grading, item, response

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.scores import ScoreTables, narrow, score_frame, target_scores


def tables() -> ScoreTables:
    splits = {"r1": "test", "r2": "test", "r3": "calibration"}
    groups = {"r1": {"g": "x"}}
    responses = [response(r, split=split, groups=groups.get(r, {})) for r, split in splits.items()]
    marks = (("r1", "h1", 1.0), ("r1", "h2", 2.0), ("r2", "h2", 4.0), ("r3", "h1", 3.0))
    people = [grading(*mark) for mark in marks]
    machine = [grading(r, "m", score) for r, score in (("r1", 0.0), ("r2", None), ("r3", 5.0))]
    same = {"item_id": "i", "rater_id": "m", "clipped": False, "route": "review"}
    predictions = [
        same | {"response_id": r, "split": splits[r], "score": score}
        for r, score in (("r1", 1.0), ("r2", None), ("r3", 4.0))
    ]
    return ScoreTables(
        conform(Items, [item()]),
        conform(Responses, responses),
        conform(Gradings, people),
        narrow(conform(Gradings, machine).to_batches()),
        conform(Predictions, predictions),
    )


def frame(target: str = "mean", **more: tuple[str, ...]) -> pd.DataFrame:
    return score_frame([tables()], target, **more).frame.set_index("response_id")


def part(number: int) -> ScoreTables:
    """Tables of three responses to an item: parts differ in their raters, groups and signals."""
    names = [f"p{number}-r{place}" for place in range(3)]
    groups = {f"g{number % 2}": "x"} if number else {}
    signals = {"length": 1.0} | ({f"criterion.c{number}": 1.0} if number != 1 else {})
    machine = [grading(name, "m", float(number), signals=signals) for name in names]
    return tables()._replace(
        responses=conform(Responses, [response(name, groups=groups) for name in names]),
        people=conform(Gradings, [grading(name, f"h{number}", 1.0) for name in names[number:]]),
        gradings=narrow(conform(Gradings, machine).to_batches()),
    )


@pytest.mark.parametrize("numbers", [(0,), (0, 1), (1, 0), (2, 1, 0, 3), (3, 3)])
def test_parts_are_put_below_each_other_as_pandas_would(numbers: tuple[int, ...]) -> None:
    own = [score_frame([part(number)], "mean").frame for number in numbers]
    plain = pd.concat(own, ignore_index=True).drop(columns=["row", "cluster"])
    joined = score_frame([part(number) for number in numbers], "mean").frame
    assert joined["row"].tolist() == list(range(len(plain)))
    pd.testing.assert_frame_equal(joined[list(plain.columns)], plain)


def test_the_frame_holds_the_split_that_is_asked_for_with_target_and_gaps() -> None:
    assert list(frame(splits=("calibration",)).index) == ["r3"]
    assert frame()["target"].to_dict() == {"r1": 1.5, "r2": 4.0}
    assert pd.isna(frame().loc["r2", ["raw", "calibrated"]]).all()
    target = frame("h1")["target"]
    assert (target["r1"], pd.isna(target["r2"])) == (1.0, True)


def test_a_resolved_score_is_no_person() -> None:
    found = tables()
    resolved = conform(Gradings, [grading("r1", "resolved", 9.0, rater_kind="adjudication")])
    both = found._replace(people=pa.concat_tables([found.people, resolved]))
    scores, _, raters, _ = score_frame([both], "resolved")
    assert raters == ["h1", "h2"]
    assert scores["target"].dropna().tolist() == [9.0]


def test_groups_and_raters_are_named() -> None:
    found, groups, raters, _ = score_frame([tables()], "mean")
    assert (groups, raters) == (["g"], ["h1", "h2"])
    assert found["group:g"].tolist()[0] == "x"


# The human score that counts.


COLUMNS = ("response_id", "rater_id", "rater_kind", "score")


def scores(*rows: tuple[str, str, str, float | None], target: str = "mean") -> dict[str, list[object]]:
    records = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    types = [(name, pa.float64() if name == "score" else pa.string()) for name in COLUMNS]
    found: dict[str, list[object]] = target_scores(
        pa.Table.from_pylist(records, schema=pa.schema(types)), target
    ).to_pydict()
    return found


TWO = (("r1", "h1", "human", 1.0), ("r1", "h2", "human", 2.0), ("r2", "h2", "human", 3.0), ("r3", "h1", "human", None))


RESOLVED = ("r1", "resolved", "adjudication", 9.0)


@pytest.mark.parametrize(
    ("target", "responses", "wanted"),
    [("mean", ["r1", "r2"], [1.5, 3.0]), ("h1", ["r1"], [1.0]), ("resolved", ["r1"], [9.0])],
)
def test_the_mean_is_of_persons_and_anybody_named_is_the_target(
    target: str, responses: list[str], wanted: list[float]
) -> None:
    assert scores(*TWO, RESOLVED, target=target) == {"response_id": responses, "score": wanted}


def test_the_mean_does_not_depend_on_the_order_of_the_raters() -> None:
    def mean(*values: float) -> object:
        return scores(*(("r", str(at), "human", value) for at, value in enumerate(values)))["score"][0]

    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    assert mean(0.1, 0.2, 0.3) == mean(0.3, 0.2, 0.1)
