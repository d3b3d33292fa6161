"""A run's tables as the view that the page shows: pure, tables in, values and their takeaways out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa

from tasks.contracts.bundle import Bundle
from tasks.display import say
from tasks.display.reasons import by_scope
from tasks.report.grading import marks, together, verdict, work
from tasks.report.grading.answers import AnswerTable, answers
from tasks.report.grading.cases import ShownCase, case, worst
from tasks.report.grading.comparison import Distribution, Errors, PeopleAgreement, Raters, SecondRater, TrueScoreLosses
from tasks.report.grading.figures import Figures
from tasks.report.grading.groups import Groups, groups
from tasks.report.grading.parts import (
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
from tasks.report.grading.promises import above_said, nothing_released, promise
from tasks.report.grading.raters import with_effects
from tasks.report.grading.routed import routed
from tasks.report.grading.routing import Routing, beyond, routing
from tasks.report.grading.standing import Agreeing, middle, sources, standing
from tasks.stats.metric import Metric
from tasks.stats.metrics import METRICS
from tasks.stats.target import OF_SEVERAL


@dataclass(frozen=True)
class Tables:
    """What the page is made from: Arrow tables with the columns of tasks/contracts/tables."""

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
    links: Mapping[str, str] = field(default_factory=dict)
    """response_id → its student's page of feedback, relative to the report."""


@dataclass(frozen=True)
class View:
    """The whole page."""

    head: ReportHead
    standing: tuple[Agreeing, ...]
    middle: tuple[ShownCase, ...]
    """A released response and one that people see."""
    sources: str
    """Where replayed replies come from."""
    outcome: OutcomeSection
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
    rubric_of = dict(zip(tables.items["item_id"].to_pylist(), tables.items["rubric_id"].to_pylist(), strict=True))
    scales = {item: tables.bundles[rubric].scale.bounds for item, rubric in rubric_of.items()}
    raters = [column.removeprefix("human:") for column in scores.columns if column.startswith("human:")]
    counts = {name: table.to_pylist() for name, table in tables.counts.items()}
    gates, rules, checks = tables.verdicts.to_pylist(), tables.release_rules.to_pylist(), tables.checks.to_pylist()
    calibrations = tables.calibrations.to_pylist()
    release, target = study["release"], study["evaluation"]["target"]
    such, wrong = beyond(release["tolerance"], scales)
    steps = {item: release["tolerance"] * bounds[2] for item, bounds in scales.items()}

    labelled = int(scores["target"].notna().sum())
    whole = verdict.total(counts["responses"])
    released = verdict.total(counts["responses"], lambda row: row["scored"] and row["route"] == "release")
    why = promise(rules, wrong) if released and rules else nothing_released(rules, counts["possible"], whole)
    found = verdict.outcome(counts["responses"], why)
    agreement = together.agreement(figures, labelled)
    title = verdict.headline(found, figures.machine("beyond_tolerance", "released"), such, release["risk"], labelled)
    title = " ".join(filter(None, (title, above_said(gates) if found.released else "")))
    checked = work.checkpoints(checks, counts["quarantine"])
    warned, failed, broken = (count.count for count in checked.counts[1:4])
    looks = verdict.looks(gates, found, warned, failed + broken, _worst_item(agreement), figures)
    panels = marks.panels(scores, scales)
    quarantined = sum(row["n"] for row in counts["quarantine"])
    prechecked = sum(row["n"] for row in counts["gradings"] if row["status"] == "precheck")
    clipped = sum(row["clipped"] for row in counts["responses"])
    return View(
        verdict.head(study["name"], manifest["written"][:10], title, looks, figures, found.released),
        standing(figures),
        _cases(tables, raters, rubric_of, middle(scores), steps),
        sources(manifest),
        found,
        verdict.verdict(gates, figures),
        verdict.data(counts["responses"], counts["set"][0], quarantined, counts["input_warnings"]),
        answers(tables.answers.to_pylist() if tables.answers else [], tables.links, rules, steps),
        together.people(figures, raters),
        agreement,
        marks.distribution(panels, figures, raters if target in OF_SEVERAL else []),
        together.true_score(figures),
        Errors(
            marks.errors_title(panels),
            marks.confusions(panels),
            target in OF_SEVERAL and len(raters) > 1,
            _cases(tables, raters, rubric_of, worst(scores, scales), steps),
            "" if panels else marks.NOTHING_SCORED,
        ),
        groups(figures, scores),
        with_effects(together.rater_section(figures, raters), tables.rater_effects.to_pylist()),
        marks.calibration(
            scores,
            panels,
            figures,
            tables.candidates.to_pylist(),
            calibrations,
            clipped,
            found.responses - found.unscored,
        ),
        routing(scores, scales, rules, figures, release["tolerance"], release["risk"], gates, released),
        work.grounding(counts["quotes"], counts["decisions"], counts["conflicts"], found.responses, figures),
        work.decisions(figures),
        work.stability(counts["repeats"][0]),
        work.cost(counts["attempts"], found.responses, prechecked, found.review + found.unscored),
        checked,
        work.limits(study, manifest, tables.bundles, figures, target),
    )


def _worst_item(agreement: SecondRater) -> LookFirst | None:
    """The item furthest below people, where it is in bold."""
    first = next(iter(agreement.items.first), None)
    if first is None or not first.flagged or len(agreement.items.rows) < 2:
        return None
    machine, people = first.machine.value or 0.0, first.people.value or 0.0
    return LookFirst(
        f"{first.name} agrees at {say.number(machine)} QWK where people reach {say.number(people)}", "agreement"
    )


def _cases(
    tables: Tables,
    raters: list[str],
    rubric_of: Mapping[str, str],
    shown: Sequence[str],
    tolerances: Mapping[str, float],
) -> tuple[ShownCase, ...]:
    rules = by_scope(tables.release_rules.to_pylist())
    questions = dict(zip(tables.items["item_id"].to_pylist(), tables.items["question"].to_pylist(), strict=True))
    judged = defaultdict(list)
    for row in tables.judgments.to_pylist():
        judged[row["response_id"]].append(row)
    wanted = tables.scores[tables.scores["response_id"].isin(shown)]
    columns = [str(name) for name in wanted.columns]
    rows = [dict(zip(columns, values, strict=True)) for values in wanted.itertuples(index=False, name=None)]
    by_id = {row["response_id"]: row for row in rows}
    made = []
    for response in shown:
        row = by_id[response]
        item = row["item_id"]
        bundle = tables.bundles[rubric_of[item]]
        route = routed(row, rules, tolerances[item])
        made.append(case(row, raters, questions[item], bundle, judged[response], tables.texts[response], route))
    return tuple(made)
