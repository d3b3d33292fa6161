"""The human score that counts."""

from __future__ import annotations

import pyarrow as pa

from rubricflow.tasks.core.stats.scores import target_scores

COLUMNS = ("response_id", "rater_id", "rater_kind", "score")


def scores(*rows: tuple[str, str, str, float | None], target: str = "mean") -> dict[str, list[object]]:
    records = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    types = [(name, pa.float64() if name == "score" else pa.string()) for name in COLUMNS]
    found: dict[str, list[object]] = target_scores(
        pa.Table.from_pylist(records, schema=pa.schema(types)), target
    ).to_pydict()
    return found


TWO = (("r1", "h1", "human", 1.0), ("r1", "h2", "human", 2.0), ("r2", "h2", "human", 3.0), ("r3", "h1", "human", None))


def test_the_mean_is_of_the_persons_who_scored() -> None:
    assert scores(*TWO) == {"response_id": ["r1", "r2"], "score": [1.5, 3.0]}


def test_a_rater_is_taken_by_name() -> None:
    assert scores(*TWO, target="h1") == {"response_id": ["r1"], "score": [1.0]}


def test_a_resolved_score_has_no_part_in_the_mean() -> None:
    assert scores(*TWO, ("r1", "resolved", "adjudication", 9.0))["score"] == [1.5, 3.0]


def test_a_resolved_score_can_be_the_target() -> None:
    assert scores(*TWO, ("r1", "resolved", "adjudication", 9.0), target="resolved")["score"] == [9.0]


def test_the_mean_does_not_depend_on_the_order_of_the_raters() -> None:
    def mean(*values: float) -> object:
        return scores(*(("r", str(at), "human", value) for at, value in enumerate(values)))["score"][0]

    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    assert mean(0.1, 0.2, 0.3) == mean(0.3, 0.2, 0.1)
