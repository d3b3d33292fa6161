"""Edge-specific factors: a table that is read, and human scores that teach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reward_scene import STRONG, WEAK, locals_of, rubric

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.reward import Learn
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, Retentions
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import batch
from rubricflow.tasks.rewards.reward.factors import HumanScores, Lesson, human_scores, read_factors, taught

NODES = tuple(Node(criterion_id=name, role="core") for name in ("a", "b", "c"))
GRAPHS = {"r": Graph(nodes=NODES, edges=(Edge(parent="a", child="b", relation=WEAK),))}
HEADER = "rubric_id,parent,child,retention\n"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "factors.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_factors_are_read_by_rubric_and_edge(tmp_path: Path) -> None:
    assert read_factors(table(tmp_path, "r,a,b,0.35"), GRAPHS) == {"r": {("a", "b"): 0.35}}


@pytest.mark.parametrize(
    ("row", "field", "rule"),
    [
        ("s,a,b,0.5", "rubric_id", "there is no rubric 's'"),
        ("r,b,a,0.5", "child", "has no edge b → a"),
        ("r,a,b,1.5", "retention", "'1.5' is not in [0, 1]"),
        ("r,a,b,-0.1", "retention", "'-0.1' is not in [0, 1]"),
        ("r,a,b,", "retention", "is not in [0, 1]"),
        ("r,a,b,much", "retention", "much"),
    ],
)
def test_a_bad_row_is_named_with_its_rule(tmp_path: Path, row: str, field: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_factors(table(tmp_path, row), GRAPHS)
    message = str(caught.value)
    assert rule in message
    assert "factors.csv" in message
    assert "row 1" in message
    assert field in message


def test_an_edge_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="given twice"):
        read_factors(table(tmp_path, "r,a,b,0.5", "r,a,b,0.5"), GRAPHS)


TYPED = rubric([4, 3, 2], [(0, 1, STRONG), (0, 2, WEAK)])
TRUE = (0.9, 0.1)
"""The factors that the people of these tests score by: the other way round than by relation."""


def lesson(n: int = 300, calibration: int = 200) -> Lesson:
    rng = np.random.default_rng(5)
    local = rng.random((n, 3))
    of = locals_of([TYPED], [0] * n, local.tolist())
    theirs = replace(TYPED, retention=np.array(TRUE))
    scores = 4 * aggregate(batch([theirs], of.batch.rubric_index, of.batch.local), "gear").reward + rng.normal(
        0, 0.01, n
    )
    split = np.array(["calibration"] * calibration + ["test"] * (n - calibration))
    scored = HumanScores(scores, np.arange(n).astype(str), split, (0.0, 4.0, 1.0))
    return taught(of, {TYPED.rubric_id: TYPED}, scored, Learn(), 100)


def test_factors_of_known_people_are_found_again() -> None:
    found = {row["child"]: row for row in lesson().retentions}
    assert [found[name]["retention"] for name in ("c1", "c2")] == pytest.approx(TRUE, abs=0.05)
    assert [found[name]["by_relation"] for name in ("c1", "c2")] == [0.2, 0.6]


def test_the_gain_is_measured_on_the_test_split_alone() -> None:
    rows = {(row["metric"], row["aggregation"]): row for row in lesson().diagnostics}
    gain = rows["gain over typed: rmse", "learned"]
    assert gain["n"] == 100
    assert gain["high"] < 0  # less error, clearly
    assert rows["predicts people: rmse", "learned"]["value"] < rows["predicts people: rmse", "flat"]["value"]


def test_both_kinds_of_rows_are_those_of_their_contracts() -> None:
    found = lesson()
    assert conform(Retentions, found.retentions).num_rows == 2
    assert conform(Diagnostics, found.diagnostics).num_rows == len(found.diagnostics)
    keys = [tuple(row[name] for name in Diagnostics.key) for row in found.diagnostics]
    assert len(set(keys)) == len(keys)


def test_without_scores_in_the_calibration_split_nothing_is_learned() -> None:
    with pytest.raises(InputError, match="no response of the calibration split has a score by 'mean'"):
        lesson(calibration=0)


def test_too_few_scores_leave_no_row_but_say_why() -> None:
    found = lesson(n=60, calibration=3)
    assert found.retentions == []
    (row,) = [row for row in found.diagnostics if row["metric"] == "rubrics without learned factors"]
    assert row["value"] == 1
    assert "3 labelled responses for 2 edges" in row["note"]


def test_human_scores_stand_in_the_order_of_the_batch() -> None:
    of = locals_of([TYPED], [0, 0, 0], [[1, 1, 1]] * 3)
    responses = pa.table(
        {
            "response_id": ["r2", "r0", "r1"],
            "author_id": [None, "kim", "lee"],
            "split": ["test", "calibration", "train"],
        }
    )
    people = pa.table({"response_id": ["r1", "r2"], "score": [3.0, 1.0]})
    found = human_scores(of, people, responses, (0.0, 4.0, 1.0))
    assert np.isnan(found.score[0])
    assert found.score[1:].tolist() == [3.0, 1.0]
    assert found.cluster.tolist() == ["kim", "lee", "r2"]
    assert found.split.tolist() == ["calibration", "train", "test"]
