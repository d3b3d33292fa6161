"""A run's tables as its report: pure, tables in, a page and what the command says of it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.evaluation import STAGES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Columns, Page, Part, Section, Text, body
from rubricflow.tasks.core.display.quotes import WorthOfQuotes
from rubricflow.tasks.core.display.table import Cell, Row, Rows, Table, count
from rubricflow.tasks.core.display.verdict import ReleaseVerdict, by_scope, verdict, wrong_words
from rubricflow.tasks.core.display.worth import worth_section
from rubricflow.tasks.core.stats.metrics import METRICS, Metric
from rubricflow.tasks.core.stats.promise import PromiseNeeds
from rubricflow.tasks.grading.report import answers, gates, made
from rubricflow.tasks.grading.report.agreement import (
    Ranking,
    agreement_section,
    preference_lines,
    preference_section,
    ranking_of,
    raters_section,
    top_table,
    worst_item,
)
from rubricflow.tasks.grading.report.charts import TEMPLATE
from rubricflow.tasks.grading.report.evidence import errors_section, evidence_section
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.log import headline, in_terms_of_logs, known, section_of_log, trust_section

ALIKE, FEWEST_ALIKE = 0.95, 5
"""Share of answers with their question's most frequent score from which on a judge hardly tells them apart, of this
many answers at least."""

OF_SCORES = frozenset({"use", "answers", "agreement", "errors", "evidence", "raters"})
"""Sections that have nothing to say where people scored no answer."""
NO_SCORES = "People said which of two answers they prefer, and scored none: no score may go out."


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
    worth: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """What `worth_section` takes; empty where one judge judged alone."""
    links: Mapping[str, str] = field(default_factory=dict)
    """response_id → its student's page of feedback, relative to the report."""


class View(NamedTuple):
    """The whole page, and what the command says, too."""

    page: Page
    verdict: ReleaseVerdict
    why_nothing: str
    """Why no score goes out; '' where some do."""
    ranking: Ranking
    sources: str
    """Where replayed replies come from; '' where nothing is replayed."""
    nothing: str
    """Why the judge scored nothing; '' where it scored something."""
    preferences: list[str]
    """How the judge agrees with people's preferences, a line each; none without any."""
    told: str = ""
    """What the labels tell of a log's judge; '' for any other run."""


def needs_texts(scores: pd.DataFrame, scales: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """The responses whose text and judgments the page shows: those of middle risk and the worst disagreements. scales:
    item → (min, max, step)."""
    return list(dict.fromkeys([*answers.middle(scores), *answers.worst(scores, scales)]))


def view(
    tables: Tables, study: Row, manifest: Row, metrics: Sequence[Metric] = METRICS, has_review: bool = True
) -> View:
    """The report. `study` and `manifest` are the study file and manifest.json as plain values; metrics: what is known
    of those in the tables; has_review: as `next_step` has it."""
    figures = Figures(tables.metrics.to_pylist(), metrics)
    counts = {name: table.to_pylist() for name, table in tables.counts.items()}
    verdicts, rules, checks = (table.to_pylist() for table in (tables.verdicts, tables.release_rules, tables.checks))
    calibrations = tables.calibrations.to_pylist()
    scores, release = tables.scores, study["release"]
    items = {row["item_id"]: row for row in tables.items.to_pylist()}
    scales = {item: tables.bundles[row["rubric_id"]].scale.bounds for item, row in items.items()}
    tolerances = {item: release["tolerance"] * bounds[2] for item, bounds in scales.items()}
    wrong = wrong_words(release["tolerance"], scales.values())
    found = verdict(counts["final"], rules, verdicts, wrong)
    logged = study.get("log")
    told, takes = known(scores, scales, figures, release, wrong) if logged else ("", "")
    if logged:
        promise = in_terms_of_logs(found.promise)
        caution = in_terms_of_logs(found.caution)
        reasons_in_terms = {in_terms_of_logs(why): n for why, n in found.waiting.items()}
        found = found._replace(sentence=headline(found), promise=promise, caution=caution, waiting=reasons_in_terms)
        rules = [row | {"note": row["note"] and in_terms_of_logs(row["note"])} for row in rules]
    nothing = nothing_scored(counts["nothing"])
    why_nothing = ""
    if found.waiting and not found.released and not found.held_back:
        why_nothing = nothing or gates.nothing_released(rules, counts["possible"], found.answers, tables.needs)
        why_nothing = f"{in_terms_of_logs(why_nothing)} {takes}".strip() if logged else why_nothing
    ranking = ranking_of(figures)
    if logged:
        ranking = ranking._replace(measure=in_terms_of_logs(ranking.measure) if len(items) > 1 else "QWK")
    sources = "; ".join(manifest.get("identity", {}).get("recordings", {}).values())
    waiting = sum(found.waiting.values())
    costs = made.cost_facts(
        counts["attempts"], counts["costs"], found.answers, found.released, waiting, ranking, manifest
    )
    compared = max((rater.agreement.n for rater in ranking.raters), default=0)
    covered = gates.wrong_by_coverage(scores, scales, release["tolerance"])

    def cases(responses: Sequence[str], lead: str) -> list[Part]:
        return answers.case_folds([*_cases(tables, items, responses, rules, tolerances, study["marks"])], lead)

    typical = cases(answers.middle(scores), "Typical held-out answers, picked by rule (median risk), not by hand")
    worst = cases(answers.worst(scores, scales), "The worst disagreements, at most two of a question")
    preferred = preference_section(figures, counts["lost_verdicts"])
    sections: tuple[Section | None, ...] = (
        trust_section(logged, scores, scales, figures) if logged else None,
        gates.use_section(verdicts, rules, figures, covered, wrong, why_nothing, compared),
        answers.answers_section(
            tables.answers.to_pylist() if tables.answers else [],
            tables.links,
            by_scope(rules),
            scales,
            tolerances,
            typical,
            ("Criterion", "Case") if logged else ("Question", "Student"),
        ),
        agreement_section(figures, ranking, int(scores["target"].notna().sum())),
        worth_section(tables.worth, release, manifest.get("costs", {}).get("minutes")) if tables.worth else None,
        preferred,
        errors_section(scores, scales, figures, worst),
        evidence_section(
            counts["worth"][0], counts["quotes"], counts["decisions"], counts["supports"], counts["to_read"], figures
        ),
        raters_section(figures, answers.persons(scores), tables.rater_effects.to_pylist()),
        made.made_section(
            counts,
            study,
            manifest,
            tables.bundles,
            figures,
            tables.candidates.to_pylist(),
            calibrations,
            checks,
            costs,
        ),
    )
    if logged:
        sections = (sections[0], *(section and section_of_log(section) for section in sections[1:]))
    remarks = _remarks(counts, figures, verdicts, checks)
    nobody_scored = not (found.by_people or any(row["n"] for row in rules) or scores["target"].notna().any())
    if preferred and nobody_scored:  # the study is about preferences
        shown = [
            section for section in sections if section and section.id not in OF_SCORES and section is not preferred
        ]
        found = found._replace(sentence=f"{preferred.title}.", promise=NO_SCORES, caution="", answers=0, waiting={})
        looks = [remark for remark in remarks if remark[1] not in OF_SCORES]
        first = [body(TEMPLATE, "looks", looks)] if looks else []
        page = Page(
            "Run report", study["name"], found.sentence, (preferred, *shown), manifest["written"][:10], NO_SCORES
        )
        lines = preference_lines(figures, counts["lost_verdicts"])
        return View(replace(page, parts=first), found, "", ranking, sources, nothing, lines)
    looks = gates.looks(verdicts, figures, remarks)
    looks = [(in_terms_of_logs(words), anchor) for words, anchor in looks] if logged else looks
    short = {why: why.partition(":")[0] for why in found.waiting}
    times = Counter(short.values())
    reasons = {short[why] if times[short[why]] == 1 else why: n for why, n in found.waiting.items()}
    parts = [
        ("mkd", found.by_people, "with people's scores"),
        ("rel", found.released, "released"),
        ("ppl", sum(found.waiting.values()), "to people"),
    ]
    bar = {"parts": [part for part in parts if part[1]], "waiting": waiting, "reasons": reasons}
    side: list[Part] = [body(TEMPLATE, "looks", looks)] if looks else []
    side.append(Text(next_step(found, rules, "STUDY.yaml", has_review, bool(logged)), "note lines"))
    worth = WorthOfQuotes(counts["worth"][0]).sentence
    if worth:
        side.append(Text(f"{worth}.", "note"))
    if sources:
        side.append(Text(f"The judge's {sources.replace('replies recorded', 'replies were recorded')}.", "note"))
    head: list[Part] = [
        body(TEMPLATE, "outcome", bar),
        *([Text(found.caution, "caution")] if found.caution else []),
        Columns([top_table(ranking, bool(logged)), side]),
    ]
    lead = f"{why_nothing} A score is wrong where it is {wrong}." if why_nothing and not nothing else why_nothing
    page = Page(
        "Judge report" if logged else "Run report",
        study["name"],
        found.sentence,
        tuple(section for section in sections if section is not None),
        date=manifest["written"][:10],
        lead=f"{told} {found.promise or lead}".strip(),
        parts=head,
    )
    return View(
        page, found, why_nothing, ranking, sources, nothing, preference_lines(figures, counts["lost_verdicts"]), told
    )


def _cases(
    tables: Tables,
    items: Mapping[str, Row],
    responses: Sequence[str],
    rules: Rows,
    tolerances: Mapping[str, float],
    marks: str,
) -> list[Record]:
    """These responses, shown whole."""
    rows = tables.scores.set_index("response_id", drop=False).loc[list(responses)].to_dict("records")
    judgments, shown = tables.judgments.to_pylist(), []
    for row in rows:
        item = items[row["item_id"]]
        response = row["response_id"]
        of_response = [judgment for judgment in judgments if judgment["response_id"] == response]
        by_people = marks == "grade" and any(pd.notna(row[f"human:{name}"]) for name in answers.persons(row))
        goes = answers.destination(row, by_scope(rules), tolerances[row["item_id"]], by_people)
        bundle = tables.bundles[item["rubric_id"]]
        shown.append(answers.shown_case(row, item["question"], bundle, of_response, tables.texts[response], goes))
    return shown


def _remarks(counts: Mapping[str, Rows], figures: Figures, verdicts: Rows, checks: Rows) -> list[tuple[str, str]]:
    """What else there is to look at first, and where."""
    found = made.check_counts(checks)
    broken = found["failed"] + found["could not run"]
    remarks = [
        (gates.broken_promises(verdicts), "use"),
        (WorthOfQuotes(counts["worth"][0]).warning, "evidence"),
        (alike(counts["alike"]), "answers"),
        (worst_item(figures), "agreement"),
        (f"{say.plural(broken, 'check')} failed or could not run" if broken else "", "made"),
        (f"{say.plural(found['warned'], 'warning')} from the checkpoints" if found["warned"] else "", "made"),
    ]
    return [remark for remark in remarks if remark[0]]


def nothing_scored(lost: Rows) -> str:
    """That the judge scored nothing of what it was asked, and why most often, in a sentence; '' where it did.

    lost: reason, most frequent error of a backend with it, and how many gradings, most first; none where some have
    scores.
    """
    if not lost:
        return ""
    most = lost[0]
    every = sum(row["n"] for row in lost)
    said = f": {most['error']}" if most["error"] else ""
    return f"Nothing was scored: {UNSCORED_REASONS[most['reason']]} ({most['n']:,} of {every:,}){said}."


def alike(judged: Rows) -> str:
    """A judge that says (nearly) the same of every answer, in a sentence; '' of any other.

    judged: of every question with several scored answers, how many these are and how many have its most frequent score
    before calibration.
    """
    answers, same = (sum(row[name] for row in judged) for name in ("answers", "same"))
    if answers < FEWEST_ALIKE or same < ALIKE * answers:
        return ""
    one = "one and the same score" if len(judged) == 1 else "the same score as the others to their question"
    return f"The judge hardly tells answers apart: it gave {say.count(same)} of {say.plural(answers, 'answer')} {one}."


# What the command prints at the end and leaves in Prefect's UI: the verdict, what to do next, all figures as tables.

SHOWN = ("qwk", "qwk_item_mean", "icc", "mae", "within_1")


def state(found: ReleaseVerdict, gates: Rows) -> str:
    """What came of a run in a few words: 96 of 160 released, 7 gates missed. gates: rows of `verdicts`."""
    missed = sum(gate["outcome"] == "fail" for gate in gates)
    if not found.answers:
        return found.sentence
    words = [f"{say.count(found.by_people)} marked by people"] if found.by_people else []
    words.append(f"{say.count(found.released)} of {say.count(found.answers)} released")
    return ", ".join([*words, f"{say.plural(missed, 'gate')} missed"] if missed else words)


def next_step(
    found: ReleaseVerdict, rules: Rows, study: str | None, has_review: bool = True, is_log: bool = False
) -> str:
    """What to do next, with the command to type: one that does not refuse.

    rules: rows of `release_rules`; study: what to type behind a command about this study, None where its commands would
    not find this run; has_review: whether people can review it where its tables are (votes need a folder); is_log:
    whether it calibrates the judge of a log.
    """
    if study is None:
        return (
            "Next: write what --model, --url and --compare-with say into the study file and grade it: review, grades "
            "and feedback read the study as it is written."
        )
    if is_log:
        return "Next, label the answers that teach most:\n  rubricflow label LOG --labels LABELS.csv"
    if not rules:
        return f"Next, find the answers that people should score first:\n  rubricflow next {study} --to labels.csv"
    grades = f"rubricflow grades {study} --to grades.xlsx"
    if not found.waiting:
        return f"Next, list the grades:\n  {grades}"
    if not has_review:
        return f"Next, list the grades (people can review a study whose warehouse is a folder):\n  {grades}"
    return (
        f"Next, open the page on which people score the rest, then list all:\n  rubricflow review {study}\n  {grades}"
    )


def figure_tables(metrics: Rows, gates: Rows) -> list[Table]:
    """Agreement in every slice, the machine with the target before and after calibration and people with each other;
    and the gates."""
    rows = []
    for row in metrics:
        if row["metric"] in SHOWN and (row["rater_a"] == "target") != (row["stage"] == "human"):
            figure = Cell(row["value"], row["low"], row["high"], None, 2, "interval", row["clusters"])
            name = row["slice"] if row["value_of"] == "all" else f"{row['slice']} {row['value_of']}"
            rows.append((name, row["metric"], STAGES[row["stage"]], figure, count(row["n"])))
    rows.sort(key=lambda cells: str(cells[0]) != "all")
    judged = []
    for gate in gates:
        where = " ".join(name for name in (gate["slice"], gate["value_of"]) if name != "all")
        bounds = " to ".join("" if gate[end] is None else f"{gate[end]:g}" for end in ("least", "most"))
        estimate = Cell(gate["estimate"], gate["low"], gate["high"], None, 2, "interval", gate["clusters"])
        todo = "" if gate["outcome"] == "pass" else gate["if_missed"]
        name = f"{gate['gate']}: {where}" if where else gate["gate"]
        judged.append((name, gate["outcome"], estimate, bounds, count(gate["n"]), todo))
    heads = ("gate", "outcome", "estimate", "least to most", "n", "if missed")
    title = "Agreement with the target on held-out answers, and of people with people"
    return [
        Table("agreement", title, ("slice", "metric", "who", "figure", "n"), rows),
        Table("gates", "Gates", heads, judged),
    ]
