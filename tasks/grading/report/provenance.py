"""What was read, lost and held out, what the work took, what the checks found, and what the scores were made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS, MEASURED, UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.judging import CALL_ROLES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import body
from rubricflow.tasks.core.display.section import (
    MOST,
    Columns,
    Content,
    Facts,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    left_out,
)
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.scores import FAIR, MEAN
from rubricflow.tasks.grading.report.charts import TEMPLATE
from rubricflow.tasks.grading.report.figures import Figures, reasons, total
from rubricflow.tasks.grading.report.money import Fact

FEW_DOUBLY_SCORED = 100
"""Responses of two people below which figures about true scores are unsteady."""
NONE_LABELLED = ", none of them with a human score"
TARGETS = {
    MEAN: "mean of the persons who scored",
    FAIR: "fair score: what an average rater would have given, by a model of who marked what",
}
Step = tuple[str, int, float, tuple[str, ...]]
"""A step of a funnel: name, count, share of the first, and every loss on the way to it."""


def data_section(responses: Rows, totals: Row, quarantined: int, warnings: Rows = ()) -> Section:
    """The funnel of all responses and that of the labelled ones, with every loss by name, and what is odd about them.
    totals: of the whole set, items, authors and responses; warnings: rows of `input_warnings`."""
    labelled = [row for row in responses if row["labelled"]]
    held_out = total(labelled, lambda row: row["split"] in MEASURED)
    scored = total(responses, lambda row: row["scored"])
    end = f"; {say.count(held_out)} with a human score held out to judge by" if labelled else NONE_LABELLED
    every = {"label": "All responses", "steps": funnel(responses)}
    marked = {"label": "Responses with a human score", "steps": labelled_funnel(responses)}
    columns: tuple[list[Part], ...] = (
        [Text("All responses", "h3"), body(TEMPLATE, "funnel", every)],
        [Text("Those with a human score", "h3"), body(TEMPLATE, "funnel", marked)],
    )
    parts: list[Part] = [Columns(columns)]
    if warnings:
        parts += [Text("To look at in the answers", "h3"), body(TEMPLATE, "oddities", [*map(_oddity, warnings)])]
    nameless = totals["responses"] - totals["with_author"]
    doubles = total(labelled, lambda row: row["split"] in MEASURED and row["persons"] >= 2)
    unsteady = f"fewer than {FEW_DOUBLY_SCORED}: true-score figures are unsteady" if doubles < FEW_DOUBLY_SCORED else ""
    splits = ("train", "calibration", "test", *(("chosen",) if _of_split(responses, "chosen") else ()))
    counts: list[tuple[Content, ...]] = [
        ("items", totals["items"]),
        (Named("authors", f"{say.count(nameless)} responses name none" if nameless else ""), totals["authors"]),
        *((f"in the {split} split", _of_split(responses, split)) for split in splits),
        (Named("held out and scored by two people", unsteady), doubles),
        ("rows in quarantine", quarantined),
    ]
    parts.append(Fold("Counts", [Grid((), counts, "tight narrow")]))
    title = f"{say.count(scored)} of {say.plural(total(responses), 'response')} scored{end}"
    return Section("data", "Data: what was scored, lost, held out?", title, parts=parts)


def _of_split(rows: Rows, split: str) -> int:
    return total(rows, lambda row: row["split"] == split)


def _oddity(row: Row) -> tuple[int, str, str]:
    """How many responses, what is odd, and the first of them by their ids."""
    more = ", …" if row["responses"] > len(row["examples"]) else ""
    return row["responses"], INPUT_WARNINGS[row["kind"]], ", ".join(row["examples"]) + more


def funnel(responses: Rows) -> list[Step]:
    """All responses, those with a score, and those whose score goes out."""
    scored = [row for row in responses if row["scored"]]
    undecided = [row for row in scored if not row["by_people"]]
    marked = total(scored) - total(undecided)
    released = total(undecided, lambda row: row["route"] == "release")
    lost = _losses((row for row in responses if not row["scored"]), "unscored_reason", UNSCORED_REASONS)
    withheld = _losses((row for row in undecided if row["route"] != "release"), "route_reason", ROUTE_REASONS)
    by_people = (f"{say.count(marked)} marked by people",) if marked else ()
    steps = (
        ("read", total(responses), ()),
        ("scored", total(scored), lost),
        ("released", released, by_people + withheld),
    )
    return _steps(total(responses), steps)


def labelled_funnel(responses: Rows) -> list[Step]:
    """The responses with a human score, those held out, compared, and released of these."""
    every = total(responses)
    labelled = [row for row in responses if row["labelled"]]
    held_out = [row for row in labelled if row["split"] in MEASURED]
    compared = [row for row in held_out if row["scored"]]
    released = total(compared, lambda row: row["route"] == "release")
    unlabelled = every - total(labelled)
    without = (f"{say.count(unlabelled)} without one",) if unlabelled else ()
    splits = {split: _of_split(labelled, split) for split in ("calibration", "train", "chosen")}
    elsewhere = tuple(f"{say.count(count)} in the {split} split" for split, count in splits.items() if count)
    lost = _losses((row for row in held_out if not row["scored"]), "unscored_reason", UNSCORED_REASONS)
    return _steps(
        every,
        [
            ("with a human score", total(labelled), without),
            ("held out for this report", total(held_out), elsewhere),
            ("compared", total(compared), lost),
            ("compared, of the released", released, ()),
        ],
    )


def _steps(every: int, steps: Sequence[tuple[str, int, tuple[str, ...]]]) -> list[Step]:
    return [(name, count, count / every if every else 0.0, lost) for name, count, lost in steps]


def _losses(rows: Any, column: str, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{say.count(loss.count)} {loss.name}" for loss in reasons(rows, column, names))


def stability_section(repeats: Row) -> Section:
    """Whether the same response asked again gets the same score."""
    question, repeated = "Stability: the same answer again?", repeats["responses"]
    if not repeated:
        title = "Whether the same answer gets the same score again is untested"
        return Section("stability", question, title, missing="Untested: every response was judged once")
    same = repeats["same"] / repeated
    facts = (
        ("Judged more than once", say.plural(repeated, "response")),
        ("Times at most", say.count(repeats["asked"])),
        ("Always the same score", f"{say.share(same)} (flag below 95%)"),
        ("Mean distance of highest and lowest", f"{say.number(repeats['spread'])} points"),
    )
    title = f"Asked again, {say.share(same)} of responses get the same score every time"
    return Section("stability", question, title, facts=facts)


def cost_section(attempts: Rows, responses: int, prechecked: int, waiting: int, costs: Sequence[Fact]) -> Section:
    """Calls, tokens, time and money; and what is ahead of people."""
    question, ahead = "Cost: calls, tokens, time, money", ("People's work ahead", say.plural(waiting, "case"))
    if not attempts:
        return Section(
            "cost", question, "No model call was made", missing="Untested: nothing was asked", facts=(ahead,)
        )
    calls, stored, failed, violated = (
        sum(row["calls"] for row in attempts if row[name]) for name in ("calls", "stored", "failed", "violated")
    )
    roles = Counter[str]()
    for row in attempts:
        roles[row["role"]] += row["calls"]
    by_role = [f"{say.count(n)} {CALL_ROLES.get(role, say.worded(role))}" for role, n in roles.most_common()]
    models = sorted({row["model"] for row in attempts})
    seconds = _column_sum(attempts, "latency_s")
    cached, cacheable = (_column_sum(attempts, column) for column in ("cached_tokens", "cacheable_tokens"))
    held = say.NOT_KNOWN
    if cached is not None and cacheable:
        held = f"{say.share(cached / cacheable)} of the prompts' tokens"
    facts = (
        ("Model", ", ".join(map(say.name, models[:4]))),
        ("Calls", f"{say.count(calls)}: {', '.join(by_role)}"),
        ("From the reply store", f"{say.count(stored)}, not asked again"),
        ("Without a reply", say.count(failed)),
        ("Replies that broke a rule", f"{say.count(violated)} ({say.share(violated / calls)})"),
        ("Settled without a call", say.plural(prechecked, "response")),
        *_tokens(attempts, calls),
        ("Held by the engine's prefix cache", held),
        *costs,
        ("Time in calls", "not known: the backend tells none" if seconds is None else say.duration(seconds)),
        ahead,
    )
    title = f"{say.plural(calls, 'call')} for {say.plural(responses, 'response')}"
    if stored:
        title += f", {say.share(stored / calls)} of them answered from the store"
    return Section("cost", question, title, facts=facts)


def _tokens(attempts: Rows, calls: int) -> list[tuple[str, str]]:
    """Tokens in and out; and the mean of a prompt by what they were spent on, shared out by characters."""
    tokens_in, tokens_out = (_column_sum(attempts, column) for column in ("prompt_tokens", "completion_tokens"))
    characters = {part: _column_sum(attempts, part) or 0.0 for part in ("bundle", "memory", "response", "repair")}
    every = sum(characters.values())
    both = by_part = "not known: the backend counts none"
    if tokens_in is not None or tokens_out is not None:
        both = f"{say.count(int(tokens_in or 0))} in, {say.count(int(tokens_out or 0))} out"
    if tokens_in is not None and every:
        shares = (f"{part} {say.count(round(tokens_in / calls * n / every))}" for part, n in characters.items() if n)
        by_part = f"{', '.join(shares)} a call (shared out by characters)"
    return [("Tokens", both), ("Tokens of a prompt", by_part)]


def _column_sum(attempts: Rows, column: str) -> float | None:
    """The sum of a column's numbers; None where it has none."""
    defined = [row[column] for row in attempts if row[column] is not None]
    return sum(defined) if defined else None


def check_counts(checks: Rows) -> dict[str, int]:
    """What became of the checks, in words: how many."""
    outcomes = Counter((row["severity"], row["outcome"]) for row in checks)
    return {
        "passed": sum(row["outcome"] == "passed" for row in checks),
        "warnings": outcomes["warning", "failed"],
        "failed": outcomes["critical", "failed"],
        "could not run": sum(row["outcome"] == "error" for row in checks),
    }


def checks_section(checks: Rows, quarantined: int) -> Section:
    """What the checkpoints found."""
    counts = check_counts(checks)
    title = f"{say.count(counts['passed'])} of {say.plural(len(checks), 'check')} passed"
    clauses = ", ".join(
        f"{say.count(n)} {name.replace('warnings', 'warned')}" for name, n in counts.items() if n and name != "passed"
    )
    title = "; ".join(filter(None, (title, clauses))) if checks else "No check was run"
    shown = "; ".join(f"{name}: {say.count(n)}" for name, n in (counts | {"rows in quarantine": quarantined}).items())
    link = Markup('{}. The checks one by one are in <a href="data_docs/index.html">the Data Docs of this run</a>.')
    parts: list[Part] = [Text(link.format(shown))]
    not_passed = [row for row in checks if row["outcome"] != "passed"]
    not_passed.sort(key=lambda row: (row["outcome"] != "error", row["severity"] != "critical"))
    rows = []
    for row in not_passed:
        outcome = "warning" if row["severity"] == "warning" else "failed"
        outcome = "could not run" if row["outcome"] == "error" else outcome
        share = Named(f"{say.count(row['unexpected'])} of {say.count(row['rows'])}")
        rows.append((row["rule"], f"{row['table_name']}, after {row['stage']}", row["column"], outcome, share))
    if rows:
        heads = ("Check", "table", "column", "outcome", "rows")
        parts += [Grid(heads, rows[:MOST], "stack"), *left_out(rows, "checks", "checks")]
    question = "Checkpoints: were the tables sound?"
    return Section("checks", question, title, parts=parts)


def limits_section(study: Row, manifest: Row, bundles: Mapping[str, Bundle], figures: Figures) -> Section:
    """What the scores were made with, and what the figures mean."""
    judge, target, draws = study["judge"], study["evaluation"]["target"], study["evaluation"]["draws"]
    ids = sorted({bundle.bundle_id for bundle in bundles.values()})
    rubrics = f"{', '.join(bundle_id[:12] for bundle_id in ids[:6])}{' …' if len(ids) > 6 else ''}"
    git = manifest.get("git") or {}
    commit = f"{git['commit'][:12]}{', with uncommitted changes' if git.get('dirty') else ''}" if git else say.NOT_KNOWN
    intervals = "none"
    if figures.resampled:
        intervals = f"95%, {say.plural(draws, 'bootstrap draw')} of whole {figures.resampled}s"
    if figures.undefined_draws:
        intervals += f"; a metric was undefined in up to {say.count(figures.undefined_draws)} of them"
    facts = (
        ("Run", manifest["run_id"]),
        ("Grade digest", manifest["grade_digest"]),
        ("Rubrics", f"{say.plural(len(ids), 'bundle')}: {rubrics}"),
        ("Judge", ", ".join(str(judge[key]) for key in ("protocol", "backend", "model") if judge.get(key))),
        ("Human score that counts", TARGETS.get(target) or say.name(target)),
        ("Split", ", ".join(f"{key} {value}" for key, value in study["split"].items())),
        ("Intervals", "; ".join((intervals, *figures.cautions))),
        ("Code", f"commit {commit}"),
        ("Written", manifest["written"]),
    )
    digest = Markup(
        "The grade digest changes if and only if something changes that can change a score. Run the study file of "
        "<code>{}</code> again with <code>rubricflow grade</code>: it resumes itself and asks for no reply again that "
        "had arrived."
    )
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    columns = Columns([[Facts(facts)], [Text(digest.format(study["name"]), ""), Text(versions, "note")]])
    parts = (columns, Fold("What the figures mean", [Facts(MEANINGS)]))
    return Section("limits", "Limits: how was it done?", "The same inputs give the same scores", parts=parts)


MEANINGS = (
    (
        "QWK",
        "Quadratic weighted kappa of the rounded scores over the full scale: agreement beyond chance, large errors "
        "weighing more; 1 is full agreement.",
    ),
    ("Exact, within one", "Share of scores on the same level, or at most one level apart."),
    (
        "SMD, DSM",
        "Machine mean less human mean in SD of the human scores; for groups, the mean difference of z-scores.",
    ),
    ("Ceiling", "The QWK that a perfect judge of the true score would reach against these human scores."),
    ("PRMSE", "1 less the mean squared error to the true score over its variance, human noise taken out."),
    ("Interval", "95%, percentile bootstrap of whole authors where they are known, else of responses."),
    (
        "Conformal interval",
        "Holds another human's score at the stated rate on average, for responses like these; not for each item or "
        "group.",
    ),
    ("Unscored", "No usable verdict: no number but a reason; never 0, and always to people."),
)
