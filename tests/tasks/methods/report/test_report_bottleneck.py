"""The report of graders: its figures are those of the tables, every section stands on its own, and all text is text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders.bottleneck_scene import NAMES, TEXT, made, model_rows, traced, trial, trial_rows
from builders.seen import Seen

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.bottleneck import Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.methods.report.graders import content, needs_texts, page

EVIL = '</blockquote></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e'
SECTIONS = ["graders", "interventions", "policies", "structure", "traces", "sweeps", "leakage", "made"]
TABLES = ("trials", "models", "interventions", "links", "traces")


def test_it_opens_with_the_takeaway_and_the_figures_behind_it_and_says_how_graders_were_made() -> None:
    html = page(made())
    seen = Seen(html)
    assert seen.ids == SECTIONS
    told = "REC-CBM grades with QWK 0.62 ± 0.02; vanilla CBM 0.59 ± 0.08: within the spread of seeds; "
    assert f"{told}one person agrees with another 0.72" in seen.words
    assert seen.after("Grade, QWK, REC-CBM", 3) == ["0.62", "± 0.02 over seeds", "people 0.72"]
    assert "3 trained graders, 3 seeds each, on 40 held-out responses." in seen.words
    assert seen.after("text encoders", 1) == ["\u2068minilm-123\u2069"]
    assert seen.after("encoder", 1) == ["frozen"]
    assert seen.after("exported", 1) == ["REC-CBM, seed 0, dddddddddddd"]
    assert "default-src 'none'" in html  # nothing is fetched
    assert "http" not in html.replace('http-equiv="', "")
    assert "@import" not in html
    assert "url(" not in html


@pytest.mark.parametrize(
    ("without", "gone"),
    [
        ("interventions", {"interventions", "policies"}),
        ("links", {"structure"}),
        ("traces", {"traces"}),
        ("trials", {"interventions", "policies", "structure", "sweeps", "leakage"}),
        ("models", {"traces"}),
    ],
)
def test_a_run_that_lacks_a_table_lacks_its_sections(without: str, gone: set[str]) -> None:
    whole = made()
    empty: pa.Table = getattr(whole, without).slice(0, 0)
    left = [section.id for section in content(replace(whole, **{without: empty})).sections]
    assert left == [name for name in SECTIONS if name not in gone]


def test_a_run_without_anything_has_a_page() -> None:
    view = made()
    html = page(replace(view, **{name: getattr(view, name).slice(0, 0) for name in TABLES}, texts={}))
    assert "No trained grader has an agreement with people on the test split" in html
    assert "0 trained graders" in html


def test_leakage_stands_beside_its_control() -> None:
    rows = [*trial_rows(), trial("rec_cbm", "leakage_task_control", 0.004)]
    assert "REC-CBM into the grade: 0.022 ± 0.010 nats; control without leakage: 0.004" in page(
        made(trials=conform(Trials, rows))
    )


def test_it_needs_the_texts_of_the_traces_that_it_shows() -> None:
    view = made()
    needed = needs_texts(view.traces, view.models)
    assert list(needed) == ["r2", "r4"]
    html = page(replace(view, texts=dict.fromkeys(needed, TEXT)))
    assert html.count('class="trace"') == len(needed)
    assert "1 of 4 traced grades with a human one are those that people gave" in html


def test_grades_without_human_ones_are_neither_right_nor_wrong() -> None:
    html = page(made(traces=conform(Traces, [row | {"human": None} for row in traced()])))
    assert "0 of 0 traced grades with a human one" in html
    assert html.count('class="trace"') == 1


def test_what_people_wrote_is_text() -> None:
    rows = [*trial_rows(), trial(EVIL, "task_qwk", 0.5, note=EVIL), trial("rec_cbm", "task_rps", None, note=EVIL)]
    html = page(made(EVIL, trials=conform(Trials, rows)))
    seen = Seen(html)
    assert not {"img", "script", "iframe", "link"} & set(seen.tags)
    assert seen.tags.count("style") == 1
    assert "49" not in "".join(word for word in seen.words if "7*7" in word)
    assert "\u202e" not in html
    assert any("<script>alert(1)</script>" in word for word in seen.words)


def test_graders_are_bars_with_the_spread_of_seeds_and_people_as_a_line() -> None:
    (drawing, *_) = next(section for section in content(made()).sections if section.id == "graders").drawings
    assert re.search(r'aria-label="Grade: QWK: [^"]* ± [^"]*; people [\d.]+"', drawing.svg)
    assert drawing.svg.count('class="hl"') == 1


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = Warehouse.open(tmp_path).run("one")
    responses: list[dict[str, Any]] = [
        {"response_id": name, "item_id": "i", "text": TEXT, "split": "test", "groups": {}}
        for name in ("r1", "r2", "r3", "r4")
    ]
    item = {"item_id": "i", "question": "", "key_elements": [], "type": "t", "rubric_id": "r"}
    found.commit("ingest", "all", {Items: [item], Responses: responses})
    found.commit("train", "all", {Trials: trial_rows(), Models: model_rows(), Traces: traced()})
    return found


@pytest.fixture
def asked(run: Run) -> Callable[..., list[dict[str, Any]]]:
    def rows(question: str, **parameters: str) -> list[dict[str, Any]]:
        answer = ask(run, question, parameters or None)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]

    return rows


def test_a_question_says_how_one_response_came_by_its_grade(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = asked("trace", response_id="r1")
    assert [row["criterion_id"] for row in rows][-1] == "bias"
    assert {row["criterion_id"] for row in rows} == {*NAMES, "bias"}
    sizes = [abs(row["contribution"]) for row in rows[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(row["contribution"] for row in rows) == pytest.approx(rows[0]["logit"])
    of = {row["criterion_id"]: row for row in rows}
    assert of["FC"]["looks_at"] == ["sequence", "of", "nodes"]
    assert (of["FC"]["level"], of["bias"]["level"]) == (2, None)


@pytest.mark.parametrize("value", ["'; DROP TABLE traces; --", "x\x00", "r1' OR 'a'='a"])
def test_a_hostile_response_id_is_only_a_value(asked: Callable[..., list[dict[str, Any]]], value: str) -> None:
    assert asked("trace", response_id=value) == []
    assert asked("label_history", response_id=value) == []


def test_a_question_sets_graders_side_by_side(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = [row for row in asked("graders") if row["metric"] == "task_qwk"]
    assert [row["method"] for row in rows] == ["human", "rec_cbm", "vanilla_cbm", "recorded-gpt", "plm"]
    assert (rows[1]["mean"], rows[1]["sd"], rows[1]["seeds"]) == (pytest.approx(0.62), pytest.approx(0.02), 3)
    assert rows[3]["sd"] is None
