"""The HTML report: what it says equals the tables, and what people wrote stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders.grading_scene import ANSWER, MANIFEST, NAMES, SCALE, STUDY, gates, made_run

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import Verdicts
from rubricflow.tasks.core.display.page import rendered as page
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.core.display.section import Columns, Fold, Grid, Keys, Part, Section, Text
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.agreement import compared
from rubricflow.tasks.grading.report.answers import Cases, worst
from rubricflow.tasks.grading.report.distribution import level_bars, panels
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.provenance import funnel, labelled_funnel
from rubricflow.tasks.grading.report.release import above_promise_sentence, coverage
from rubricflow.tasks.grading.report.verdict import headline, outcome
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
    first = "verdict data people agreement distribution true-score errors groups"
    assert ids == f"{first} raters calibration routing evidence stability cost checks limits".split()


def test_the_headline_says_what_the_tables_say(run: Tables, shown: View, seen: Seen) -> None:
    rows = run.counts["responses"].to_pandas()
    released = int(rows.loc[rows["route"] == "release", "n"].sum())
    (wrong,) = [row for row in run.metrics.to_pylist() if row["metric"] == "beyond_tolerance"]
    assert shown.page.title.startswith(f"{released:,} of {int(rows['n'].sum()):,} scores may be released")
    assert f"{100 * wrong['value']:.1f}% of such scores" in shown.page.title
    assert shown.page.title in seen.text
    assert (shown.outcome.released, shown.outcome.review + shown.outcome.unscored) == (
        released,
        int(rows["n"].sum()) - released,
    )


@pytest.mark.parametrize(
    ("value", "high", "said"),
    [
        (0.02, 0.04, "within the 5% promised."),
        (0.04, 0.08, "too few to be sure"),
        (0.07, 0.09, "above the 5% promised."),
    ],
)
def test_the_headline_says_whether_the_promise_is_kept(value: float, high: float, said: str) -> None:
    found = outcome([{"scored": True, "route": "release", "by_people": False, "n": 10}], "")
    assert said in headline(found, Estimate(value, 0.01, high, n=100), "are off", 0.05, 100)


def errors_of(item: str, estimate: float, high: float, n: int = 34) -> dict[str, Any]:
    named = {"gate": "released_errors", "slice": "item", "value_of": item, "most": 0.1}
    return gates()[0] | named | {"estimate": estimate, "high": high, "low": 0.0, "n": n, "outcome": "undecided"}


HIDDEN = [
    errors_of("q1", 0.02, 0.09),
    errors_of("q2", 0.2059, 0.38),
    errors_of("q3", 0.05, 0.2),
    errors_of("q4", 0, 0.3),
]


def test_a_promise_for_the_set_names_the_items_it_does_not_hold_for() -> None:
    wrong = "On 1 question more are wrong than promised: q2 (21% of 34)."
    unsure = "taken alone, too few were checked to be sure of it (34 released scores each)."
    assert plain(above_promise_sentence(HIDDEN)) == f"{wrong} For 2 other questions {unsure}"
    assert plain(above_promise_sentence(HIDDEN[1:2])) == wrong
    assert above_promise_sentence(HIDDEN[2:]) == f"For 2 questions {unsure}"
    assert above_promise_sentence(HIDDEN[:1]) == above_promise_sentence([]) == ""
    assert above_promise_sentence([errors_of("q9", 0.0, 0.0, n=0)]) == ""


def test_the_page_says_so_in_the_headline_and_lists_them(run: Tables) -> None:
    found = view(replace(run, verdicts=conform(Verdicts, [*gates(), *HIDDEN])), STUDY, MANIFEST)
    assert plain(found.page.lead).endswith("(34 released scores each).")
    assert "q2 (21% of 34)" in plain(found.page.lead)
    above = [text for text in texts(section(found, "routing")) if "promised)." in text]
    assert [text.split(":")[0] for text in above] == [
        "<strong>q2</strong>",
        "<strong>q3</strong>",
        "<strong>q4</strong>",
    ]
    text = Seen(page(found.page)).text
    assert (
        "21% of 34 released held-out scores are more than one point from the human score "
        "(95% interval 0 to 38%; 10% promised)" in text
    )


def test_a_gate_of_items_is_one_thing_to_look_at_with_its_worst(run: Tables) -> None:
    lost = next(row for row in gates() if row["outcome"] == "fail" and row["slice"] == "item")
    others = [lost | {"value_of": f"item-{at}", "estimate": -0.3 - at / 10} for at in range(4)]
    found = view(replace(run, verdicts=conform(Verdicts, [*gates(), *others])), STUDY, MANIFEST)
    assert re.search("item item-3: −0.60[^<]*and on 4 more", plain(page(found.page)))


def test_no_pooled_agreement_stands_without_its_mean_over_items(run: Tables, shown: View) -> None:
    rows = {(row["metric"], row["stage"]): row["value"] for row in run.metrics.to_pylist() if row["slice"] == "all"}
    (keys,) = [part for part in shown.page.parts if isinstance(part, Keys)]
    names = [key.name for key in keys.figures]
    assert names[:2] == ["Agreement (QWK)", "Agreement (QWK, mean over items)"]
    assert f"({rows['qwk_item_mean', 'human']:.2f} in the mean over items)" in section(shown, "people").title
    assert f"({rows['qwk_item_mean', 'calibrated']:.2f} in the mean over items)" in section(shown, "calibration").title
    assert [name for name in names if "QWK" in name] == names[:2]


def test_key_figures_are_those_of_the_released_scores(run: Tables, shown: View) -> None:
    rows = {(row["metric"], row["stage"]): row["value"] for row in run.metrics.to_pylist() if row["slice"] == "all"}
    (keys,) = [part for part in shown.page.parts if isinstance(part, Keys)]
    found = {key.name: (Seen(key.value).text, Seen(key.below[1]).text) for key in keys.figures}
    for name, title in (("qwk", "Agreement (QWK)"), ("mae", "Mean absolute error, points")):
        assert found[title] == (f"{rows[name, 'released']:.2f}", f"two people {rows[name, 'human']:.2f}")


def test_every_response_of_the_funnel_is_accounted_for(run: Tables, shown: View) -> None:
    responses = run.counts["responses"].to_pylist()
    read, scored, released = (count for _, count, _, _ in funnel(responses))
    assert read - scored == sum(reason.count for reason in shown.outcome.unscored_reasons)
    assert scored - released == sum(reason.count for reason in shown.outcome.review_reasons)
    labelled, held_out, compared, _ = (count for _, count, _, _ in labelled_funnel(responses))
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    assert (held_out, compared) == (int(run.scores["target"].notna().sum()), len(both))
    assert labelled == read


def test_what_is_odd_about_the_answers_is_listed(shown: View) -> None:
    html = page(shown.page)
    assert "7: HTML is left in the text (`html: true` in the source takes it out)" in html
    assert "&lt;b&gt;r1&lt;/b&gt;, …" in html


def test_gates_stand_with_outcome_in_words_and_labels_to_decide(run: Tables, seen: Seen) -> None:
    for said in ("missed", "undecided", "not known", "met", "at least 0.70", "at least −5%", "+1,300"):
        assert said in seen.text
    shapes = [attrs for tag, attrs in seen.elements if tag == "svg" and attrs.get("class") == "shape"]
    assert len(shapes) == run.verdicts.num_rows


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


def test_bars_are_the_shares_of_each_persons_marks(run: Tables) -> None:
    both = run.scores[run.scores["calibrated"].notna()]
    marks = pd.concat([both["human:anna"], both["human:ben"]])
    (scored,) = panels(run.scores, BOUNDS)
    panel = level_bars(scored, ["human:anna", "human:ben"])
    assert panel.people == pytest.approx([float((marks == level).mean()) for level in range(5)])
    assert panel.machine == pytest.approx([float((both["calibrated"] == level).mean()) for level in range(5)])


def test_the_confusion_map_counts_every_compared_response(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    rounded = np.floor(both["target"] + 0.5).clip(0, 4)
    want = pd.crosstab(rounded, both["calibrated"]).reindex(index=range(5), columns=range(5), fill_value=0)
    table = page(shown.page).split('<table class="map ">')[1].split("</table>")[0]
    found = [
        [int(n.replace("·", "0")) for n in re.findall(r"<td.*?>([\d·]+)</td>", row)] for row in table.split("<tr>")[2:]
    ]
    assert np.array_equal(found, want.to_numpy())


def test_the_curve_meets_all_responses_at_their_share_of_wrong_scores(run: Tables) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    off = (both["calibrated"] - both["target"]).abs() > 1
    risk = coverage(run.scores, BOUNDS, 1.0, 0.05, "wrong")
    assert risk is not None
    assert risk.machine[-1] == pytest.approx((len(both) / len(run.scores), off.mean()))
    out = both["route"] == "release"
    assert risk.chosen == pytest.approx((out.sum() / len(run.scores), off[out].mean()))
    assert all(best <= own[1] + 1e-9 for own, (_, best) in zip(risk.machine, risk.oracle, strict=True))


def test_a_rule_says_what_alike_answers_are_worth(shown: View) -> None:
    worth = "41 of 50 labelled responses, worth 30 independent ones as answers of an author are alike"
    assert any(worth in text for text in texts(section(shown, "routing")))


def test_the_worst_cases_are_the_largest_gaps_two_of_an_item(run: Tables, shown: View) -> None:
    gaps = run.scores.set_index("response_id").eval("abs(calibrated - target)")
    found = worst(run.scores, BOUNDS)
    assert set(found) <= set(needs_texts(run.scores, BOUNDS))
    assert len(found) == str(section(shown, "errors").parts[-1]).count("<article") == 6
    assert gaps[found[0]] == gaps.max()
    assert list(gaps[found]) == sorted(gaps[found], reverse=True)
    assert pd.Series(found).str.rsplit("-", n=1).str[0].value_counts().max() <= 2


def test_quotes_that_fail_are_struck_through_with_the_reason(run: Tables, shown: View, seen: Seen) -> None:
    bundles = {row["item_id"]: run.bundles[row["rubric_id"]] for row in run.items.to_pylist()}
    texts, names = run.texts, worst(run.scores, BOUNDS)
    cases = Cases(
        run.scores,
        dict.fromkeys(bundles, ""),
        bundles,
        run.judgments.to_pylist(),
        texts,
        {},
        dict.fromkeys(bundles, 1.0),
        False,
    )
    finding = {quote.finding: quote.stands for mark in cases.shown(names)[0].marks for quote in mark.quotes}
    assert finding == {
        "stands where it was cited": True,
        "not in the text": False,
        "stands elsewhere in the text than cited, which does not count": False,
    }
    struck = [attrs for _, attrs in seen.elements if attrs.get("class") == "quote bad"]
    assert len(struck) == 2 * page(shown.page).count("<article")


def test_groups_that_are_too_small_are_not_shown() -> None:
    shown = view(made_run(items=1, each=120), STUDY, MANIFEST)
    groups, _ = grids(section(shown, "groups"))
    states = {row[3].text: int(row[0].remark) for row in groups.rows}
    assert set(states) == {"undecided", "too few"}
    assert states["too few"] < 30 <= states["undecided"]
    assert [row[4] for row in groups.rows if row[3].text == "too few"] == [None]


@pytest.mark.parametrize("where", ["text", "item", "rater", "group"])
def test_what_people_wrote_is_text_wherever_it_stands(where: str) -> None:
    plain: dict[str, Any] = {"items": 2, "each": 150}
    hostile = (
        plain
        | {
            "text": {"text": ANYWHERE.encode("utf-8", "replace").decode() + ANSWER},
            "item": {"item_name": lambda at: f"{ANYWHERE[:-1]}{at}"},
            "rater": {"raters": ("anna", ANYWHERE[:-1])},
            "group": {"group": ("english", ANYWHERE[:-1])},
        }[where]
    )
    calm, found = Seen(rendered(made_run(**plain))), Seen(rendered(made_run(**hostile)))
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
    assert "The judge's replies recorded on 2026-11-22 from m." in Seen(page(replayed.page)).text
    assert (shown.sources, view(run, STUDY, MANIFEST | {"identity": {}}).sources) == ("", "")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"raters": ()}, "no held-out human score tells how well"),
        ({"raters": ("anna",)}, "how far people agree is not known"),
        ({"scored": False}, "None of the 90 responses has a score"),
        ({"releases": False}, "may be released without a person looking first"),
        ({"author": False, "group": ()}, "the study names no group"),
        ({"items": 0, "raters": ()}, "There was nothing to score"),
        ({"scales": (Scale(min=0, max=3), Scale(min=0, max=60, step=0.5))}, "step of the scale"),
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
    found = Seen(rendered(made_run(**({"items": 1 + ("scales" in how), "each": 90} | how))))
    assert said in found.text
    assert "nan" not in found.text.lower().replace("anna", "")
    assert " None" not in found.text.replace("None of", "").replace("None.", "")


def test_a_run_without_metrics_shows_no_number_in_their_place(run: Tables) -> None:
    bare = view(replace(run, metrics=run.metrics.slice(0, 0), verdicts=run.verdicts.slice(0, 0)), STUDY, MANIFEST)
    assert not any(isinstance(part, Keys) for part in bare.page.parts)
    assert "How well the scores agree with people is not known: there are no" in page(bare.page)
    assert section(bare, "true-score").unknown
    assert "not known" in section(bare, "agreement").title


def test_long_lists_are_folded_and_the_page_stays_small() -> None:
    found = view(made_run(items=80, each=30, raters=("anna", "ben", "carla", "dora")), STUDY, MANIFEST)
    first, folded, *_ = grids(section(found, "agreement"))
    assert (len(first.rows), len(folded.rows)) == (12, 48)
    assert "20 more rows in the table <code>metrics</code>." in texts(section(found, "agreement"))
    assert len(page(found.page).encode()) < 400_000


def test_a_long_answer_makes_no_long_page() -> None:
    short, long = (
        rendered(made_run(items=1, each=90)),
        rendered(made_run(items=1, each=90, text=ANSWER + "x\n" * 500_000)),
    )
    assert len(long) < len(short) + 20_000
    assert "characters not shown" in long


def test_charts_have_finite_coordinates_inside_their_box(seen: Seen) -> None:
    marks = [
        (tag, attrs) for tag, attrs in seen.elements if tag in ("line", "circle", "rect", "text") and "%" in str(attrs)
    ]
    assert len(marks) > 100
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
    assert sum("aria-label" in attrs for attrs in charts) == 3


def test_a_view_does_not_depend_on_the_order_of_rows(run: Tables, shown: View) -> None:
    turned = replace(run, metrics=run.metrics.take(list(range(run.metrics.num_rows))[::-1]))
    assert section(view(turned, STUDY, MANIFEST), "agreement") == section(shown, "agreement")


def test_a_page_can_be_written_whatever_a_student_sent() -> None:
    assert rendered(made_run(items=1, each=60, text="\u202e \x00 " + ANSWER)).encode("utf-8")
