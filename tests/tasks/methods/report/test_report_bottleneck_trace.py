"""A decision trace: the response is all there, bars add up to the logit, and whatever a student writes is text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from builders.bottleneck_scene import (
    CORRECTION,
    NAMES,
    OFFSET,
    SCORES,
    TEMPERATURE,
    TEXT,
    WEIGHTS,
    made,
    model_rows,
    traced,
)
from builders.html_scene import Seen
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.bottleneck import Traces
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.methods.bottleneck.model import Head
from rubricflow.tasks.methods.report import traces
from rubricflow.tasks.methods.report.graders import page, trace_pages
from rubricflow.tasks.methods.report.traces import (
    REACH,
    AttendedSpan,
    attended_spans,
    by_response,
    choose_responses,
    columns,
    picture,
    shaded,
    waterfall,
)

EVIL = '</p></mark></table><script>alert(1)</script><img src=x onerror="1"> & ]]> \x00\ud800\u202e\ufffe {{ 7*7 }}'
ARABIC = "القائمة سلسلة من العقد"


def token(start: int, end: int, weight: float = 0.1) -> dict[str, Any]:
    return {"start": start, "end": end, "weight": weight}


HEAD = json.loads(model_rows()[0]["head"])


def rows_of(response: str, text: str = TEXT) -> Mapping[str, Row]:
    return by_response(conform(Traces, traced(text)))[response]


def shown(text: str = TEXT, response: str = "r1", names: dict[str, str] | None = None) -> str:
    long = text if len(text) > 20 else TEXT
    return picture(rows_of(response, long), long, names or NAMES, HEAD)


def test_a_token_goes_to_the_concept_that_weighs_it_most_and_neighbours_are_joined() -> None:
    text = "one two three four"
    attention = {1: [token(0, 3, 0.2), token(4, 7, 0.3)], 2: [token(4, 7, 0.1), token(8, 13, 0.2)], 3: [token(14, 18)]}
    assert attended_spans(text, attention) == [
        AttendedSpan(0, 7, 1, 0.3),
        AttendedSpan(8, 13, 2, 0.2),
        AttendedSpan(14, 18, 3, 0.1),
    ]


def test_words_apart_are_not_joined() -> None:
    assert [one[:2] for one in attended_spans("one two three", {1: [token(0, 3), token(8, 13)]})] == [(0, 3), (8, 13)]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 4), st.floats(0, 1)), max_size=25))
def test_what_is_looked_at_never_overlaps_and_comes_from_tokens(drawn: list[tuple[int, int, int, float]]) -> None:
    text = "ab, cd. " * 5
    attention: dict[int, list[dict[str, Any]]] = {}
    for start, end, number, weight in drawn:
        attention.setdefault(number, []).append(token(start, end, weight))
    found = attended_spans(text, attention)
    assert all(a.end <= b.start for a, b in pairwise(found))
    for one in found:
        starts = {at["start"] for at in attention[one.number]}
        assert one.start in starts
        assert one.end in {at["end"] for at in attention[one.number]}
    heaviest = max((row for row in drawn if row[0] < row[1]), key=lambda row: row[3], default=None)
    if heaviest and [row[3] for row in drawn].count(heaviest[3]) == 1:
        assert any(one.number == heaviest[2] and one.start <= heaviest[0] < heaviest[1] <= one.end for one in found)


def test_a_response_is_shaded_by_weight_and_each_shade_ends_with_its_concepts_number() -> None:
    attention = {1: [token(0, 3, 0.3), token(4, 7, 0.29)], 2: [token(8, 13, 0.15)], 3: [token(14, 18, 0.01)]}
    assert shaded("one two three four\r\nfive", attention) == (
        '<mark class="w3">one two<b>1</b></mark> <mark class="w2">three<b>2</b></mark> '
        '<mark class="w1">four<b>3</b></mark>\nfive'
    )


def test_a_response_that_nothing_looks_at_has_no_shade() -> None:
    assert shaded("a < b", {1: []}) == "a &lt; b"
    assert shaded("a < b", {1: [token(0, 1, 0.0)]}) == '<mark class="w1">a<b>1</b></mark> &lt; b'


def test_a_long_response_is_cut_outside_of_what_is_looked_at() -> None:
    text = "a few words more. " * 3000 + "the end counts" + " and on." * 3000
    start = text.index("the end counts")
    shown = shaded(text, {2: [token(start, start + 14, 0.5)]})
    assert "the end counts<b>2</b>" in shown
    assert shown.count("not shown]") == 2
    assert len(shown) < 2000


@pytest.mark.parametrize("response", ["r1", "r2", "r3", "r4"])
def test_the_bars_lead_from_nothing_to_the_logit(response: str) -> None:
    rows = rows_of(response)
    concepts = sorted((rows[name]["contribution"] for name in NAMES), key=lambda value: -abs(value))
    added, logit = [rows["bias"]["contribution"], *concepts], rows["bias"]["logit"]
    *falls, total = waterfall(added, logit)
    scale = total.bar_width / abs(logit)
    assert falls[0].start == pytest.approx(total.start)
    assert all(a.end == b.start for a, b in pairwise(falls))
    assert falls[-1].end == pytest.approx(total.end)
    assert [fall.end - fall.start for fall in falls] == pytest.approx([value * scale for value in added])
    assert all(fall.bar_start == min(fall.start, fall.end) for fall in falls)
    assert min(fall.bar_start for fall in (*falls, total)) == 0
    assert max(fall.bar_start + fall.bar_width for fall in (*falls, total)) == pytest.approx(REACH)
    classes = Seen(shown(response=response)).classes
    kinds = [kind for kind in classes if kind in ("up", "down", "total")]
    assert kinds == [*("up" if value >= 0 else "down" for value in added), "total"]


def test_the_papers_trace_adds_up() -> None:
    """REC-CBM, appendix E.5: eight contributions make the logit 3.318 of grade 4, which has the probability 0.863."""
    added = {"R": 0.75, "CP": 0.65, "DU": 0.54, "EE": 0.49, "FC": 0.35, "FR": 0.35, "CC": 0.20, "TU": -0.01}
    first = {"response_id": "r", "score": 4.0, "probability": 0.863, "logit": 3.318, "runner_up": 3.0, "human": 4.0}
    concept = {"attention": [], "level_probabilities": [0.1, 0.2, 0.7], "expected": 1.6, "share": 0.8, "corrected": 0.4}
    rows = {
        name: first | concept | {"criterion_id": name, "contribution": value}
        for name, value in (added | {"bias": -0.002}).items()
    }
    size = len(added)
    head = {"criteria": [*added], "correction": np.eye(size).tolist(), "weights": np.zeros((2, size)).tolist()}
    head |= {"bias": [0.0, 0.0], "scores": [3.0, 4.0], "temperature": 1.0}
    html = picture(rows, TEXT, {name: name for name in added}, head)
    falls = re.findall(r">([^<>]+)</span></td>", html)
    assert falls == ["0.00", "+0.75", "+0.65", "+0.54", "+0.49", "+0.35", "+0.35", "+0.20", "−0.01", "3.32"]
    assert "Grade 4, 86% sure" in Seen(html).of("grade")


def test_grades_are_what_the_head_makes_of_the_shares() -> None:
    found = traces.grades(rows_of("r3"), HEAD)
    # A = (Ω + D⁻¹)⁻¹D⁻¹ of some Ω and D; the head is asked with A put into the weights instead.
    head = Head(WEIGHTS @ CORRECTION, OFFSET, temperature=TEMPERATURE)
    assert list(found) == list(SCORES)
    assert list(found.values()) == pytest.approx(head.probabilities(np.array([0.45, 0.4, 0.5])).tolist())


def test_the_responses_shown_are_the_surest_right_and_wrong_and_the_least_decided() -> None:
    view = made()
    sure = dict(zip(view.traces["response_id"].to_pylist(), view.traces["probability"].to_pylist(), strict=True))
    score = dict(zip(view.traces["response_id"].to_pylist(), view.traces["score"].to_pylist(), strict=True))
    assert sorted(sure, key=lambda name: sure[name]) == ["r1", "r3", "r4", "r2"]
    people = {"r1": score["r1"], "r2": score["r2"] + 1, "r3": score["r3"], "r4": None}
    known, unknown = (
        conform(Traces, [row | {"human": of.get(row["response_id"])} for row in traced()]) for of in (people, {})
    )
    assert choose_responses(by_response(known), HEAD) == {
        "r3": "the surest of the right grades",
        "r2": "the surest of the wrong grades",
        "r4": "the least decided grade",  # 41% against 39%; r1 has 40% against 32%
    }
    assert list(choose_responses(by_response(unknown), HEAD)) == ["r4"]


def test_a_margin_is_over_all_grades() -> None:
    """Of p = (.5, .5, 0) and (.4, .3, .3) the first is decided least, though it is surer."""
    head = {"criteria": ["FC"], "correction": [[1.0]], "scores": [0, 1, 2], "temperature": 1.0}
    head |= {"bias": np.log([0.4, 0.3, 0.3]).tolist(), "weights": np.log([[1.25], [5 / 3], [1e-6]]).tolist()}
    rows = {
        name: {"FC": {"share": share, "probability": sure, "human": None}}
        for name, share, sure in (("even", 1.0, 0.5), ("spread", 0.0, 0.4))
    }
    assert list(choose_responses(rows, head)) == ["even"]


@pytest.mark.parametrize("text", [EVIL, ARABIC * 3, "字" * 90, "x" * 5000, "\n" * 30 + "word", TEXT * 200])
def test_whatever_is_written_is_text_inside_the_picture(text: str) -> None:
    html = shown(text, names=dict.fromkeys(NAMES, EVIL))
    known = "div p span bdi b i small mark table thead tbody tfoot tr th td"
    assert {tag for tag, _ in Seen(html).elements} <= set(known.split())
    assert not [name for _, attrs in Seen(html).elements for name in attrs if name.startswith("on") or "href" in name]
    assert "\u202e" not in html
    assert html.count("⟨U+202E⟩") >= len(NAMES)


def test_an_uncorrected_grader_has_a_picture() -> None:
    rows = {name: {**row, "corrected": None, "runner_up": None, "human": None} for name, row in rows_of("r1").items()}
    seen = Seen(picture(rows, TEXT, NAMES, HEAD))
    assert seen.of("n").count("–") == len(NAMES)
    assert "no human grade" in seen.words


@pytest.mark.parametrize("count", [2, 16, 61])
def test_of_many_grades_only_those_that_matter_are_labelled(count: int) -> None:
    likely = {float(score): 1 / count for score in range(count)}
    found = columns(likely, 0.0, 1.0)
    assert [column.share for column in found] == list(likely.values())
    named = [column.name for column in found if column.name]
    assert named == ([str(score) for score in range(count)] if count <= 16 else ["0", "1"])
    assert [column.kind for column in found[:3]] == ["most", "people", ""][:count]


def contrast(first: str, second: str) -> float:
    """WCAG 2.2: (L1 + 0.05)/(L2 + 0.05)."""

    def light(colour: str) -> float:
        digits = colour.removeprefix("#")
        parts = [
            int(two, 16) / 255
            for two in re.findall("..", digits if len(digits) == 6 else re.sub("(.)", r"\1\1", digits))
        ]
        linear: Iterable[float] = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return float(np.dot([0.2126, 0.7152, 0.0722], list(linear)))

    high, low = sorted((light(first), light(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(first: str, second: str, share: float) -> str:
    """So much of the first colour over the second."""
    pairs = zip(*(re.findall("..", colour.removeprefix("#")) for colour in (first, second)), strict=True)
    return "#" + "".join(f"{round(int(a, 16) * share + int(b, 16) * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("at", [0, 1])
def test_words_can_be_read_on_every_shade(at: int) -> None:
    """at: 0 on light, 1 on dark ground."""
    css = page(made())
    ink, paper, machine = (re.findall(rf"--{name}: (#\w+);", css)[at] for name in ("ink", "bg", "machine"))
    paper = "#ffffff" if paper == "#fff" else paper
    shades = [int(share) / 100 for share in re.findall(r"\.w\d \{ background: color-mix\(in srgb, \S+ (\d+)%", css)]
    assert len(shades) == 3
    assert all(contrast(ink, mixed(machine, paper, share)) >= 4.5 for share in (0.0, *shades))


def test_each_trace_of_the_page_is_a_page_alone() -> None:
    pages = trace_pages(made())
    assert set(pages) == {"r2", "r4"}
    for response, html in pages.items():
        assert f"Decision trace: \u2068{response}\u2069" in Seen(html.removeprefix("<!doctype html>\n")).titles
        assert "default-src 'none'; style-src 'unsafe-inline'" in html
        assert not re.search(r"<script|<link|url\(|@import|src=|href=", html)
