"""Where few clusters were resampled every report and the terminal say so, and how many; elsewhere they say nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from builders import annotation_scene, bottleneck_scene, edit_scene, grading_scene, rewards_scene

from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.table import Cell, Table, markdown, show
from rubricflow.tasks.grading.evaluate.experiment.tables import page
from rubricflow.tasks.grading.report.view import figure_tables, view
from rubricflow.tasks.methods.report.arms import page as policy_page
from rubricflow.tasks.methods.report.graders import page as grader_page
from rubricflow.tasks.people.report.view import page as annotation_page
from rubricflow.tasks.rewards.report.rewards import page as reward_page


def counted(table: pa.Table, column: str, count: int) -> pa.Table:
    """The table with this count in every row of a column."""
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(at), pa.array([count] * len(table), table.schema.field(at).type))


def of_run(clusters: int) -> str:
    made = grading_scene.made_run(items=2, each=60)
    few = {name: counted(getattr(made, name), "clusters", clusters) for name in ("metrics", "verdicts")}
    return rendered(view(replace(made, **few), grading_scene.STUDY, grading_scene.MANIFEST).page)


def of_annotation(responses: int) -> str:
    made = annotation_scene.made()
    return annotation_page(replace(made, agreements=counted(made.agreements, "n", responses)))


def of_policies(responses: int) -> str:
    made = edit_scene.made()
    few = {name: counted(getattr(made, name), "n", responses) for name in ("metrics", "differences")}
    rules = counted(counted(made.faithfulness, "n", responses), "in_rubric_n", responses)
    return policy_page(replace(made, **few, faithfulness=rules))


def of_graders(responses: int) -> str:
    made = bottleneck_scene.made()
    return grader_page(replace(made, interventions=counted(made.interventions, "n", responses)))


def of_rewards(items: int) -> str:
    made = rewards_scene.made()
    return reward_page(replace(made, diagnostics=counted(made.diagnostics, "clusters", items)))


def experiment(clusters: int) -> list[Table]:
    return [Table("t", "T", ("arm", "QWK"), (("A", Cell(0.5, 0.4, 0.6, ends="interval", clusters=clusters)),))]


def of_experiment(clusters: int) -> str:
    return page("e", "", experiment(clusters), {}, False)


def of_markdown(clusters: int) -> str:
    return markdown("e", [], experiment(clusters), [])


REPORTS = [of_run, of_annotation, of_policies, of_graders, of_rewards, of_experiment, of_markdown]


@pytest.mark.parametrize("report", REPORTS)
def test_intervals_of_few_are_marked_and_explained(report: Callable[[int], str]) -> None:
    text = report(19)
    assert text.count("†") >= 2
    assert "fewer than 20 authors, responses or items (here 19 at the least)" in text


@pytest.mark.parametrize("report", REPORTS)
def test_of_twenty_nothing_is_said(report: Callable[[int], str]) -> None:
    assert "†" not in report(20)


@pytest.mark.parametrize(("clusters", "mark"), [(10, "†"), (20, ""), (None, "")])
def test_the_terminal_marks_them(clusters: int | None, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"rater_a": "target", "metric": "qwk", "stage": "calibrated", "slice": "all", "value_of": "all"}
    ends = {"value": 0.5, "low": 0.1, "high": 0.9, "n": 90, "unscored": 0, "clusters": clusters}
    asked = {"gate": "machine_qwk", "estimate": 0.5, "least": 0.7, "most": None, "if_missed": "", "outcome": "fail"}
    show(figure_tables([row | ends], [row | ends | asked]))
    assert f"[0.10, 0.90]{mark}" in capsys.readouterr().out
    show(experiment(clusters or 20))
    assert ("(here 10 at the least)" in capsys.readouterr().out) == bool(mark)
