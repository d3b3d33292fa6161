"""How the scores were made: what was read and lost, calibration, calls and money, checks, and what figures mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from markupsafe import Markup

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS, MEASURED
from rubricflow.tasks.core.contracts.tables.judging import CALL_ROLES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import (
    MOST,
    Facts,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
    long_list,
)
from rubricflow.tasks.core.display.table import Cell, Row, Rows
from rubricflow.tasks.core.display.worth import jury_sentences
from rubricflow.tasks.core.llm.prices import money
from rubricflow.tasks.core.stats.scores import FAIR, MEAN
from rubricflow.tasks.grading.report.agreement import MACHINE, WORDS, Ranking, made_of
from rubricflow.tasks.grading.report.figures import Figures

FEW_DOUBLY_SCORED = 100
"""Responses of two people below which figures about true scores are unsteady."""
TARGETS = {
    MEAN: "mean of the persons who scored",
    FAIR: "fair score: what an average rater would have given, by a model of who marked what",
}
Fact = tuple[str, str | Markup]


def made_section(
    counts: Mapping[str, Rows],
    study: Row,
    manifest: Row,
    bundles: Mapping[str, Bundle],
    figures: Figures,
    candidates: Rows,
    calibrations: Rows,
    checks: Rows,
    costs: Sequence[Fact],
) -> Section:
    """The last section. counts: as counts.py makes them; study, manifest: as plain values; candidates, calibrations,
    checks: rows of these tables; costs: as `cost_facts` makes them."""
    judge, target = study["judge"], study["evaluation"]["target"]
    git = manifest.get("git") or {}
    commit = f"{git['commit'][:12]}{', with uncommitted changes' if git.get('dirty') else ''}" if git else say.NOT_KNOWN
    ids = sorted({bundle.bundle_id[:12] for bundle in bundles.values()})
    intervals = "none"
    if figures.resampled:
        draws = say.plural(study["evaluation"]["draws"], "bootstrap draw")
        intervals = f"95%, {draws} of whole {figures.resampled}s"
    juries = []
    for jury in sorted({row["jury"] for row in counts["jurors"]}):
        rules = [row for row in counts["jury_rules"] if row["rater_id"] == jury]
        jurors = [row for row in counts["jurors"] if row["jury"] == jury]
        juries.append(("Jury", "; ".join(jury_sentences(rules, jurors))))
    checked = check_counts(checks) | {"rows in quarantine": sum(row["n"] for row in counts["quarantine"])}
    outcomes = ", ".join(f"{say.count(n)} {words}" for words, n in checked.items() if n)
    link = Markup('{}. One by one: <a href="data_docs/index.html">the Data Docs of this run</a>')
    facts: list[Fact] = [
        *data_facts(counts),
        ("Judge", ", ".join(str(judge[key]) for key in ("protocol", "backend", "model") if judge.get(key))),
        *juries,
        ("Rubrics", f"{say.plural(len(ids), 'bundle')}: {', '.join(ids[:6])}{' …' if len(ids) > 6 else ''}"),
        ("Human score that counts", TARGETS.get(target) or say.name(target)),
        ("Score made of", made_of(calibrations)),
        ("The same answer again", _stability(counts["repeats"][0])),
        ("Intervals", "; ".join((intervals, *figures.cautions))),
        ("Checks", link.format(outcomes or "none was run")),
        ("Run", f"{manifest['run_id']}, written {manifest['written']}, commit {commit}"),
        ("Grade digest", f"{manifest['grade_digest'][:16]}: the same inputs give the same scores"),
    ]
    oddities = [
        Text(f"{say.count(row['responses'])}: {INPUT_WARNINGS[row['kind']]} ({', '.join(row['examples'])})", "note")
        for row in counts["input_warnings"]
    ]
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    split = ", ".join(f"{key} {value}" for key, value in study["split"].items())
    meanings = (*MEANINGS, ("Split", split), ("Versions", versions))
    asked = [Text("To look at in the answers", "h3"), *oddities] if oddities else []
    parts: list[Part] = [
        Facts(facts),
        *asked,
        *_calibration(figures, candidates, calibrations),
        Fold("Calls, tokens, time, money", [Facts(costs)]),
        *_failed_checks(checks),
        Fold("What the figures mean", [Facts(meanings)]),
    ]
    return Section("made", "How it was made", _title(figures, calibrations), parts=parts)


def data_facts(counts: Mapping[str, Rows]) -> list[Fact]:
    """How many answers there are, with a human score, held out, compared."""
    responses, whole = counts["responses"], counts["set"][0]

    def total(**wanted: Any) -> int:
        return sum(row["n"] for row in responses if all(row[name] == value for name, value in wanted.items()))

    held_out = [row for row in responses if row["labelled"] and row["split"] in MEASURED]
    compared = sum(row["n"] for row in held_out if row["scored"])
    doubles = sum(row["n"] for row in held_out if row["persons"] >= 2)
    splits = {split: total(labelled=True, split=split) for split in ("train", "calibration", "chosen")}
    learned = [f"{say.count(n)} in the {split} split" for split, n in splits.items() if n]
    measured = f"{say.count(sum(row['n'] for row in held_out))} held out ({say.count(compared)} compared"
    few = "; fewer than 100: figures of true scores are unsteady" if doubles < FEW_DOUBLY_SCORED else ""
    nameless = whole["responses"] - whole["with_author"]
    authors = (
        f"{say.plural(whole['authors'], 'author')}{f' ({say.count(nameless)} answers name none)' if nameless else ''}"
    )
    return [
        (
            "Answers",
            f"{say.count(whole['responses'])} to {say.plural(whole['items'], 'question')} by {authors}; "
            f"{say.count(total(scored=True))} scored",
        ),
        (
            "With a human score",
            "; ".join(
                (say.count(total(labelled=True)), *learned, f"{measured}, {doubles:,} scored by two people{few})")
            ),
        ),
    ]


def _stability(repeats: Row) -> str:
    asked = repeats["responses"]
    if not asked:
        return "not tested, each answer was judged once; “samples: 5” in the study tests it"
    same = say.share(repeats["same"] / asked)
    return f"{same} of {say.plural(asked, 'answer')} got the same score every time (flag below 95%)"


def _title(figures: Figures, calibrations: Rows) -> str:
    used = sorted({row["method"] for row in calibrations})
    if not used:
        return "Scores are not calibrated: no mapping was fitted"
    if used == ["identity"]:
        return "Calibration kept the raw scores"
    name = f"Calibration ({', '.join(used)})"
    for metric in ("qwk_item_mean", "qwk"):
        before = figures.machine(metric, "raw").value
        after = figures.machine(metric).value
        if before is not None and after is not None:
            shift = figures.machine("bias", "raw").value
            shift_after = figures.machine("bias").value
            moved = f", the mean shift from {say.signed(shift)} to {say.signed(shift_after or 0)}" if shift else ""
            return f"{name} moves agreement from QWK {say.number(before)} to {say.number(after)}{moved}"
    return f"{name} was fitted; whether it helps is not known"


def _calibration(figures: Figures, candidates: Rows, calibrations: Rows) -> list[Part]:
    """What calibration changed, the methods tried inside folds and the mappings in use."""
    if not calibrations:
        return []
    stages = {"raw": "before", "calibrated": "after"}
    changed = []
    for name, stage in product(("qwk", "qwk_item_mean", "rmse", "bias"), stages):
        figure = Figure(figures.machine(name, stage), figures.unit(name))
        changed.append((f"{figures.metrics[name].title}, {stages[stage]}", figure))
    parts = figure_table(changed)
    order = sorted(
        candidates, key=lambda row: (row["scope"] != "pooled", row["scope"], not row["chosen"], row["method"])
    )
    rows = []
    for row in order:
        figures_of = (Cell(row[name], digits=2) for name in ("qwk", "qwk_within", "rmse", "sd_ratio"))
        behind = "–" if row["behind"] is None else say.number(row["behind"], 3)
        note = ": ".join(filter(None, ("chosen" if row["chosen"] else "", row["note"])))
        rows.append((Named(row["method"], _scope(row["scope"])), *figures_of, Named(behind), row["n"], note))
    heads = ("Method, tried inside folds", "QWK", "QWK within items", "RMSE", "spread", "behind the standard", "n", "")
    marks = ["chosen" if row["chosen"] else "" for row in order]
    parts += long_list(Grid(heads, rows, "stack", marks=marks), "trials", "candidates", "more")
    used = [(f"{_scope(row['scope'])}: {row['method']}", row["reason"]) for row in calibrations[:MOST]]
    return [Fold("Calibration: what it changed, what was tried", [*parts, Facts(used)])]


def _scope(scope: str) -> str:
    return "all items together" if scope == "pooled" else say.name(scope)


# Calls and money.


def cost_facts(
    attempts: Rows, costs: Rows, answers: int, released: int, waiting: int, ranking: Ranking, manifest: Row
) -> list[Fact]:
    """Calls, tokens, time and money, and what is ahead of people; what nobody knows is said. attempts: rows of that
    query; costs: rows by model of the view `costs`; manifest: of a run of today's version or an earlier one, which knew
    no prices."""
    ahead = ("People's work ahead", say.plural(waiting, "case"))
    if not attempts:
        return [("Calls", "none: nothing was asked"), ahead]
    calls, stored, failed, violated = (
        sum(row["calls"] for row in attempts if row[name]) for name in ("calls", "stored", "failed", "violated")
    )
    roles = Counter[str]()
    for row in attempts:
        roles[row["role"]] += row["calls"]
    by_role = ", ".join(f"{say.count(n)} {CALL_ROLES.get(role, say.worded(role))}" for role, n in roles.most_common())
    tokens_in, tokens_out, held, cacheable, seconds = (
        _sum(attempts, name)
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cacheable_tokens", "latency_s")
    )
    tokens = cached = "not known: the backend counts none"
    if tokens_in is not None or tokens_out is not None:
        tokens = f"{int(tokens_in or 0):,} in, {int(tokens_out or 0):,} out"
    if held is not None and cacheable:
        cached = f"{say.share(held / cacheable)} of the prompts' tokens"
    return [
        ("Model", ", ".join(say.name(model) for model in sorted({row["model"] for row in attempts})[:4])),
        ("Calls", f"{say.count(calls)}: {by_role}"),
        ("From the reply store", f"{say.count(stored)}, not asked again"),
        ("Without a reply", say.count(failed)),
        ("Replies that broke a rule", f"{say.count(violated)} ({say.share(violated / calls)})"),
        ("Tokens", tokens),
        ("Held by the engine's prefix cache", cached),
        *_money(costs, answers, released, ranking, manifest),
        ("Time in calls", "not known: the backend tells none" if seconds is None else say.duration(seconds)),
        ahead,
    ]


def _sum(attempts: Rows, column: str) -> float | None:
    """The sum of a column's numbers; None where it has none."""
    defined = [row[column] for row in attempts if row[column] is not None]
    return sum(defined) if defined else None


def _money(costs: Rows, answers: int, released: int, ranking: Ranking, manifest: Row) -> list[Fact]:
    known = {"prices": {}, "minutes": None, "currency": "USD", "usd": 1.0, **manifest.get("costs", {})}
    unknown = sum(row["unknown"] for row in costs)
    if unknown == sum(row["calls"] for row in costs):
        names = ", ".join(say.name(row["model"]) for row in costs)
        return [("Cost", f"not known: nobody says what {names} costs")]
    total = sum(row["usd"] or 0.0 for row in costs)
    shown = partial(money, currency=known["currency"], rate=known["usd"])
    least = f"at least; {say.plural(unknown, 'call')} of unknown cost; " if unknown else ""
    hours = released * (known["minutes"] or 0) / 60
    saved = f"{shown(total / hours)}, at {known['minutes']:g} minutes a response" if hours else "none was released"
    agreement = {rater.name: rater.agreement.value for rater in ranking.raters}
    baselines = [value for name, value in agreement.items() if name in (WORDS, "length alone") and value is not None]
    point = say.NOT_KNOWN
    own = agreement.get(MACHINE)
    if own is not None and baselines:
        points = 100 * (own - max(baselines))
        point = f"{shown(total / points)} for each of {points:.1f} points of QWK" if points > 0 else "none was gained"
    return [
        ("Cost", f"{shown(total)} ({least}{'; '.join(known['prices'].values())})"),
        ("A response", shown(total / answers)),
        ("A released response", shown(total / released) if released else "none was released"),
        ("An hour of a person's time saved", saved if known["minutes"] else "the study names no money.minutes"),
        ("A point of agreement more than the baseline", point),
    ]


# Checks.


def check_counts(checks: Rows) -> dict[str, int]:
    """What became of the checks, in words: how many."""
    outcomes = Counter((row["severity"], row["outcome"]) for row in checks)
    return {
        "passed": sum(row["outcome"] == "passed" for row in checks),
        "warned": outcomes["warning", "failed"],
        "failed": outcomes["critical", "failed"],
        "could not run": sum(row["outcome"] == "error" for row in checks),
    }


def _failed_checks(checks: Rows) -> list[Part]:
    rows = []
    for row in sorted(checks, key=lambda row: (row["outcome"] != "error", row["severity"] != "critical")):
        if row["outcome"] != "passed":
            outcome = "could not run" if row["outcome"] == "error" else row["severity"]
            share = Named(f"{say.count(row['unexpected'])} of {say.count(row['rows'])}")
            rows.append((row["rule"], f"{row['table_name']}, after {row['stage']}", row["column"], outcome, share))
    if not rows:
        return []
    table = Grid(("Check", "table", "column", "outcome", "rows"), rows[:MOST], "stack")
    return [Fold("Checks that did not pass", [table, *left_out(rows, "checks", "checks")])]


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
