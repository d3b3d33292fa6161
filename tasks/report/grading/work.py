"""How the work was done: quotes, repeats, cost, checkpoints, and what it was done with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.contracts.bundle import Bundle
from tasks.contracts.tables.judging import ACTIONS, CALL_ROLES, QUOTES
from tasks.display import say
from tasks.report.grading.figures import Figures
from tasks.report.grading.parts import (
    Checkpoints,
    DecisionsSection,
    Facts,
    Failed,
    Grounding,
    LimitsSection,
    NamedCount,
    listed,
)
from tasks.stats.target import FAIR, MEAN

Row = Mapping[str, Any]
CLOSE = 0.02
"""Gap between confidence and accuracy below which nothing is made of it."""
PARTS = ("bundle", "memory", "response", "repair")
TARGETS = {
    MEAN: "mean of the persons who scored",
    FAIR: "fair score: what an average rater would have given, by a model of who marked what",
}


def grounding(
    quotes: Sequence[Row], decisions: Sequence[Row], conflicts: Sequence[Row], responses: int, figures: Figures
) -> Grounding:
    """What became of the quotes, and which criteria go with people's scores."""
    told = {row["status"]: row["n"] for row in quotes}
    every = sum(told.values())
    shares = tuple(
        NamedCount(says.capitalize(), told.get(status, 0), told.get(status, 0) / every)
        for status, says in QUOTES.items()
        if every
    )
    taken = sum(row["n"] for row in decisions)
    done = Counter({row["action"]: 0 for row in decisions})
    for row in decisions:
        done[row["action"]] += row["n"]
    free = sum(row["n"] for row in decisions if row["ungrounded"])
    open_ = sum(row["n"] for row in decisions if row["unscored"])
    actions = tuple(
        NamedCount(text, n, n / taken)
        for text, n in (
            *((says.capitalize(), done[action]) for action, says in ACTIONS.items() if action != "none"),
            ("Credit that asks for no quote", free),
            ("Criteria without a usable verdict", open_),
        )
        if taken
    )
    actions += tuple(
        NamedCount("Responses in which criteria that exclude each other were found; not both count", n, n / responses)
        for n in (row["n"] for row in conflicts)
    )
    criteria = [
        (
            say.name(name),
            figures.any("criterion_r", "criterion", name),
            figures.any("criterion_partial_r", "criterion", name),
        )
        for name in figures.values("criterion_r", "criterion")
    ]
    criteria.sort(key=lambda row: -abs(row[1].value or 0.0))
    if not every:
        why = "this judge gave no quotes" if taken else "this judge took no decision on single criteria"
        return Grounding("Whether credit is grounded is not known", (), actions, listed(criteria), why)
    stand = say.share(told.get("verified", 0) / every)
    title = f"{stand} of {say.plural(every, 'quote')} stand in the text where they were cited"
    if told.get("fabricated"):
        title += f"; {say.count(told['fabricated'])} {'was' if told['fabricated'] == 1 else 'were'} invented"
    return Grounding(title, shares, actions, listed(criteria))


def decisions(figures: Figures) -> DecisionsSection | None:
    """How far the judge's probabilities of its decisions can be believed; None where there is nothing to hold them
    against."""
    bins = figures.values("decision_accuracy", "confidence")
    error = figures.machine("decision_ece", "raw")
    if not bins or error.value is None:
        return None
    sure, right = (figures.machine(f"decision_{name}", "raw") for name in ("confidence", "accuracy"))
    told = tuple(figures.figure(one, figures.machine(one.name, "raw")) for one in figures.listed("decisions"))
    curve = tuple(
        (
            figures.machine("decision_confidence", "raw", "confidence", name).value or 0.0,
            figures.machine("decision_accuracy", "raw", "confidence", name),
        )
        for name in bins
    )
    claimed, kept = sure.value or 0.0, right.value or 0.0
    gap = claimed - kept
    start = f"The judge is {say.share(claimed)} sure of its decisions and right in {say.share(kept)}"
    word = "surer than it is right" if gap > 0 else "less sure than it is right"
    return DecisionsSection(f"{start}: {word}" if abs(gap) > CLOSE else start, curve, told)


def stability(repeats: Row) -> Facts:
    """Whether the same response asked again gets the same score."""
    asked = repeats["responses"]
    if not asked:
        return Facts(
            "Whether the same answer gets the same score again is untested", (), "every response was judged once"
        )
    same = repeats["same"] / asked
    facts = (
        ("Judged more than once", say.plural(asked, "response")),
        ("Times at most", say.count(repeats["asked"])),
        ("Always the same score", f"{say.share(same)} (flag below 95%)"),
        ("Mean distance of highest and lowest", f"{say.number(repeats['spread'])} points"),
    )
    return Facts(f"Asked again, {say.share(same)} of responses get the same score every time", facts)


def cost(attempts: Sequence[Row], responses: int, prechecked: int, waiting: int) -> Facts:
    """Calls, tokens and time; and what is ahead of people."""
    if not attempts:
        return Facts(
            "No model call was made", (("People's work ahead", say.plural(waiting, "case")),), "nothing was asked"
        )
    calls = sum(row["calls"] for row in attempts)
    stored = sum(row["calls"] for row in attempts if row["stored"])
    failed = sum(row["calls"] for row in attempts if row["failed"])
    violated = sum(row["calls"] for row in attempts if row["violated"])
    roles = Counter({row["role"]: 0 for row in attempts})
    for row in attempts:
        roles[row["role"]] += row["calls"]
    models = sorted({row["model"] for row in attempts})
    seconds = _sum(row["latency_s"] for row in attempts)
    facts = (
        ("Model", ", ".join(map(say.name, models[:4]))),
        (
            "Calls",
            f"{say.count(calls)}: "
            + ", ".join(f"{say.count(n)} {CALL_ROLES.get(role, say.worded(role))}" for role, n in roles.most_common()),
        ),
        ("From the reply store", f"{say.count(stored)}, not asked again"),
        ("Without a reply", say.count(failed)),
        ("Replies that broke a rule", f"{say.count(violated)} ({say.share(violated / calls)})"),
        ("Settled without a call", say.plural(prechecked, "response")),
        ("Tokens", _tokens(attempts)),
        ("Tokens of a prompt", _by_part(attempts, calls)),
        ("Held by the engine's prefix cache", _cached(attempts)),
        (
            "Time in calls",
            "not known: the backend tells none" if seconds is None else say.duration(seconds),
        ),
        ("People's work ahead", say.plural(waiting, "case")),
    )
    title = f"{say.plural(calls, 'call')} for {say.plural(responses, 'response')}"
    if stored:
        title += f", {say.share(stored / calls)} of them answered from the store"
    return Facts(title, facts)


def _tokens(attempts: Sequence[Row]) -> str:
    given, made = (_sum(row[column] for row in attempts) for column in ("prompt_tokens", "completion_tokens"))
    if given is None and made is None:
        return "not known: the backend counts none"
    return f"{say.count(int(given or 0))} in, {say.count(int(made or 0))} out"


def _by_part(attempts: Sequence[Row], calls: int) -> str:
    """Mean tokens of a prompt by what they were spent on: the counted ones, shared out by characters."""
    given = _sum(row["prompt_tokens"] for row in attempts)
    characters = {part: _sum(row[part] for row in attempts) or 0.0 for part in PARTS}
    every = sum(characters.values())
    if given is None or not every:
        return "not known: the backend counts none"
    shares = (f"{part} {say.count(round(given / calls * n / every))}" for part, n in characters.items() if n)
    return f"{', '.join(shares)} a call (shared out by characters)"


def _cached(attempts: Sequence[Row]) -> str:
    held, asked = (_sum(row[column] for row in attempts) for column in ("cached_tokens", "cacheable_tokens"))
    return f"{say.share(held / asked)} of the prompts' tokens" if held is not None and asked else "not known"


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def checkpoints(checks: Sequence[Row], quarantine: Sequence[Row]) -> Checkpoints:
    """What the checkpoints found."""
    outcomes = Counter((row["severity"], row["outcome"]) for row in checks)
    passed = sum(n for (_, outcome), n in outcomes.items() if outcome == "passed")
    warned = outcomes["warning", "failed"]
    failed = outcomes["critical", "failed"]
    broken = sum(n for (_, outcome), n in outcomes.items() if outcome == "error")
    held = sum(row["n"] for row in quarantine)
    found = (
        NamedCount("passed", passed),
        NamedCount("warnings", warned),
        NamedCount("failed", failed),
        NamedCount("could not run", broken),
        NamedCount("rows in quarantine", held),
    )
    shown = [
        Failed(
            row["stage"],
            row["table_name"],
            row["rule"],
            row["column"],
            row["severity"],
            row["outcome"],
            row["unexpected"],
            row["rows"],
        )
        for row in sorted(checks, key=lambda row: (row["outcome"] != "error", row["severity"] != "critical"))
        if row["outcome"] != "passed"
    ]
    parts = [
        f"{say.count(n)} {word}" for n, word in ((warned, "warned"), (failed, "failed"), (broken, "could not run")) if n
    ]
    title = f"{say.count(passed)} of {say.plural(len(checks), 'check')} passed" + (
        f"; {', '.join(parts)}" if parts else ""
    )
    return Checkpoints(title if checks else "No check was run", found, listed(shown))


def limits(study: Row, manifest: Row, bundles: Mapping[str, Bundle], figures: Figures, target: str) -> LimitsSection:
    """What the scores were made with."""
    judge, evaluation = study.get("judge", {}), study.get("evaluation", {})
    ids = sorted({bundle.bundle_id for bundle in bundles.values()})
    git = manifest.get("git", {})
    commit = f"{git['commit'][:12]}{', with uncommitted changes' if git.get('dirty') else ''}" if git else say.NOT_KNOWN
    by = figures.resampled
    intervals = f"95%, {say.plural(evaluation.get('draws', 0), 'bootstrap draw')} of whole {by}s" if by else "none"
    if figures.undefined_draws:
        intervals += f"; a metric was undefined in up to {say.count(figures.undefined_draws)} of them"
    intervals = "; ".join((intervals, *figures.cautions))
    facts = (
        ("Run", str(manifest.get("run_id", ""))),
        ("Grade digest", str(manifest.get("grade_digest", ""))),
        (
            "Rubrics",
            f"{say.plural(len(ids), 'bundle')}: "
            + ", ".join(one[:12] for one in ids[:6])
            + (" …" if len(ids) > 6 else ""),
        ),
        ("Judge", ", ".join(str(judge[key]) for key in ("protocol", "backend", "model") if judge.get(key))),
        ("Human score that counts", TARGETS.get(target) or say.name(target)),
        ("Split", ", ".join(f"{key} {value}" for key, value in study.get("split", {}).items())),
        ("Intervals", intervals),
        ("Code", f"commit {commit}"),
        ("Written", str(manifest.get("written", ""))),
    )
    versions = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    return LimitsSection("The same inputs give the same scores", facts, versions, str(study.get("name", "")))
