"""A task run's name tells whether its stage was there already."""

from __future__ import annotations

from pathlib import Path

from rubricflow.tasks.core.contracts.tables.rubrics import Rubrics
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Warehouse


def test_a_stage_that_finds_its_work_done_says_so(tmp_path: Path) -> None:
    run = Warehouse.open(tmp_path / "house").run("r")
    name = named("lock")
    assert name(parameters={"run": run}) == "lock"
    run.commit("lock", "all", {Rubrics: []})
    assert name(parameters={"run": run}) == "lock (resumed)"
    assert named("judge")(parameters={"run": run}) == "judge"
