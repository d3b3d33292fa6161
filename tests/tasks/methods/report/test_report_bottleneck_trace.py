"""A decision trace: the response is all there, bars add up to the logit, and whatever a student writes is text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
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
from rubricflow.tasks.core.contracts.tables.bottleneck import Models, Traces
from rubricflow.tasks.methods.bottleneck.model import Head
from rubricflow.tasks.methods.report.bottleneck import traces
from rubricflow.tasks.methods.report.bottleneck.traces import (
    REACH,
    AttendedSpan,
    ResponseTrace,
    attended_spans,
    grade_columns,
    picture,
    shaded,
    waterfall,
)
from rubricflow.tasks.methods.report.bottleneck.view import page, trace_pages

EVIL = '</p></mark></table><script>alert(1)</script><img src=x onerror="1"> & ]]> \x00\ud800\u202e\ufffe {{ 7*7 }}'
ARABIC = "القائمة سلسلة من العقد"


def token(start: int, end: int, weight: float = 0.1) -> dict[str, Any]:
    return {"start": start, "end": end, "weight": weight}


def trace(text: str = TEXT, response: str = "r1", names: dict[str, str] | None = None) -> ResponseTrace:
    table = conform(Traces, traced(text if len(text) > 20 else TEXT))
    head = traces.head_of(conform(Models, model_rows()))
    return traces.read(table, response, text if len(text) > 20 else TEXT, names or NAMES, head)


def seen(one: ResponseTrace) -> Seen:
    return Seen(picture(one))


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


@settings(max_examples=60)
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
    one = trace(response=response)
    added = [one.bias, *sorted((row["contribution"] for row in one.rows), key=lambda value: -abs(value))]
    *falls, total = waterfall(added, one.logit)
    scale = total.bar_width / abs(one.logit)
    assert falls[0].start == pytest.approx(total.start)
    assert all(a.end == b.start for a, b in pairwise(falls))
    assert falls[-1].end == pytest.approx(total.end)
    assert [fall.end - fall.start for fall in falls] == pytest.approx([value * scale for value in added])
    assert all(fall.bar_start == min(fall.start, fall.end) for fall in falls)
    assert min(fall.bar_start for fall in (*falls, total)) == 0
    assert max(fall.bar_start + fall.bar_width for fall in (*falls, total)) == pytest.approx(REACH)
    kinds = [kind for kind in seen(one).classes if kind in ("up", "down", "total")]
    assert kinds == [*("up" if value >= 0 else "down" for value in added), "total"]


def test_the_papers_trace_adds_up() -> None:
    """REC-CBM, appendix E.5: eight contributions make the logit 3.318 of grade 4, which has the probability 0.863."""
    added = {"R": 0.75, "CP": 0.65, "DU": 0.54, "EE": 0.49, "FC": 0.35, "FR": 0.35, "CC": 0.20, "TU": -0.01}
    rows = tuple(
        {"criterion_id": name, "contribution": value, "attention": [], "level_probabilities": [0.1, 0.2, 0.7]}
        | {"expected": 1.6, "share": 0.8, "corrected": 0.41}
        for name, value in added.items()
    )
    one = ResponseTrace("r", TEXT, {name: name for name in added}, rows, -0.002, 4.0, 0.863, 3.318, 3.0, 4.0, {})
    html = picture(one)
    falls = re.findall(r">([^<>]+)</span></td>", html)
    assert falls == ["0.00", "+0.75", "+0.65", "+0.54", "+0.49", "+0.35", "+0.35", "+0.20", "−0.01", "3.32"]
    assert "Grade 4, 86% sure" in Seen(html).of("grade")


def test_grades_are_what_the_head_makes_of_the_shares() -> None:
    shares = {"FC": 0.3, "CC": 0.8, "FR": 0.5}
    found = traces.grades(shares, traces.head_of(conform(Models, model_rows())))
    # A = (Ω + D⁻¹)⁻¹D⁻¹ of some Ω and D; the head is asked with A put into the weights instead.
    head = Head(WEIGHTS @ CORRECTION, OFFSET, temperature=TEMPERATURE)
    assert list(found) == list(SCORES)
    assert list(found.values()) == pytest.approx(head.probabilities(np.array(list(shares.values()))).tolist())
    assert traces.grades({"FC": 0.3}, traces.head_of(conform(Models, model_rows()))) == {}
    assert traces.grades(shares, None) == {}


def test_the_responses_shown_are_the_surest_right_and_wrong_and_the_least_decided() -> None:
    view = made()
    sure = dict(zip(view.traces["response_id"].to_pylist(), view.traces["probability"].to_pylist(), strict=True))
    score = dict(zip(view.traces["response_id"].to_pylist(), view.traces["score"].to_pylist(), strict=True))
    assert sorted(sure, key=lambda name: sure[name]) == ["r1", "r3", "r4", "r2"]
    people = {"r1": score["r1"], "r2": score["r2"] + 1, "r3": score["r3"], "r4": None}
    known, unknown = (
        conform(Traces, [row | {"human": of.get(row["response_id"])} for row in traced()]) for of in (people, {})
    )
    assert traces.choose_responses(known, view.models) == {
        "r3": "the surest of the right grades",
        "r2": "the surest of the wrong grades",
        "r4": "the least decided grade",  # 41% against 39%; r1 has 40% against 32%
    }
    assert list(traces.choose_responses(unknown, view.models)) == ["r4"]
    assert traces.choose_responses(view.traces.slice(0, 0), view.models) == {}


def test_a_margin_is_over_all_grades_where_the_head_is_known() -> None:
    """Of p = (.5, .5, 0) and (.4, .3, .3) the first is decided least, though it is surer."""
    head = {"criteria": ["FC"], "correction": [[1.0]], "scores": [0, 1, 2], "temperature": 1.0}
    head |= {"bias": np.log([0.4, 0.3, 0.3]).tolist(), "weights": np.log([[1.25], [5 / 3], [1e-6]]).tolist()}
    rows = [
        {"response_id": name, "criterion_id": "FC", "share": share, "contribution": 0.0, "attention": [], "score": 0.0}
        | {"probability": sure, "logit": 0.0}
        for name, share, sure in (("even", 1.0, 0.5), ("spread", 0.0, 0.4))
    ]
    models = conform(Models, [model_rows()[0] | {"head": json.dumps(head)}])
    table = conform(Traces, rows)
    assert list(traces.choose_responses(table, models)) == ["even"]
    assert list(traces.choose_responses(table, models.slice(0, 0))) == ["spread"]


@pytest.mark.parametrize("text", [EVIL, ARABIC * 3, "字" * 90, "x" * 5000, "\n" * 30 + "word", TEXT * 200])
def test_whatever_is_written_is_text_inside_the_picture(text: str) -> None:
    one = trace(text, names=dict.fromkeys(NAMES, EVIL))
    html = picture(one)
    known = "div p span bdi b i small mark table thead tbody tfoot tr th td"
    assert {tag for tag, _ in Seen(html).elements} <= set(known.split())
    assert not [name for _, attrs in Seen(html).elements for name in attrs if name.startswith("on") or "href" in name]
    assert "\u202e" not in html
    assert html.count("⟨U+202E⟩") >= len(NAMES)


def test_an_uncorrected_grader_without_a_head_has_a_picture() -> None:
    rows = [row | {"corrected": None, "runner_up": None, "human": None} for row in traced()]
    one = traces.read(conform(Traces, rows), "r1", TEXT, NAMES)
    shown = seen(one)
    assert shown.of("n").count("–") == len(NAMES)
    assert "no human grade" in shown.words
    assert "most" in shown.classes  # of the levels
    assert list(grade_columns(one)) == []


@pytest.mark.parametrize("count", [2, 16, 61])
def test_of_many_grades_only_those_that_matter_are_labelled(count: int) -> None:
    likely = {float(score): 1 / count for score in range(count)}
    one = ResponseTrace("r", TEXT, {}, (), 1.0, 0.0, 1 / count, 1.0, 5.0, 1.0, likely)
    columns = list(grade_columns(one))
    assert [column.share for column in columns] == list(likely.values())
    named = [column.name for column in columns if column.name]
    assert named == ([str(score) for score in range(count)] if count <= 16 else ["0", "1", "5"])
    assert [column.kind for column in columns[:3]] == ["most", "people", ""][:count]


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
