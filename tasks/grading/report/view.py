"""A run's tables as the view that the page shows: pure, tables in, values and their takeaways out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import by_scope
from rubricflow.tasks.core.stats.metrics import METRICS, Metric
from rubricflow.tasks.core.stats.promise import PromiseNeeds
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.grading.report import verdict
from rubricflow.tasks.grading.report.agreement import agreement, people, rater_section, true_score
from rubricflow.tasks.grading.report.answers import AnswerTable, answers
from rubricflow.tasks.grading.report.calibration import calibration
from rubricflow.tasks.grading.report.cases import ShownCase, case, worst
from rubricflow.tasks.grading.report.comparison import (
    Distribution,
    Errors,
    PeopleAgreement,
    Raters,
    SecondRater,
    TrueScoreLosses,
)
from rubricflow.tasks.grading.report.destination import destination
from rubricflow.tasks.grading.report.distribution import (
    NOTHING_SCORED,
    ScaleBounds,
    ScorePanel,
    confusions,
    distribution,
    errors_title,
    panels,
)
from rubricflow.tasks.grading.report.effort import cost, stability
from rubricflow.tasks.grading.report.evidence import decisions, grounding
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.funnel import data
from rubricflow.tasks.grading.report.groups import Groups, groups
from rubricflow.tasks.grading.report.promises import (
    above_promise_sentence,
    asks_nothing_sentence,
    nothing_released,
    promise,
    worth_of_promise,
)
from rubricflow.tasks.grading.report.provenance import checkpoints, limits
from rubricflow.tasks.grading.report.raters import with_effects
from rubricflow.tasks.grading.report.routing import Routing, routing, wrong_score_words
from rubricflow.tasks.grading.report.sections import (
    CalibrationSection,
    Checkpoints,
    DataSection,
    DecisionsSection,
    Facts,
    Grounding,
    LimitsSection,
    LookFirst,
    OutcomeSection,
    ReportHead,
    VerdictSection,
)
from rubricflow.tasks.grading.report.standing import RaterStanding, doubles, middle, sources, standing
from rubricflow.tasks.grading.report.tallies import total

Row = Mapping[str, Any]
Counts = Mapping[str, Sequence[Row]]
"""Rows as counts.py makes them, by the name of their query."""


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


@dataclass(frozen=True)
class View:
    """The whole page."""

    head: ReportHead
    standing: tuple[RaterStanding, ...]
    doubles: str
    """About the answers that two people scored, where these are not all; '' otherwise."""
    middle: tuple[ShownCase, ...]
    """A released response and one that people see."""
    sources: str
    """Where replayed replies come from."""
    outcome: OutcomeSection
    nothing: str
    """Why the judge scored nothing; '' where it scored something."""
    verdict: VerdictSection
    data: DataSection
    answers: AnswerTable | None
    """None where nothing was graded."""
    people: PeopleAgreement
    agreement: SecondRater
    distribution: Distribution
    true_score: TrueScoreLosses
    errors: Errors
    groups: Groups
    raters: Raters
    calibration: CalibrationSection
    routing: Routing
    evidence: Grounding
    decisions: DecisionsSection | None
    """None where the judge gives no probabilities or people marked no criteria."""
    stability: Facts
    cost: Facts
    checks: Checkpoints
    limits: LimitsSection


def needs_texts(scores: pd.DataFrame, scales: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """The responses whose text and judgments the page shows: those of middle risk and the worst disagreements. scales:
    item → (min, max, step)."""
    return list(dict.fromkeys([*middle(scores), *worst(scores, scales)]))


def view(
    tables: Tables, study: Mapping[str, Any], manifest: Mapping[str, Any], metrics: Sequence[Metric] = METRICS
) -> View:
    """The page's content. `study` and `manifest` are the study file and manifest.json as plain
    values; metrics: what is known of those in the tables."""
    scores, figures = tables.scores, Figures(tables.metrics.to_pylist(), metrics)
    release, target = study["release"], study["evaluation"]["target"]
    scales = _scales(tables)
    tolerances = {item: release["tolerance"] * bounds[2] for item, bounds in scales.items()}
    shown_cases = _ShownCases(tables, tolerances, study["marks"] == "grade")
    raters = shown_cases.raters
    counts = {name: table.to_pylist() for name, table in tables.counts.items()}
    gates, rules = tables.verdicts.to_pylist(), tables.release_rules.to_pylist()
    calibrations = tables.calibrations.to_pylist()
    exceeds, wrong = wrong_score_words(release["tolerance"], scales)
    labelled = int(scores["target"].notna().sum())
    outcome = _outcome(counts, rules, wrong, tables.needs)
    second_rater = agreement(figures, labelled)
    checks = checkpoints(tables.checks.to_pylist(), counts["quarantine"])
    title = verdict.headline(
        outcome, figures.machine("beyond_tolerance", "released"), exceeds, release["risk"], labelled
    )
    if outcome.released:
        more = (worth_of_promise(figures, rules), asks_nothing_sentence(rules), above_promise_sentence(gates))
        title = " ".join(filter(None, (title, *more)))
    nothing = verdict.nothing_scored(counts["nothing"])
    inside = verdict.inside(figures, rules, outcome.released)
    kinds = verdict.three_kinds(outcome)
    title = " ".join(filter(None, (nothing, kinds, verdict.alike(counts["alike"]), inside, title)))
    warned, failed, broken = (count.count for count in checks.counts[1:4])
    looks = verdict.looks(gates, outcome, warned, failed + broken, _worst_item(second_rater), figures)
    score_panels = panels(scores, scales)
    several = target in OF_SEVERAL
    return View(
        head=verdict.head(study["name"], manifest["written"][:10], title, looks, figures, outcome.released),
        standing=standing(figures, calibrations),
        doubles=doubles(figures, calibrations),
        middle=shown_cases.cases(middle(scores)),
        sources=sources(manifest),
        outcome=outcome,
        nothing=nothing,
        verdict=verdict.verdict(gates, figures),
        data=_data(counts),
        answers=answers(tables.answers.to_pylist() if tables.answers else [], tables.links, rules, tolerances),
        people=people(figures, raters),
        agreement=second_rater,
        distribution=distribution(score_panels, figures, raters if several else []),
        true_score=true_score(figures),
        errors=Errors(
            title=errors_title(score_panels),
            confusions=confusions(score_panels),
            rounded=several and len(raters) > 1,
            cases=shown_cases.cases(worst(scores, scales)),
            missing="" if score_panels else NOTHING_SCORED,
        ),
        groups=groups(figures, scores),
        raters=with_effects(rater_section(figures, raters), tables.rater_effects.to_pylist()),
        calibration=_calibration(tables, score_panels, figures, counts),
        routing=routing(scores, scales, rules, figures, release["tolerance"], release["risk"], gates, outcome.released),
        evidence=grounding(counts["quotes"], counts["decisions"], counts["conflicts"], outcome.responses, figures),
        decisions=decisions(figures),
        stability=stability(counts["repeats"][0]),
        cost=_cost(counts, outcome),
        checks=checks,
        limits=limits(study, manifest, tables.bundles, figures, target),
    )


def _scales(tables: Tables) -> dict[str, ScaleBounds]:
    """item → (min, max, step)."""
    return {row["item_id"]: tables.bundles[row["rubric_id"]].scale.bounds for row in tables.items.to_pylist()}


def _outcome(counts: Counts, rules: Sequence[Row], wrong: str, needs: Sequence[PromiseNeeds]) -> OutcomeSection:
    """Where all scores go, with the promise about those released, or why there are none."""
    responses = counts["responses"]
    if rules and total(responses, lambda row: row["scored"] and row["route"] == "release" and not row["by_people"]):
        return verdict.outcome(responses, promise(rules, wrong))
    return verdict.outcome(responses, nothing_released(rules, counts["possible"], total(responses), needs))


def _worst_item(agreement: SecondRater) -> LookFirst | None:
    """The item furthest below people, where it is in bold."""
    first = next(iter(agreement.items.first), None)
    if first is None or not first.flagged or len(agreement.items.rows) < 2:
        return None
    machine, people = say.number(first.machine.value or 0.0), say.number(first.people.value or 0.0)
    return LookFirst(f"{first.name} agrees at {machine} QWK where people reach {people}", "agreement")


def _data(counts: Counts) -> DataSection:
    quarantined = sum(row["n"] for row in counts["quarantine"])
    return data(counts["responses"], counts["set"][0], quarantined, counts["input_warnings"])


def _calibration(
    tables: Tables, score_panels: Sequence[ScorePanel], figures: Figures, counts: Counts
) -> CalibrationSection:
    candidates, calibrations = tables.candidates.to_pylist(), tables.calibrations.to_pylist()
    clipped = sum(row["clipped"] for row in counts["responses"])
    scored = total(counts["responses"], lambda row: row["scored"])
    return calibration(tables.scores, score_panels, figures, candidates, calibrations, clipped, scored)


def _cost(counts: Counts, outcome: OutcomeSection) -> Facts:
    prechecked = sum(row["n"] for row in counts["gradings"] if row["status"] == "precheck")
    return cost(counts["attempts"], outcome.responses, prechecked, outcome.review + outcome.unscored)


class _ShownCases:
    """The responses that the page shows whole. tolerances: item → the most, in points, that a score may differ; marks:
    whether people's marks are decisions."""

    def __init__(self, tables: Tables, tolerances: Mapping[str, float], marks: bool) -> None:
        columns = [str(name) for name in tables.scores.columns]
        self.raters = [column.removeprefix("human:") for column in columns if column.startswith("human:")]
        self._tables, self._tolerances, self._marks = tables, tolerances, marks
        self._items = {row["item_id"]: row for row in tables.items.to_pylist()}
        self._rules = by_scope(tables.release_rules.to_pylist())
        self._judgments = defaultdict(list)
        for row in tables.judgments.to_pylist():
            self._judgments[row["response_id"]].append(row)

    def cases(self, responses: Sequence[str]) -> tuple[ShownCase, ...]:
        """In the order of the ids."""
        scores = self._tables.scores
        rows = {row["response_id"]: row for row in _records(scores[scores["response_id"].isin(responses)])}
        return tuple(self._case(rows[response]) for response in responses)

    def _case(self, row: Row) -> ShownCase:
        response, item = row["response_id"], self._items[row["item_id"]]
        marked = self._marks and any(pd.notna(row[f"human:{rater}"]) for rater in self.raters)
        return case(
            row=row,
            raters=self.raters,
            question=item["question"],
            bundle=self._tables.bundles[item["rubric_id"]],
            judgments=self._judgments[response],
            text=self._tables.texts[response],
            route=destination(row, self._rules, self._tolerances[row["item_id"]], marked),
        )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A row as a dict by column, values as pandas holds them."""
    columns = [str(name) for name in frame.columns]
    return [dict(zip(columns, values, strict=True)) for values in frame.itertuples(index=False, name=None)]
