"""The end of a run in a terminal: three sentences, whose numbers add up, and then who agrees how far."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rubricflow.tasks.core.display.printed import PIPED, show_ending
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import NamedCount
from rubricflow.tasks.grading.report.raters import RankedRater
from rubricflow.tasks.grading.report.summary import TABLE, Ending, ending, opening, with_table
from rubricflow.tasks.grading.report.verdict import RunOutcome

REASONS = ("risk above the promise", "no promise", "weak evidence", "level unseen")


def rater(name: str, mean: float | None, pooled: float | None = None) -> RankedRater:
    both = (Estimate(v, v - 0.1, v + 0.1, n=200) if v is not None else Estimate(None) for v in (pooled, mean))
    return RankedRater(name, "", *both)


def rule(n: int, scope: str = "all") -> dict[str, Any]:
    return {"scope": scope, "n": n, "target": 0.05, "confidence": 0.9, "threshold": None, "refused": "no_promise"}


def outcome(released: int, review: list[int], unscored: int = 0) -> RunOutcome:
    reasons = tuple(NamedCount(name, count) for name, count in zip(REASONS, review, strict=False) if count)
    lost = (NamedCount("no reply", unscored),) if unscored else ()
    whole = released + sum(review) + unscored
    return RunOutcome("t", whole, released, sum(review), unscored, "", reasons, lost)


def told(found: RunOutcome, rules: list[dict[str, Any]], missed: int = 0) -> Ending:
    gates = [{"outcome": "fail"}] * missed + [{"outcome": "pass"}, {"outcome": "undecided"}]
    return ending("The headline.", found, rules, gates, "study.yaml")


@given(st.integers(0, 900), st.lists(st.integers(0, 900), max_size=4), st.integers(0, 90), st.integers(0, 9))
def test_all_that_is_not_released_is_counted_once(released: int, review: list[int], lost: int, missed: int) -> None:
    found = outcome(released, review, lost)
    state, sentences, *_ = told(found, [rule(100)], missed)
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", sentences[1])]
    waiting = sum(review) + lost
    assert numbers == ([] if not waiting else [waiting, *numbers[1:]])
    assert sum(numbers[1:]) == waiting
    assert state.startswith(f"{released} of {found.responses:,} released")
    assert ("gate" in state) == (missed > 0)
    assert all(sentence.endswith(".") for sentence in sentences)
    assert "rubricflow " in sentences[2]


def test_why_nothing_is_released_is_said_only_there() -> None:
    why = "Too few marked answers to promise anything: 45 needed, 12 here."
    assert why in told(outcome(0, [10])._replace(released_why=why), [rule(12)]).sentences[0]
    assert why not in told(outcome(1, [10])._replace(released_why=why), [rule(12)]).sentences[0]


def test_the_next_step_is_a_command_to_type() -> None:
    assert told(outcome(1, [2]), [rule(100)]).sentences[2].startswith("Next: rubricflow review study.yaml ")
    assert told(outcome(1, []), [rule(100)]).sentences[2].startswith("Next: rubricflow grades study.yaml ")
    assert told(outcome(0, [3]), []).sentences[2].startswith("Next: rubricflow next study.yaml ")


@pytest.mark.parametrize("rules", [[rule(100)], []])
@pytest.mark.parametrize("waiting", [[2], []])
def test_a_run_that_no_command_would_find_names_none(rules: list[dict[str, Any]], waiting: list[int]) -> None:
    end = ending("The headline.", outcome(1, waiting), rules, [], None)
    assert "rubricflow " not in end.sentences[2]


def test_a_run_in_a_bucket_is_not_sent_to_review() -> None:
    end = ending("The headline.", outcome(1, [2]), [rule(100)], [], "study.yaml", has_review=False)
    assert end.sentences[2].startswith("Next: rubricflow grades study.yaml ")
    assert "rubricflow review" not in end.sentences[2]


def test_every_row_has_the_one_measure_that_the_title_names() -> None:
    end = told(outcome(1, []), [rule(100)])
    found = with_table(end, (rater("judge", 0.6, 0.9), rater("length", None, 0.8)), "key", "")
    assert found.rows == (("judge", "0.60", "0.50 to 0.70", "200"), ("length", "–", "–", "0"))
    assert "mean over questions" in found.title
    pooled = with_table(end, (rater("judge", None, 0.9),), "key", "")
    assert pooled.rows == (("judge", "0.90", "0.80 to 1.00", "200"),)
    assert "all as one set" in pooled.title


def test_without_human_scores_there_is_no_table() -> None:
    assert with_table(told(outcome(0, [1]), []), (), "mean", "").rows == ()


def test_the_artifact_opens_with_the_verdict_and_no_name_is_markup() -> None:
    text = opening("run-1", "house", told(outcome(3, [1]), [rule(100)], 2)._replace(title="[x](http://y) <b>", rows=()))
    assert text.startswith("# 3 of 4 released, 2 gates missed\n")
    assert "rubricflow report run-1 --warehouse house --serve" in text
    spoilt = Ending("s", ("*a* <b>", "[c](d)", "`e`"), "t|u", ())
    assert "\\*a\\* \\<b\\>" in opening("r", "house", spoilt)
    assert "\\[c\\](d)" in opening("r", "house", spoilt)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=4))
@pytest.mark.parametrize("terminal", [80, None])
def test_any_name_reads_well_in_80_columns_and_in_a_pipe(terminal: int | None, names: list[str]) -> None:
    rows = [(name, "0.60", "0.50 to 0.70", "1,200") for name in names]
    with pytest.MonkeyPatch.context() as patch:
        import io

        out = io.StringIO()
        patch.setattr(sys, "stdout", out)
        patch.setattr(out, "isatty", lambda: terminal is not None, raising=False)
        patch.setenv("COLUMNS", str(terminal or 40))
        patch.setenv("TERM", "dumb")
        show_ending([names[0], "Two."], "Agreement", TABLE, rows)
    printed = out.getvalue()
    table = printed.split("Agreement\n", 1)[1].splitlines()
    assert printed.count("0.50 to 0.70") >= len(rows)
    assert all(cell_len(line) <= (terminal or PIPED) for line in table)
    lines = set("│┃━─┏┓└┘╭╮") - set("".join(names))  # a name may have one of its own
    assert not set(printed) & (lines | set("\x1b\x07\u202e"))
