"""The HTML report: what it says equals the tables, and what people wrote stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders.grading_scene import ANSWER, MANIFEST, NAMES, SCALE, STUDY, gates, made_run

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.display.page import Columns, Facts, Figure, Fold, Grid, Part, Section, Text
from rubricflow.tasks.core.display.page import rendered as page
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.grading.report.agreement import compared
from rubricflow.tasks.grading.report.answers import worst
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.gates import above_promise, broken_promises, use_section, wrong_by_coverage
from rubricflow.tasks.grading.report.view import Tables, View, needs_texts, view

BOUNDS = dict.fromkeys(NAMES, SCALE.bounds)

ANYWHERE = (
    "\u202e<script>alert(1)</script><img src=x onerror=alert(2)>\"'>&amp;{{ 7*7 }}{% raw %}</style>\x00\x1b[\ud800"
)


class Seen(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


def rendered(tables: Tables, **release: Any) -> str:
    return page(view(tables, STUDY | {"release": STUDY["release"] | release}, MANIFEST).page)


def section(shown: View, name: str) -> Section:
    (found,) = [section for section in shown.page.sections if section.id == name]
    return found


def flat(parts: Sequence[Part]) -> Iterator[Part]:
    """Every part, those inside others, too."""
    for part in parts:
        yield part
        if isinstance(part, Fold):
            yield from flat(part.parts)
        if isinstance(part, Columns):
            for column in part.columns:
                yield from flat(column)


def grids(found: Section) -> list[Grid]:
    return [part for part in flat(found.parts) if isinstance(part, Grid)]


def texts(found: Section) -> list[str]:
    return [plain(str(part.text)) for part in flat(found.parts) if isinstance(part, Text)]


@pytest.fixture(scope="module")
def run() -> Tables:
    return made_run()


@pytest.fixture(scope="module")
def shown(run: Tables) -> View:
    return view(run, STUDY, MANIFEST)


@pytest.fixture(scope="module")
def seen(shown: View) -> Seen:
    return Seen(page(shown.page))


def test_the_page_runs_and_fetches_nothing(seen: Seen) -> None:
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "audio", "video"}
    policy = [attrs["content"] for tag, attrs in seen.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    links = [attrs["href"] for tag, attrs in seen.elements if tag == "a"]
    assert all(link is not None and (link[0] == "#" or link == "data_docs/index.html") for link in links)
    assert not [name for _, attrs in seen.elements for name in attrs if name.startswith("on") or name == "src"]


def test_every_link_inside_the_page_has_its_target(seen: Seen) -> None:
    ids = [attrs["id"] for _, attrs in seen.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"] for tag, attrs in seen.elements if tag == "a" and str(attrs["href"])[0] == "#"} <= {
        f"#{one}" for one in ids
    }


def test_sections_come_in_the_order_of_an_evaluation_report(seen: Seen) -> None:
    ids = [attrs["id"] for tag, attrs in seen.elements if tag == "section"]
    assert ids == ["use", "answers", "agreement", "errors", "evidence", "raters", "made"]


def test_the_headline_says_what_the_tables_say(run: Tables, shown: View, seen: Seen) -> None:
    rows = run.counts["final"].to_pandas()
    whole = int(rows["n"].sum())
    released = int(rows.loc[rows["decided_by"] == "machine", "n"].sum())
    title = f"Release {released:,} of {whole:,} answers; people should grade the other {whole - released:,}."
    assert shown.page.title == shown.verdict.sentence == title
    assert title in seen.text
    assert (shown.verdict.released, sum(shown.verdict.waiting.values())) == (released, whole - released)
    gate = gates()[0]
    assert f"Of {gate['n']} held-out ones, 3.0% were (95% interval 2.1 to 3.9%)." in shown.page.lead
    assert shown.verdict.caution in seen.text


def test_the_first_table_has_people_first_and_never_leaves_words_out(run: Tables, shown: View) -> None:
    rows = [metric("standing_qwk_item_mean", name, stage, value) for name, stage, value in RANKED]
    ranked = view(replace(run, metrics=conform(Metrics, [*run.metrics.to_pylist(), *rows])), STUDY, MANIFEST)
    (columns,) = [part for part in ranked.page.parts if isinstance(part, Columns)]
    (grid,) = [part for part in columns.columns[0] if isinstance(part, Grid)]
    names = [Seen(str(line[0])).text for line in grid.rows]
    assert names == ["people with each other", "this judge", "second", "words alone"]
    values = [line[2].estimate.value for line in grid.rows if isinstance(line[2], Figure)]
    assert values == [0.9, 0.5, 0.6, 0.7]
    without = view(replace(run, metrics=conform(Metrics, rows[:2])), STUDY, MANIFEST).ranking
    assert [rater.agreement.value for rater in without.top] == [0.9, 0.5, None]
    assert without.sentence.endswith("people with each other 0.90, this judge 0.50.")
    few = rows[0] | {"n": 90}
    doubled = [few, few | {"rater_a": "target", "rater_b": "judge", "value": 0.4}, *rows[1:]]
    apart = view(replace(run, metrics=conform(Metrics, doubled)), STUDY, MANIFEST).ranking
    assert [rater.agreement.value for rater in apart.top] == [0.5, 0.6, 0.7]
    assert all(part in apart.doubles for part in ("90 answers", "0.90", "0.40"))
    assert view(replace(run, metrics=run.metrics.slice(0, 0)), STUDY, MANIFEST).ranking.sentence == ""


RANKED = [("people", "human", 0.9), ("judge", "calibrated", 0.5), ("text_only", "calibrated", 0.7)]
RANKED += [("length", "calibrated", 0.2), ("other:first", "calibrated", 0.4), ("other:second", "calibrated", 0.6)]


def metric(name: str, rater: str, stage: str, value: float) -> dict[str, Any]:
    row = {"metric": name, "rater_a": "people" if stage == "human" else "target", "rater_b": rater, "stage": stage}
    row |= {"slice": "all", "value_of": "all", "value": value, "low": value - 0.1, "high": value + 0.1, "n": 200}
    return row | {"unscored": 0, "resampled": "author", "clusters": 40, "undefined_draws": 0, "note": None}


def errors_of(item: str, estimate: float | None, high: float | None, n: int = 34) -> dict[str, Any]:
    named = {"gate": "released_errors", "slice": "item", "value_of": item, "most": 0.1}
    low = None if high is None else 0.0
    return gates()[1] | named | {"estimate": estimate, "high": high, "low": low, "n": n, "outcome": "undecided"}


HIDDEN = [
    errors_of("q1", 0.02, 0.09),
    errors_of("q2", 0.2059, 0.38),
    errors_of("q3", 0.05, 0.2),
    errors_of("q4", 0, 0.3),
]


def test_a_promise_for_the_set_names_the_questions_that_it_does_not_hold_for(run: Tables) -> None:
    assert [row["value_of"] for row in above_promise(HIDDEN)] == ["q2", "q3", "q4"]
    said = "On 1 question more released scores are wrong than promised: q2 (21% of 34)"
    assert plain(broken_promises(HIDDEN)) == said
    assert broken_promises(HIDDEN[2:]) == broken_promises([]) == ""
    assert above_promise([errors_of("q9", None, None, n=0)]) == []
    few = [errors_of("q8", 0.5, None, n=2), errors_of("q9", 0.1, None), errors_of("q7", None, None)]
    assert [row["value_of"] for row in above_promise([*few, *HIDDEN])] == ["q8", "q2", "q3", "q4"]
    assert "q8" in broken_promises(few)
    found = view(replace(run, verdicts=conform(Verdicts, [*gates(), *HIDDEN])), STUDY, MANIFEST)
    assert said in plain(Seen(page(found.page)).text)
    (table,) = [grid for grid in grids(section(found, "use")) if grid.header[:1] == ("Question",)]
    assert [plain(str(line[0])) for line in table.rows] == ["q2", "q3", "q4"]


def test_a_gate_of_items_is_one_thing_to_look_at_with_its_worst(run: Tables) -> None:
    lost = next(row for row in gates() if row["outcome"] == "fail" and row["slice"] == "item")
    lost |= {"gate": "length", "metric": "degradation_qwk", "value_of": "vacuum"}
    others = [lost] + [lost | {"value_of": f"item-{at}", "estimate": -0.3 - at / 10} for at in range(4)]
    found = view(replace(run, verdicts=conform(Verdicts, [*gates(), *others])), STUDY, MANIFEST)
    assert "item item-3: −0.60, wanted at least −0.10; missed in 4 more places" in plain(page(found.page))


def test_every_answer_of_the_facts_is_accounted_for(run: Tables, shown: View) -> None:
    (facts,) = [part for part in section(shown, "made").parts if isinstance(part, Facts)]
    said = dict(facts.facts)
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    whole = run.counts["set"].to_pylist()[0]["responses"]
    assert said["Answers"].startswith(f"{whole:,} to 8 questions by 150 authors; ")
    held_out = int(run.scores["target"].notna().sum())
    assert f"{whole:,}; {whole - held_out:,} in the calibration split" in said["With a human score"]
    assert f"{held_out:,} held out ({len(both):,} compared" in said["With a human score"]


def test_what_is_odd_about_the_answers_is_listed(shown: View) -> None:
    html = page(shown.page)
    assert "7: HTML is left in the text (`html: true` in the source takes it out)" in html
    assert "&lt;b&gt;r1&lt;/b&gt;" in html


def test_gates_stand_with_outcome_in_words_and_labels_to_decide(run: Tables, seen: Seen) -> None:
    for said in ("missed", "undecided", "not known", "met", "at least 0.70", "at least −5%", "+1,300"):
        assert said in seen.text
    shapes = [attrs for tag, attrs in seen.elements if tag == "svg" and attrs.get("class") == "shape"]
    assert len(shapes) == run.verdicts.num_rows


def test_both_counts_are_there_where_a_gate_counts_other_answers_than_the_head() -> None:
    (gate,) = [row for row in gates() if row["gate"] == "machine_qwk"]
    shown = {n: str(use_section([gate], [], Figures([]), [], "", "", n).parts[0]) for n in (137, gate["n"], 0)}
    assert "137" in shown[137]
    assert shown[gate["n"]] == shown[0] != shown[137]


def test_items_are_ordered_by_their_gap_to_people(run: Tables, shown: View) -> None:
    rows = {
        (row["value_of"], row["stage"]): row["value"]
        for row in run.metrics.to_pylist()
        if (row["metric"], row["slice"]) == ("qwk", "item")
    }
    gaps = sorted((rows[item, "human"] - rows[item, "calibrated"] for item in NAMES), reverse=True)
    items = compared(Figures(run.metrics.to_pylist()), "item")
    assert [row.gap for row in items] == pytest.approx(gaps)
    shown_items = grids(section(shown, "agreement"))[0]
    assert [row[0].text for row in shown_items.rows] == [row.name for row in items]
    assert items[0].name in section(shown, "agreement").title


def test_the_confusion_map_counts_every_compared_response(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    rounded = np.floor(both["target"] + 0.5).clip(0, 4)
    want = pd.crosstab(rounded, both["calibrated"]).reindex(index=range(5), columns=range(5), fill_value=0)
    table = page(shown.page).split('<table class="map">')[1].split("</table>")[0]
    found = [
        [int(n.replace("·", "0")) for n in re.findall(r"<td.*?>([\d·]+)</td>", row)] for row in table.split("<tr>")[2:]
    ]
    assert np.array_equal(found, want.to_numpy())


def test_the_surest_scores_are_wrong_as_often_as_counted_by_hand(run: Tables) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()].sort_values("risk")
    off = ((both["calibrated"] - both["target"]).abs() > 1).to_numpy()
    found = wrong_by_coverage(run.scores, BOUNDS, 1.0)
    assert [share for share, _ in found] == [0.25, 0.5, 0.75, 1.0]
    assert [rate for _, rate in found] == pytest.approx([off[: round(share * len(off))].mean() for share, _ in found])
    assert wrong_by_coverage(run.scores.assign(risk=math.nan), BOUNDS, 1.0) == []


def test_a_rule_says_what_alike_answers_are_worth(shown: View) -> None:
    worth = "Of 50 marked answers 41 would (worth 30 independent ones, as answers of an author are alike)"
    assert any(worth in text for text in texts(section(shown, "use")))


def test_the_worst_cases_are_the_largest_gaps_two_of_an_item(run: Tables, shown: View) -> None:
    gaps = run.scores.set_index("response_id").eval("abs(calibrated - target)")
    found = worst(run.scores, BOUNDS)
    assert set(found) <= set(needs_texts(run.scores, BOUNDS))
    articles = [part for part in flat(section(shown, "errors").parts) if "<article" in str(part)]
    assert len(found) == len([part for part in articles if not isinstance(part, Fold)]) == 6
    assert gaps[found[0]] == gaps.max()
    assert list(gaps[found]) == sorted(gaps[found], reverse=True)
    assert pd.Series(found).str.rsplit("-", n=1).str[0].value_counts().max() <= 2


def test_quotes_that_fail_are_struck_through_with_the_reason(run: Tables, shown: View, seen: Seen) -> None:
    quotes = re.findall(r"<q>.*?</q> (.*?)</span>", page(shown.page))
    assert {*quotes} == {"", "not in the text", "stands elsewhere in the text than cited, which does not count"}
    struck = [attrs for _, attrs in seen.elements if attrs.get("class") == "quote bad"]
    assert len(struck) == 2 * page(shown.page).count("<article")


def test_groups_that_are_too_small_are_not_shown() -> None:
    shown = view(made_run(items=1, each=120), STUDY, MANIFEST)
    (groups,) = [grid for grid in grids(section(shown, "errors")) if "language" in str(grid.header[:1])]
    states = {row[3].text: int(row[0].remark) for row in groups.rows}
    assert set(states) == {"undecided", "too few"}
    assert states["too few"] < 30 <= states["undecided"]
    assert [row[4] for row in groups.rows if row[3].text == "too few"] == [None]


PLAIN: dict[str, Any] = {"items": 2, "each": 60}


@cache
def plainly() -> Seen:
    return Seen(rendered(made_run(**PLAIN)))


@pytest.mark.parametrize("where", ["text", "item", "rater", "group"])
def test_what_people_wrote_is_text_wherever_it_stands(where: str) -> None:
    hostile = (
        PLAIN
        | {
            "text": {"text": ANYWHERE.encode("utf-8", "replace").decode() + ANSWER},
            "item": {"item_name": lambda at: f"{ANYWHERE[:-1]}{at}"},
            "rater": {"raters": ("anna", ANYWHERE[:-1])},
            "group": {"group": ("english", ANYWHERE[:-1])},
        }[where]
    )
    calm, found = plainly(), Seen(rendered(made_run(**hostile)))
    # Marks differ where the text does; every other element and attribute must be one of the page's own.
    allowed = {(tag, *sorted(attrs)) for tag, attrs in calm.elements} | {("span", "class"), ("b",)}
    assert {(tag, *sorted(attrs)) for tag, attrs in found.elements} <= allowed
    assert "<script>alert(1)</script>" in found.text
    assert "⟨U+202E⟩" in found.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", "".join(found.texts))


def test_replayed_replies_name_their_source(run: Tables, shown: View) -> None:
    told = {"identity": {"recordings": {"r": "replies recorded on 2026-11-22 from m"}}}
    replayed = view(run, STUDY, MANIFEST | told)
    assert replayed.sources == "replies recorded on 2026-11-22 from m"
    assert "The judge's replies were recorded on 2026-11-22 from m." in Seen(page(replayed.page)).text
    assert (shown.sources, view(run, STUDY, MANIFEST | {"identity": {}}).sources) == ("", "")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"raters": ()}, "no held-out response has a human score"),
        ({"raters": ("anna",)}, "a second one on the same responses would show how far people agree"),
        ({"scored": False}, "None of 45 answers has a score"),
        ({"releases": False}, "Release none of 45 answers: people should grade them all."),
        ({"author": False, "group": ()}, "the study names no group"),
        ({"items": 0, "raters": ()}, "There was nothing to score"),
        ({"scales": (Scale(min=0, max=3), Scale(min=0, max=60, step=0.5))}, "step of the scale off"),
    ],
    ids=[
        "nobody scored",
        "one person",
        "nothing scored",
        "nothing released",
        "no authors or groups",
        "empty",
        "two scales",
    ],
)
def test_what_is_missing_is_said(how: dict[str, Any], said: str) -> None:
    found = Seen(rendered(made_run(**({"items": 1 + ("scales" in how), "each": 45} | how))))
    assert said in found.text
    assert "nan" not in found.text.lower().replace("anna", "")
    assert " None" not in found.text.replace("None of", "").replace("None.", "")


def test_a_run_without_metrics_shows_no_number_in_their_place(run: Tables) -> None:
    bare = view(replace(run, metrics=run.metrics.slice(0, 0), verdicts=run.verdicts.slice(0, 0)), STUDY, MANIFEST)
    assert not any(isinstance(part, Grid) for part in flat(bare.page.parts))
    assert section(bare, "use").unknown
    assert "not known" in section(bare, "agreement").title


def test_long_lists_are_folded_and_the_page_stays_small() -> None:
    found = view(made_run(items=80, each=30, raters=("anna", "ben", "carla", "dora")), STUDY, MANIFEST)
    first, folded, *_ = [grid for grid in grids(section(found, "agreement")) if grid.header[:1] == ("Question",)]
    assert (len(first.rows), len(folded.rows)) == (12, 48)
    assert "20 more rows in the table <code>metrics</code>." in texts(section(found, "agreement"))
    assert len(page(found.page).encode()) < 700_000


def test_a_long_answer_makes_no_long_page() -> None:
    short, long = (
        rendered(made_run(items=1, each=90)),
        rendered(made_run(items=1, each=90, text=ANSWER + "x\n" * 100_000)),
    )
    assert len(long) < len(short) + 20_000
    assert "characters not shown" in long


def test_charts_have_finite_coordinates_inside_their_box(seen: Seen) -> None:
    marks = [
        (tag, attrs) for tag, attrs in seen.elements if tag in ("line", "circle", "rect", "text") and "%" in str(attrs)
    ]
    assert len(marks) > 60
    for tag, attrs in marks:
        for name in ("x", "x1", "x2", "cx"):
            if name in attrs and attrs.get("text-anchor") is None:
                assert 0 <= float(str(attrs[name]).removesuffix("%")) <= 100, (tag, attrs)
        assert all(
            math.isfinite(float(str(attrs[name]))) for name in ("y", "y1", "y2", "cy", "r", "height") if name in attrs
        )


def test_charts_say_in_words_what_they_draw(seen: Seen) -> None:
    charts = [attrs for tag, attrs in seen.elements if tag == "svg"]
    assert all(attrs.get("aria-hidden") == "true" or len(attrs.get("aria-label") or "") > 40 for attrs in charts)
    assert charts


def test_a_view_does_not_depend_on_the_order_of_rows(run: Tables, shown: View) -> None:
    turned = replace(run, metrics=run.metrics.take(list(range(run.metrics.num_rows))[::-1]))
    assert section(view(turned, STUDY, MANIFEST), "agreement") == section(shown, "agreement")


def test_a_page_can_be_written_whatever_a_student_sent() -> None:
    assert rendered(made_run(items=1, each=60, text="\u202e \x00 " + ANSWER)).encode("utf-8")
