"""The door of lock, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import rows, studies

from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.lock.task import Locked, fit, lock

DERIVE = {"origin": "reference_answer", "scale": {"min": 0, "max": 5}}
RUBRICS = """
rubrics:
  - rubric_id: mine
    title: Mine
    scale: {min: 0, max: 10}
    traits: [{id: t, name: T, min: 0, max: 10}]
    criteria: [{id: a, trait: t, text: Names a good cause.}]
"""


def study(**rubrics: Any) -> Study:
    return studies.study(rubrics=rubrics)


def item(key: str, rubric: str) -> dict[str, Any]:
    return rows.item(key, reference_answer=f"Heat {key}. Light.", rubric_id=rubric)


def written(run: Run) -> list[TableRef]:
    """What the door reads."""
    return [run.ref(row, "ingest") for row in (Items, Responses, Gradings, Judgments)]


def locked(
    folder: Path, plan: Study, score: float = 1.0, mark: tuple[str, int] | None = None, kind: str = "human"
) -> tuple[Run, Locked]:
    (folder / "rubrics.yaml").write_text(RUBRICS)
    run = Warehouse.open(folder / "warehouse").run("one")
    grading = rows.grading("r", "h", score, rater_kind=kind, trait_scores={"content": score})
    items = [item("i", "i"), item("j", "mine"), item("k", "mine")]
    marks = [rows.judgment("r", *one, "h", rater_kind=kind) for one in [mark] * (mark is not None)]
    run.commit(
        "ingest", "all", {Items: items, Responses: [rows.response("r", "j")], Gradings: [grading], Judgments: marks}
    )
    return run, lock.fn(run, plan, folder, *written(run))


def test_each_rubric_is_locked_once_and_told_by_its_origin(tmp_path: Path) -> None:
    run, refs = locked(tmp_path, study(file="rubrics.yaml", derive=DERIVE))
    rows = run.read(refs.rubrics).to_pylist()
    told = {row["rubric_id"]: (row["origin"], row["title"], row["lint"]) for row in rows}
    assert told == {"i": ("reference_answer", "Why?", []), "mine": ("authored", "Mine", ["a: vague (good)"])}
    assert [Rubric.model_validate(json.loads(row["content"])).rubric_id for row in rows] == ["i", "mine"]
    found = {
        row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]) for row in run.read(refs.bundles).to_pylist()
    }
    assert [c.text for c in found["i"].criteria] == ["Heat i", "Light"]
    assert found["mine"].scale.max == 10


def test_a_human_score_off_the_scale_stops_the_lock(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rater 'h' gave response 'r' 7, off the scale 0 to 5 of item 'i'"):
        locked(tmp_path, study(file="rubrics.yaml", derive=DERIVE), score=7)


def test_what_a_machine_recorded_is_on_a_scale_of_its_own(tmp_path: Path) -> None:
    plan = study(file="rubrics.yaml", derive=DERIVE)
    assert locked(tmp_path, plan, score=-34.7, kind="replayed")[1].bundles.rows == 2


@pytest.mark.parametrize("kind", ["human", "replayed"])
@pytest.mark.parametrize(("mark", "has"), [(("b", 0), "no criterion 'b'"), (("a", 2), "levels 0 to 1 for it")])
def test_a_mark_of_an_unknown_criterion_or_level_stops_the_lock(
    tmp_path: Path, kind: str, mark: tuple[str, int], has: str
) -> None:
    with pytest.raises(InputError, match=f"rubric 'mine' has {has}"):
        locked(tmp_path, study(file="rubrics.yaml", derive=DERIVE), mark=mark, kind=kind)


def test_a_mark_that_the_rubric_has_passes(tmp_path: Path) -> None:
    assert locked(tmp_path, study(file="rubrics.yaml", derive=DERIVE), mark=("a", 1))[1].bundles.rows == 2


def test_a_second_time_nothing_is_made(tmp_path: Path) -> None:
    run, first = locked(tmp_path, study(file="rubrics.yaml", derive=DERIVE))
    (tmp_path / "rubrics.yaml").unlink()
    plan = study(file="rubrics.yaml", derive=DERIVE)
    assert lock.fn(run, plan, tmp_path, *written(run)) == first


def fitted(folder: Path, tolerance: float = 1, **changes: Any) -> None:
    """One score of item j, whose scale is 0 to 10."""
    run = Warehouse.open(folder / "warehouse").run("one")
    (folder / "rubrics.yaml").write_text(RUBRICS)
    people = [rows.grading("r", "h", **{"score": 1.0, "rater_kind": "human", "item_id": "j"} | changes)]
    data = {Items: [item("j", "mine")], Responses: [rows.response("r", "j")], Gradings: people, Judgments: []}
    run.commit("ingest", "all", data)
    plan = studies.study(rubrics={"file": "rubrics.yaml"}, release={"tolerance": tolerance})
    items, _, people, _ = written(run)
    fit.fn(run, plan, folder, items, people, lock.fn(run, plan, folder, *written(run)).bundles)


@pytest.mark.parametrize("kind", ["human", "adjudication"])
def test_a_score_between_the_steps_does_not_fit(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=r"1 of 1 human scores lie between the steps .* gave response 'r' 0\.5"):
        fitted(tmp_path, score=0.5, rater_kind=kind)


@pytest.mark.parametrize("meant", [{"rater_kind": "replayed"}, {"signals": [("averaged", 1.0)]}])
def test_recorded_means_and_machines_may_lie_between(tmp_path: Path, meant: dict[str, Any]) -> None:
    fitted(tmp_path, score=0.5, **meant)


@pytest.mark.parametrize(("tolerance", "refused"), [(9, False), (9.5, False), (10, True), (17, True)])
def test_a_tolerance_as_wide_as_the_scale_does_not_fit(tmp_path: Path, tolerance: float, refused: bool) -> None:
    if refused:
        with pytest.raises(InputError, match=r"field 'release\.tolerance': .* no score could be wrong"):
            fitted(tmp_path, tolerance)
    else:
        fitted(tmp_path, tolerance)
