"""A run's tables as its report: pure, tables in, a page and what the command says of it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
from markupsafe import Markup

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.display.page import body
from rubricflow.tasks.core.display.reasons import by_scope
from rubricflow.tasks.core.display.section import Page, Part, Section, Text
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.stats.metrics import METRICS, Metric
from rubricflow.tasks.core.stats.promise import PromiseNeeds
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.grading.report import verdict
from rubricflow.tasks.grading.report.agreement import agreement_section, people_section, true_score_section, worst_item
from rubricflow.tasks.grading.report.answers import Cases, ShownCase, answers_section, middle, worst
from rubricflow.tasks.grading.report.charts import TEMPLATE
from rubricflow.tasks.grading.report.distribution import (
    ScorePanel,
    calibration_section,
    confusions,
    distribution_section,
    errors_title,
    panels,
)
from rubricflow.tasks.grading.report.evidence import decisions_section, evidence_section
from rubricflow.tasks.grading.report.figures import NOTHING_SCORED, Figures, total
from rubricflow.tasks.grading.report.groups import groups_section
from rubricflow.tasks.grading.report.money import cost_facts
from rubricflow.tasks.grading.report.provenance import (
    check_counts,
    checks_section,
    cost_section,
    data_section,
    limits_section,
    stability_section,
)
from rubricflow.tasks.grading.report.raters import RankedRater, doubles, ranking_parts, rater_ranking, raters_section
from rubricflow.tasks.grading.report.release import (
    above_promise_sentence,
    asks_nothing_sentence,
    coverage,
    nothing_released,
    promise,
    routing_section,
    worth_of_promise,
    wrong_score_words,
)


@dataclass(frozen=True)
class Tables:
    """What the page is made from: Arrow tables with the columns of tasks/core/contracts/tables."""

    scores: pd.DataFrame
    """One row per held-out response, as scores.py makes it: response_id, item_id, target, human:<rater>, raw,
    calibrated, group:<variable>, risk, route, route_reason."""
    items: pa.Table
    """item_id, question, rubric_id."""
    bundles: Mapping[str, Bundle]
    """rubric_id → bundle."""
    metrics: pa.Table
    verdicts: pa.Table
    rater_effects: pa.Table
    release_rules: pa.Table
    candidates: pa.Table
    calibrations: pa.Table
    checks: pa.Table
    judgments: pa.Table
    """Of the responses that `needs_texts` names: the machine's and people's."""
    texts: Mapping[str, str]
    """response_id → text, of the same."""
    counts: Mapping[str, pa.Table]
    """As counts.py makes them, over all responses."""
    answers: pa.Table | None = None
    """As answers.py asks for them."""
    needs: Sequence[PromiseNeeds] = ()
    """What every promise of the study wants."""
    links: Mapping[str, str] = field(default_factory=dict)
    """response_id → its student's page of feedback, relative to the report."""


class View(NamedTuple):
    """The whole page, and what the command says, too."""

    page: Page
    ranking: tuple[RankedRater, ...]
    doubles: str
    """About the answers that two people scored, where these are not all; '' otherwise."""
    sources: str
    """Where replayed replies come from; '' where nothing is replayed."""
    outcome: verdict.RunOutcome
    nothing: str
    """Why the judge scored nothing; '' where it scored something."""


def needs_texts(scores: pd.DataFrame, scales: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """The responses whose text and judgments the page shows: those of middle risk and the worst disagreements. scales:
    item → (min, max, step)."""
    return list(dict.fromkeys([*middle(scores), *worst(scores, scales)]))


def view(tables: Tables, study: Row, manifest: Row, metrics: Sequence[Metric] = METRICS) -> View:
    """The report. `study` and `manifest` are the study file and manifest.json as plain values; metrics: what is known
    of those in the tables."""
    scores, figures = tables.scores, Figures(tables.metrics.to_pylist(), metrics)
    counts = {name: table.to_pylist() for name, table in tables.counts.items()}
    items, effects = tables.items.to_pylist(), tables.rater_effects.to_pylist()
    gates, rules, checks = (table.to_pylist() for table in (tables.verdicts, tables.release_rules, tables.checks))
    candidates, calibrations = tables.candidates.to_pylist(), tables.calibrations.to_pylist()
    release, target = study["release"], study["evaluation"]["target"]
    bundles = {row["item_id"]: tables.bundles[row["rubric_id"]] for row in items}
    scales = {item: bundle.scale.bounds for item, bundle in bundles.items()}
    tolerances = {item: release["tolerance"] * bounds[2] for item, bounds in scales.items()}
    wrong = wrong_score_words(release["tolerance"], scales)
    cases = Cases(
        scores,
        {row["item_id"]: row["question"] for row in items},
        bundles,
        tables.judgments.to_pylist(),
        tables.texts,
        by_scope(rules),
        tolerances,
        study["marks"] == "grade",
    )
    raters, score_panels = cases.raters, panels(scores, scales)
    every, labelled = counts["responses"], int(scores["target"].notna().sum())
    goes_out = total(every, lambda row: row["scored"] and row["route"] == "release" and not row["by_people"])
    promised = nothing_released(rules, counts["possible"], total(every), tables.needs)
    outcome = verdict.outcome(every, promise(rules, wrong[1]) if rules and goes_out else promised)
    nothing = verdict.nothing_scored(counts["nothing"])
    headline = [
        nothing,
        verdict.three_kinds(outcome),
        verdict.alike(counts["alike"]),
        verdict.inside(figures, rules, outcome.released),
        verdict.headline(outcome, figures.machine("beyond_tolerance", "released"), wrong[0], release["risk"], labelled),
    ]
    if outcome.released:
        headline += [worth_of_promise(figures, rules), asks_nothing_sentence(rules), above_promise_sentence(gates)]
    found, quarantined = check_counts(checks), sum(row["n"] for row in counts["quarantine"])
    broken = found["failed"] + found["could not run"]
    looks = verdict.looks(gates, outcome, found["warnings"], broken, worst_item(figures), figures)
    ranking, of_doubles = rater_ranking(figures, calibrations), doubles(figures, calibrations)
    costs = cost_facts(counts["costs"], outcome.responses, outcome.released, ranking, manifest)
    sources = "; ".join(manifest.get("identity", {}).get("recordings", {}).values())
    several = target in OF_SEVERAL
    clipped, scored = sum(row["clipped"] for row in every), total(every, lambda row: row["scored"])
    prechecked = sum(row["n"] for row in counts["gradings"] if row["status"] == "precheck")
    curve = coverage(scores, scales, release["tolerance"], release["risk"], wrong[1])
    sections = (
        verdict.verdict_section(gates, figures),
        data_section(every, counts["set"][0], quarantined, counts["input_warnings"]),
        answers_section(tables.answers.to_pylist() if tables.answers else [], tables.links, rules, tolerances),
        people_section(figures, raters),
        agreement_section(figures, labelled),
        distribution_section(score_panels, figures, raters if several else []),
        true_score_section(figures),
        _errors(score_panels, several and len(raters) > 1, cases.shown(worst(scores, scales))),
        groups_section(figures, scores),
        raters_section(figures, raters, effects),
        calibration_section(scores, score_panels, figures, candidates, calibrations, clipped, scored),
        routing_section(curve, rules, gates, figures, wrong, outcome.released, outcome.released_why),
        evidence_section(counts["quotes"], counts["decisions"], counts["conflicts"], outcome.responses, figures),
        decisions_section(figures),
        stability_section(counts["repeats"][0]),
        cost_section(counts["attempts"], outcome.responses, prechecked, outcome.review + outcome.unscored, costs),
        checks_section(checks, quarantined),
        limits_section(study, manifest, tables.bundles, figures),
    )
    head: list[Part] = [
        Text(LEGEND),
        *([Text(f"The judge's {sources}.")] if sources else []),
        *ranking_parts(ranking, of_doubles),
        *_middle_cases(cases.shown(middle(scores))),
        *map(Text, figures.cautions),
        *([body(TEMPLATE, "looks", looks)] if looks else []),
        *verdict.key_parts(figures, outcome.released),
        body(TEMPLATE, "outcome", outcome),
    ]
    title, *more = filter(None, headline)
    page = Page(
        "Run report",
        study["name"],
        title,
        tuple(section for section in sections if section is not None),
        date=manifest["written"][:10],
        lead=" ".join(more),
        parts=head,
    )
    return View(page, ranking, of_doubles, sources, outcome, nothing)


LEGEND = Markup(
    'Throughout, the <span class="m key">machine</span> is filled blue and '
    '<span class="h key">people</span> are hollow orange. How well two people agree on the same responses stands '
    "beside every figure: it is the measure for any grader."
)


def _middle_cases(cases: Sequence[ShownCase]) -> list[Part]:
    """A released response and one that people see; nothing without a score."""
    note = "One answer, nobody's pick: of middle risk in the upper half by what the judge itself gave."
    if len(cases) > 1:
        note = (
            "Two held-out answers, each of middle risk among its like: one that would be released and one that a "
            "person sees first, both of the upper half by what the judge itself gave."
        )
    shown = Markup('<div id="middle">{}</div>').format(body(TEMPLATE, "articles", cases))
    return [shown, Text(f"{note} Shaded: quotes that stand in the text.", "note")] if cases else []


def _errors(score_panels: Sequence[ScorePanel], rounded: bool, cases: Sequence[ShownCase]) -> Section:
    """Where machine and people part, and the worst disagreements."""
    parts = confusions(score_panels, rounded)
    if cases:
        lead = (
            "The held-out responses with the largest gaps, at most two of an item. Shaded: the machine's quotes that "
            "stand in the text, labelled by criterion; dashed: what a person marked. Struck through: quotes that do "
            "not count. Bold rows: the decisions differ."
        )
        parts += [Text("The worst disagreements", "h3"), Text(lead), body(TEMPLATE, "articles", cases)]
    elif score_panels:
        parts += [Text("No held-out score is half a level or more from people's.")]
    unknown = "" if score_panels else NOTHING_SCORED
    return Section("errors", "Errors: where, and why?", errors_title(score_panels), unknown=unknown, parts=parts)
