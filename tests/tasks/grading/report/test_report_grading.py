"""The HTML report: what it says equals the tables, and what people wrote stays text."""

from __future__ import annotations

import math
import re
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
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.cases import worst
from rubricflow.tasks.grading.report.page import page
from rubricflow.tasks.grading.report.promises import above_promise_sentence
from rubricflow.tasks.grading.report.verdict import headline, outcome
from rubricflow.tasks.grading.report.view import Tables, View, needs_texts, view

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
    return page(view(tables, STUDY | {"release": STUDY["release"] | release}, MANIFEST))


@pytest.fixture(scope="module")
def run() -> Tables:
    return made_run()


@pytest.fixture(scope="module")
def shown(run: Tables) -> View:
    return view(run, STUDY, MANIFEST)


@pytest.fixture(scope="module")
def seen(shown: View) -> Seen:
    return Seen(page(shown))


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
    assert shown.head.title.startswith(f"{released:,} of {int(rows['n'].sum()):,} scores may be released")
    assert f"{100 * wrong['value']:.1f}% of such scores" in shown.head.title
    assert shown.head.title in seen.text
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
    assert plain(found.head.title).endswith("(34 released scores each).")
    assert "q2 (21% of 34)" in plain(found.head.title)
    assert [plain(rule.scope) for rule in found.routing.above.rows] == ["q2", "q3", "q4"]
    text = Seen(page(found)).text
    assert (
        "21% of 34 released held-out scores are more than one point from the human score "
        "(95% interval 0 to 38%; 10% promised)" in text
    )


def test_a_gate_of_items_is_one_thing_to_look_at_with_its_worst(run: Tables) -> None:
    lost = next(row for row in gates() if row["outcome"] == "fail" and row["slice"] == "item")
    others = [lost | {"value_of": f"item-{at}", "estimate": -0.3 - at / 10} for at in range(4)]
    found = view(replace(run, verdicts=conform(Verdicts, [*gates(), *others])), STUDY, MANIFEST)
    said = [plain(look.text) for look in found.head.looks if "item" in look.text]
    assert any("item item-3: −0.60" in text and "and on 4 more" in text for text in said)


def test_no_pooled_agreement_stands_without_its_mean_over_items(run: Tables, shown: View) -> None:
    rows = {(row["metric"], row["stage"]): row["value"] for row in run.metrics.to_pylist() if row["slice"] == "all"}
    names = [key.name for key in shown.head.keys]
    assert names[:2] == ["Agreement (QWK)", "Agreement (QWK, mean over items)"]
    assert f"({rows['qwk_item_mean', 'human']:.2f} in the mean over items)" in shown.people.title
    assert f"({rows['qwk_item_mean', 'calibrated']:.2f} in the mean over items)" in shown.calibration.title
    assert [name for name in names if "QWK" in name] == names[:2]


def test_key_figures_are_those_of_the_released_scores(run: Tables, shown: View) -> None:
    rows = {(row["metric"], row["stage"]): row["value"] for row in run.metrics.to_pylist() if row["slice"] == "all"}
    found = {key.name: (key.machine.value, key.people.value) for key in shown.head.keys}
    assert found["Agreement (QWK)"] == (rows["qwk", "released"], rows["qwk", "human"])
    assert found["Mean absolute error, points"] == (rows["mae", "released"], rows["mae", "human"])


def test_every_response_of_the_funnel_is_accounted_for(run: Tables, shown: View) -> None:
    read, scored, released = (step.count for step in shown.data.every)
    assert read - scored == sum(reason.count for reason in shown.outcome.unscored_reasons)
    assert scored - released == sum(reason.count for reason in shown.outcome.review_reasons)
    labelled, held_out, compared, _ = (step.count for step in shown.data.labelled)
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    assert (held_out, compared) == (int(run.scores["target"].notna().sum()), len(both))
    assert labelled == read


def test_what_is_odd_about_the_answers_is_listed(shown: View) -> None:
    assert [(row.text, row.responses, row.examples) for row in shown.data.oddities] == [
        ("HTML is left in the text (`html: true` in the source takes it out)", 7, "<b>r1</b>, …")
    ]
    assert "7: HTML is left in the text" in page(shown)
    assert "&lt;b&gt;r1&lt;/b&gt;" in page(shown)


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
    found = [(row.people.value or 0) - (row.machine.value or 0) for row in shown.agreement.items.rows]
    assert found == pytest.approx(gaps)
    assert shown.agreement.items.first[0].name in shown.agreement.title


def test_bars_are_the_shares_of_each_persons_marks(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["calibrated"].notna()]
    marks = pd.concat([both["human:anna"], both["human:ben"]])
    (panel,) = shown.distribution.panels
    assert panel.people == pytest.approx([float((marks == level).mean()) for level in range(5)])
    assert panel.machine == pytest.approx([float((both["calibrated"] == level).mean()) for level in range(5)])


def test_the_confusion_map_counts_every_compared_response(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    rounded = np.floor(both["target"] + 0.5).clip(0, 4)
    want = pd.crosstab(rounded, both["calibrated"]).reindex(index=range(5), columns=range(5), fill_value=0)
    (found,) = shown.errors.confusions
    assert np.array_equal(found.counts, want.to_numpy())


def test_the_curve_meets_all_responses_at_their_share_of_wrong_scores(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    off = (both["calibrated"] - both["target"]).abs() > 1
    risk = shown.routing.curve
    assert risk is not None
    assert risk.machine[-1] == pytest.approx((len(both) / len(run.scores), off.mean()))
    out = both["route"] == "release"
    assert risk.chosen == pytest.approx((out.sum() / len(run.scores), off[out].mean()))
    assert all(best <= own[1] + 1e-9 for own, (_, best) in zip(risk.machine, risk.oracle, strict=True))


def test_a_rule_says_what_alike_answers_are_worth(shown: View) -> None:
    said = shown.routing.rules.rows[0].promise
    assert "41 of 50 labelled responses, worth 30 independent ones as answers of an author are alike" in said


def test_the_worst_cases_are_the_largest_gaps_two_of_an_item(run: Tables, shown: View) -> None:
    gaps = run.scores.set_index("response_id").eval("abs(calibrated - target)")
    found = worst(run.scores, dict.fromkeys(NAMES, SCALE.bounds))
    assert set(found) <= set(needs_texts(run.scores, dict.fromkeys(NAMES, SCALE.bounds)))
    assert len(found) == len(shown.errors.cases) == 6
    assert gaps[found[0]] == gaps.max()
    assert list(gaps[found]) == sorted(gaps[found], reverse=True)
    assert pd.Series(found).str.rsplit("-", n=1).str[0].value_counts().max() <= 2


def test_quotes_that_fail_are_struck_through_with_the_reason(shown: View, seen: Seen) -> None:
    finding = {quote.finding: quote.stands for mark in shown.errors.cases[0].marks for quote in mark.quotes}
    assert finding == {
        "stands where it was cited": True,
        "not in the text": False,
        "stands elsewhere in the text than cited, which does not count": False,
    }
    struck = [attrs for _, attrs in seen.elements if attrs.get("class") == "quote bad"]
    assert len(struck) == 2 * len(shown.errors.cases + shown.middle)


def test_groups_that_are_too_small_are_not_shown() -> None:
    shown = view(made_run(items=1, each=120), STUDY, MANIFEST)
    (variable,) = shown.groups.variables
    assert {group.state for group in variable.groups.rows} == {"undecided", "hidden"}
    assert all((group.estimate.n < 30) == (group.estimate.value is None) for group in variable.groups.rows)


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


def test_a_page_can_be_written_whatever_a_student_sent() -> None:
    assert rendered(made_run(items=1, each=60, text="\u202e \x00 " + ANSWER)).encode("utf-8")


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
    assert all(key.machine.value is None and key.machine.note for key in bare.head.keys)
    assert bare.true_score.missing
    assert "not known" in bare.agreement.title


def test_long_lists_are_folded_and_the_page_stays_small() -> None:
    found = view(made_run(items=80, each=30, raters=("anna", "ben", "carla", "dora")), STUDY, MANIFEST)
    items = found.agreement.items
    assert (len(items.first), len(items.rows) + items.left_out) == (12, 80)
    assert len(page(found).encode()) < 400_000


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
    assert view(turned, STUDY, MANIFEST).agreement == shown.agreement
