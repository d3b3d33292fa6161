"""What a finished run prints and leaves in Prefect: a verdict, the next command, figures as in the tables."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.display.table import Table, markdown, show_sentences
from rubricflow.tasks.core.display.verdict import ReleaseVerdict
from rubricflow.tasks.grading.report.view import figure_tables, next_step, state


def found(released: int, waiting: int, by_people: int = 0) -> ReleaseVerdict:
    reasons = {"no promise": waiting} if waiting else {}
    return ReleaseVerdict("Release some.", "", "", released + waiting + by_people, by_people, released, 0, reasons)


@pytest.mark.parametrize(
    ("outcome", "missed", "said"),
    [
        (found(3, 1), 2, "3 of 4 released, 2 gates missed"),
        (found(0, 1, by_people=2), 0, "2 marked by people, 0 of 3 released"),
    ],
)
def test_the_state_of_a_run_is_a_few_words(outcome: ReleaseVerdict, missed: int, said: str) -> None:
    assert state(outcome, [{"outcome": "fail"}] * missed + [{"outcome": "undecided"}]) == said


RULE: list[dict[str, Any]] = [{"scope": "all"}]


def test_the_next_step_is_a_command_to_type() -> None:
    typed = [
        next_step(*given, "study.yaml").split("\n")[1]
        for given in ((found(1, 2), RULE), (found(1, 0), RULE), (found(0, 3), []))
    ]
    assert [line.split()[1] for line in typed] == ["review", "grades", "next"]
    assert all(line.startswith("  rubricflow ") for line in typed)


@pytest.mark.parametrize("rules", [RULE, []])
@pytest.mark.parametrize("waiting", [2, 0])
def test_a_run_that_no_command_would_find_names_none(rules: list[dict[str, Any]], waiting: int) -> None:
    assert "rubricflow " not in next_step(found(1, waiting), rules, None)


def test_a_run_in_a_bucket_is_not_sent_to_review() -> None:
    said = next_step(found(1, 2), RULE, "study.yaml", has_review=False)
    assert "\n  rubricflow grades study.yaml " in said
    assert "rubricflow review" not in said


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=200)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=4))
@pytest.mark.parametrize("width", [80, 120, None])
def test_a_terminal_breaks_sentences_between_words_alone(width: int | None, sentences: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO()
        patch.setattr(sys, "stdout", out)
        patch.setattr(out, "isatty", lambda: width is not None, raising=False)
        patch.setenv("COLUMNS", str(width or 40))
        show_sentences([*sentences, "one_path/of-many-parts " * 9])
    lines = out.getvalue().split("\n")
    assert not set(out.getvalue()) & set("\x1b\x07\u202e")
    assert "one_path/of-many-parts" in lines[-2]
    if width is None:
        assert lines[-2] == "one_path/of-many-parts " * 9
    else:
        assert all(len(line) <= width or " " not in line.strip() for line in lines)


def row(metric: str, stage: str, value: float | None, n: int = 7, of: str = "all") -> dict[str, Any]:
    a, b = ("one", "two") if stage == "human" else ("target", "m")
    common = {"metric": metric, "stage": stage, "rater_a": a, "rater_b": b, "value": value, "n": n, "clusters": 40}
    return common | {"low": None, "high": None, "slice": "all" if of == "all" else "item", "value_of": of}


STAGES = {"raw": 0.2, "calibrated": 0.5, "human": 0.8}


def test_machine_before_and_after_and_people_are_listed_the_whole_set_first() -> None:
    rows = [row("qwk", "calibrated", 0.5, of="q1"), *(row("qwk", stage, value) for stage, value in STAGES.items())]
    table, _ = figure_tables([*rows, row("qwk", "human", 0.9) | {"rater_a": "target"}, row("f1", "raw", 0.1)], [])
    assert [[str(cell) for cell in cells[:2]] + [str(cells[3])] for cells in table.rows] == [
        ["all", "qwk", "0.20"],
        ["all", "qwk", "0.50"],
        ["all", "qwk", "0.80"],
        ["item q1", "qwk", "0.50"],
    ]


def test_gates_stand_with_slice_bounds_and_what_to_do() -> None:
    gate = {"gate": "machine_qwk", "slice": "item", "value_of": "a", "estimate": 0.5, "low": 0.1, "high": 0.9, "n": 9}
    gate |= {"least": 0.7, "most": None, "outcome": "fail", "clusters": 40, "if_missed": "mend"}
    whole = gate | {"slice": "all", "value_of": "mean over items", "outcome": "pass"}
    _, table = figure_tables([], [gate, whole])
    assert [[str(cell) for cell in cells] for cells in table.rows] == [
        ["machine_qwk: item a", "fail", "0.50 [0.10, 0.90]", "0.7 to ", "9", "mend"],
        ["machine_qwk: mean over items", "pass", "0.50 [0.10, 0.90]", "0.7 to ", "9", ""],
    ]


def test_the_artifact_opens_with_the_verdict_and_no_name_is_markup() -> None:
    table = Table("t", "Agreement", ("slice",), [("item [red]x|y*",)])
    text = markdown("3 of 4 released", ["*a* <b>", "[c](d)"], [table], ["- run: `run-1`"])
    assert text.startswith("# 3 of 4 released\n")
    assert text.endswith("- run: `run-1`\n")
    for escaped in ("\\*a\\* &lt;b\\>", "\\[c\\](d)", "| item \\[red\\]x\\|y\\* |"):
        assert escaped in text
