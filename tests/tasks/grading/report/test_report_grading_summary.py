"""The summary says what the metrics say, and a student's words never become markup."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from rubricflow.tasks.grading.report.summary import HEADER, gate_rows, markdown, show, summary


def row(metric: str, stage: str, value: float | None, slice_: str = "all", of: str = "all") -> dict[str, object]:
    a, b = ("one", "two") if stage == "human" else ("target", "m")
    common = {"metric": metric, "stage": stage, "rater_a": a, "rater_b": b, "slice": slice_, "value_of": of}
    return common | {"value": value, "low": 0.1, "high": 0.9, "n": 7, "unscored": 1, "clusters": 40}


def metrics(**where: str) -> pd.DataFrame:
    stages = {"raw": 0.2, "calibrated": 0.5, "human": 0.8}
    return pd.DataFrame([row("qwk", stage, value, **where) for stage, value in stages.items()])


def test_before_after_and_people_stand_side_by_side() -> None:
    (found,) = summary(metrics())
    cells = dict(zip(HEADER, found, strict=True))
    assert [cells[f"qwk {stage}"] for stage in ("raw", "calib.", "people")] == ["0.200", "0.500", "0.800"]
    assert (cells["n"], cells["unscored"], cells["qwk interval"]) == ("7", "1", "0.100…0.900")


def test_an_undefined_number_is_a_dash() -> None:
    (found,) = summary(metrics())
    assert dict(zip(HEADER, found, strict=True))["mae raw"] == "–"


def test_the_mean_over_items_comes_second() -> None:
    rows = [
        *metrics().to_dict("records"),
        row("standing_qwk_item_mean", "raw", 0.3),
        *metrics(slice_="item", of="a").to_dict("records"),
    ]
    assert [line[0] for line in summary(pd.DataFrame(rows))] == ["all", "mean over items", "item a"]


def test_figures_of_other_answers_are_a_dash() -> None:
    rows = metrics().assign(n=[7, 7, 6])
    over_items = [row("standing_qwk_item_mean", stage, 0.3) for stage in ("raw", "calibrated", "human")]
    over_items += [row("standing_qwk_item_mean", "calibrated", 0.9) | {"rater_b": "length"}]
    over_items += [row("standing_qwk_item_mean", "human", 0.9) | {"rater_a": "target", "rater_b": "m"}]
    one, mean = summary(pd.concat([rows, pd.DataFrame(over_items)]))
    shown = [dict(zip(HEADER, found, strict=True)) for found in (one, mean)]
    assert [shown[0][f"qwk {stage}"] for stage in ("raw", "calib.", "people")] == ["0.200", "0.500", "–"]
    assert [shown[1][f"qwk {stage}"] for stage in ("raw", "calib.", "people")] == ["0.300"] * 3


def gate(item: str, estimate: float | None, outcome: str, slice_: str = "item") -> dict[str, object]:
    ends = {"low": 0.1, "high": 0.9, "least": 0.7, "most": None, "clusters": 40, "n": 9}
    row = {"gate": "machine_qwk", "slice": slice_, "value_of": item, "estimate": estimate, "outcome": outcome}
    return row | ends | {"labels_needed": None, "if_missed": "mend"}


def test_a_gate_of_items_names_the_worst() -> None:
    items = [gate("a", 0.5, "fail"), gate("b", 0.2, "fail"), gate("c", 0.9, "pass"), gate("d", 0.1, "undecided")]
    (found,) = gate_rows(pd.DataFrame(items))
    assert found[0] == "machine_qwk: 4 items; worst b 0.200, a 0.500"
    (found,) = gate_rows(pd.DataFrame([items[2], items[3], gate("e", None, "unknown")]))
    assert found[0] == "machine_qwk: 3 items; worst d 0.100"
    (found,) = gate_rows(pd.DataFrame([items[2]]))
    assert found[0] == "machine_qwk: 1 items"


def test_a_gate_over_items_stands_beside_the_pooled_one() -> None:
    rows = gate_rows(pd.DataFrame([gate("all", 0.8, "pass", "all"), gate("mean over items", 0.4, "fail", "all")]))
    assert [line[0] for line in rows] == ["machine_qwk", "machine_qwk: mean over items"]


def test_no_metric_makes_an_empty_summary() -> None:
    assert summary(metrics().iloc[:0]) == []


def test_a_hostile_item_name_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    rows = summary(metrics(slice_="item", of="[red]x|y[/red]"))
    show(rows, [], {"run": "[bold]r"})
    shown = capsys.readouterr().out
    assert "[red]x|y[/red]" in shown.replace("\n", "")
    assert "[bold]r" in shown
    assert "x\\|y" in markdown("t", rows, [], {})


@pytest.mark.parametrize(("width", "narrow"), [(80, True), (160, False)])
def test_a_narrow_terminal_loses_statistics_and_no_digit(
    width: int, narrow: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(summary(metrics()), [], {})
    printed = capsys.readouterr().out
    assert all(cell in printed for cell in ("all", "0.100…0.900", "0.200", "0.500", "0.800"))
    assert ("in a wider terminal" in printed) == narrow
