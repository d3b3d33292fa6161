"""The page of two runs: its sentence, and what students wrote in it."""

from __future__ import annotations

import pytest

from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.grading.compared.task import AgreementGap, Figures, page

RUNS = ["run tiny-1, judged by replay", "run tiny-2, judged by embedded"]
EVIL = "</p><script>window.ran = 1</script>{{ 7 * 7 }}<img src=x onerror=alert(1)>"
ANSWER = {"response": "r1", "question": "Why?", "text": "So.", "a": "1", "b": "4", "people": ""}
SCALE = (0.0, 4.0, 1.0)


def row(
    pair: tuple[str, str], metric: str, value: float | None, part: str = "all", of: str = "all", n: int = 100
) -> dict[str, object]:
    ends = (None, None) if value is None else (value - 0.1, value + 0.1)
    return {"rater_a": pair[0], "rater_b": pair[1], "metric": metric, "value": value, "low": ends[0], "high": ends[1],
            "n": n, "clusters": 40, "slice": part, "value_of": of}  # fmt: skip


def figures(same: float = 0.5, item: str = "q1") -> Figures:
    of_pair = [row(("a", "b"), "exact", same), row(("a", "b"), "qwk", 0.8), row(("a", "b"), "bias", 0.0)]
    people = [row(("people", run), "qwk", 0.6) for run in "ab"]
    parts = [("item", item), ("item", "q2"), ("", "2"), ("class", "<b>red</b>")]
    of_parts = [row(("a", "b"), metric, 0.25, *part) for part in parts for metric in ("exact", "bias")]
    return {SCALE: [*people, *of_pair, *of_parts]}


def difference(low: float, estimate: float, high: float) -> AgreementGap:
    return AgreementGap("0 to 4", "qwk", estimate, low, high, 0.01, 100, "author", 40, None)


def drawn(
    answers: list[dict[str, str]], item: str = "q1", same: float = 0.5, told: list[AgreementGap] | None = None
) -> str:
    return rendered(page("tiny", RUNS, figures(same, item), told or [], answers, (0, 3)))


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ([difference(0.02, 0.1, 0.2)], "Run B agrees better with people"),
        ([difference(-0.2, -0.1, -0.02)], "Run A agrees better with people"),
        ([difference(-0.1, 0.1, 0.3)], "Which run agrees better with people cannot be told"),
        ([], "The runs give the same score to 50 of 100 answers"),
    ],
)
def test_the_sentence_goes_no_further_than_the_interval(told: list[AgreementGap], sentence: str) -> None:
    shown = page("tiny", RUNS, figures(), told, [], (0, 0))
    assert shown.title.startswith(sentence)


def test_what_students_wrote_is_text() -> None:
    answer = ANSWER | {"question": EVIL, "text": EVIL, "people": "2"}
    written = drawn([answer], EVIL)
    assert "<script" not in written
    assert "<img" not in written
    assert "<b>red" not in written
    assert "&lt;script&gt;" in written
    assert "2 by people" in written
    assert "{{ 7 * 7 }}" in written


def test_an_answer_without_peoples_score_and_runs_that_are_equal() -> None:
    assert 'class="h"' not in drawn([ANSWER])
    assert "Both runs give the same score to all 100 answers" in drawn([], same=1.0)
    assert "scored by B alone" in drawn([])
