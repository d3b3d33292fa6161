"""Construction criteria of an inventory: broken on purpose one at a time, and figures held against plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.people import Constructions
from rubricflow.tasks.people.annotate.inventory import FEWEST, constructions, explained

INVENTORIES = Path(__file__).parents[4] / "data" / "inventories"
TEXTS = {"A": "names the cause", "B": "reads without stumbling", "C": "brings an instance"}


def rubric(**texts: str) -> Rubric:
    levels = ["nothing", "in part", "wholly"]
    criteria = [
        {"id": name, "trait": "t", "kind": "concept", "text": text, "levels": levels}
        for name, text in (TEXTS | texts).items()
    ]
    traits = [{"id": "t", "name": "T", "min": 0, "max": 5}]
    content = {"rubric_id": "r", "scale": {"min": 0, "max": 5}, "traits": traits, "criteria": criteria}
    return Rubric.model_validate(content)


def data(n: int = 300, seed: int = 0, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Independent labels of three concepts, and grades that two of them decide."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (n, 3))
    return labels, labels[:, 0] + labels[:, 1] + noise * rng.standard_normal(n)


def rows(rubric: Rubric, *given: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["rule"], row["subject"]): row for row in constructions(rubric, *given)}


def test_a_sound_inventory_keeps_them_all() -> None:
    found = rows(rubric(), *data(noise=0.3))
    assert {row["outcome"] for key, row in found.items() if key != ("ordinal_anchors", "C")} == {"kept"}
    assert set(found) >= {("coverage", "t"), ("coverage", "all"), ("non_redundancy", "A and C")}
    phased = [row | {"phase": "before"} for row in found.values()]
    assert conform(Constructions, pa.Table.from_pylist(phased)).num_rows == 8


def test_coverage_is_the_share_of_variance_told() -> None:
    labels, grades = data(2_000, noise=1.0)
    share = explained(labels, grades)
    line = LinearRegression().fit(labels, grades).score(labels, grades)
    assert share is not None
    assert line - 0.02 < share < line
    found = rows(rubric(), labels, grades)["coverage", "all"]
    assert (found["value"], found["outcome"]) == (share, "kept")
    noise = np.random.default_rng(1).standard_normal(2_000)
    assert rows(rubric(), labels, noise)["coverage", "all"]["outcome"] == "broken"
    assert explained(labels, np.ones(2_000)) is None


def test_two_concepts_with_the_same_labels_are_one() -> None:
    labels, grades = data()
    labels[:, 2] = np.where(np.arange(300) % 40 == 0, 0, 2 - labels[:, 0])
    found = rows(rubric(), labels, grades)
    both = found["non_redundancy", "A and C"]
    assert both["outcome"] == "broken"
    assert both["value"] == pytest.approx(-spearmanr(labels[:, 0], labels[:, 2]).statistic)
    assert found["non_redundancy", "A and B"]["outcome"] == "kept"


def test_without_labels_wording_speaks() -> None:
    found = rows(rubric(C="names the main cause"))
    assert found["non_redundancy", "A and C"]["outcome"] == "broken"
    assert found["non_redundancy", "A and C"]["value"] == 3 / 4
    assert found["non_redundancy", "A and B"]["outcome"] == "unknown"
    assert {found["coverage", "all"]["outcome"], found["ordinal_anchors", "A"]["outcome"]} == {"unknown"}


def test_a_level_without_a_descriptor_of_its_own_is_named() -> None:
    same = rubric()
    criteria = (same.criteria[0].model_copy(update={"levels": ("none", "Some ", "some")}), *same.criteria[1:])
    found = rows(same.model_copy(update={"criteria": criteria}), *data())
    assert found["ordinal_anchors", "A"]["outcome"] == "broken"
    assert (found["ordinal_anchors", "A"]["value"], found["ordinal_anchors", "A"]["limit"]) == (2, 3)


def test_a_grade_that_falls_with_the_level_breaks_and_chance_does_not() -> None:
    labels, grades = data()
    labels[:, 0] = 2 - labels[:, 0]
    found = rows(rubric(), labels, grades)
    assert found["ordinal_anchors", "A"]["outcome"] == "broken"
    means = [grades[labels[:, 0] == level].mean() for level in range(3)]
    assert found["ordinal_anchors", "A"]["value"] == pytest.approx(min(np.diff(means)))
    for seed in range(20):
        labels, grades = data(seed=seed)
        assert rows(rubric(), labels, grades)["ordinal_anchors", "B"]["outcome"] == "kept"


def test_a_level_that_nobody_gives_is_named() -> None:
    labels, grades = data()
    labels[:, 0] = np.minimum(labels[:, 0], 1)
    found = rows(rubric(), labels, grades)["ordinal_anchors", "A"]
    assert (found["outcome"], found["value"]) == ("broken", None)
    assert "level 2" in found["detail"]


def test_gaps_and_few_labels_leave_it_open() -> None:
    labels, grades = data(2 * FEWEST)
    labels[FEWEST - 1 :, 0] = -1
    grades[0] = np.nan
    found = rows(rubric(), labels, grades)
    assert found["coverage", "all"]["outcome"] == "unknown"
    assert found["ordinal_anchors", "A"]["outcome"] == "unknown"
    assert found["ordinal_anchors", "B"]["value"] is not None


def test_what_is_made_of_sub_points_is_no_concept() -> None:
    whole = rubric()
    a, b, c = (one.model_copy(update={"parent": "P" if one.id != "C" else None}) for one in whole.criteria)
    parent = a.model_copy(update={"id": "P", "parent": None})
    labels, grades = data()
    labels = np.column_stack([np.full(300, -1), labels])
    found = rows(whole.model_copy(update={"criteria": (parent, a, b, c)}), labels, grades)
    assert {key: row["value"] for key, row in found.items()} | {("coverage", "t"): 3} == {
        key: row["value"] for key, row in rows(whole, labels[:, 1:], grades).items()
    }


@pytest.mark.parametrize("name", ["mohler", "asap2", "mocha"])
def test_shipped_inventories_break_nothing(name: str) -> None:
    (content,) = yaml.safe_load((INVENTORIES / f"{name}.yaml").read_text())["rubrics"]
    assert not [row for row in constructions(Rubric.model_validate(content)) if row["outcome"] == "broken"]
