"""The top of the page: what may be used, where the scores go, and what the gates say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.evaluation import OUTCOMES
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate, margin
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.sections import (
    KeyFigure,
    LookFirst,
    OutcomeSection,
    ReportHead,
    ShownGate,
    VerdictSection,
    listed,
)
from rubricflow.tasks.grading.report.tallies import reasons, total

Row = Mapping[str, Any]
ALIKE, FEWEST_ALIKE = 0.95, 5
"""Share of answers with their question's most frequent score from which on a judge is told to hardly tell them apart,
of this many answers at least."""
ORDER = ("fail", "undecided", "unknown", "pass")


def outcome(responses: Sequence[Row], released_why: str) -> OutcomeSection:
    """Where all responses go. released_why: the promise about what is released, or why nothing is."""
    undecided = [row for row in responses if not row["by_people"]]
    unscored = [row for row in undecided if not row["scored"]]
    review = [row for row in undecided if row["scored"] and row["route"] != "release"]
    released = total(undecided, lambda row: row["scored"] and row["route"] == "release")
    marked = total(responses, lambda row: row["by_people"])
    return OutcomeSection(
        title=_outcome_title(marked, released, total(review), total(unscored)),
        responses=total(responses),
        released=released,
        review=total(review),
        unscored=total(unscored),
        released_why=released_why,
        review_reasons=reasons(review, "route_reason", ROUTE_REASONS),
        unscored_reasons=reasons(unscored, "unscored_reason", UNSCORED_REASONS),
        marked=marked,
    )


def _outcome_title(marked: int, released: int, review: int, unscored: int) -> str:
    clauses = [f"{say.count(marked)} {'is' if marked == 1 else 'are'} marked by people"] if marked else []
    if released:
        clauses.append(f"{say.plural(released, 'score')} may be released")
    if review:
        clauses.append(f"{say.count(review)} {'waits' if review == 1 else 'wait'} for people")
    if unscored:
        clauses.append(f"{say.count(unscored)} {'has' if unscored == 1 else 'have'} no score")
    if not clauses:
        return "There are no responses"
    title = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
    if marked:
        return title
    return f"No score is released: {title}" if review and not released else title


def three_kinds(totals: OutcomeSection) -> str:
    """How many answers people marked, how many scores may go out, and how many answers wait; '' where nobody marked
    one."""
    if not totals.marked:
        return ""
    waiting = totals.review + totals.unscored
    if totals.marked == totals.responses:
        return f"{say.plural(totals.responses, 'answer is', 'answers are')} marked by people, and none waits."
    return (
        f"Of {say.plural(totals.responses, 'answer')}, {say.count(totals.marked)} "
        f"{'is' if totals.marked == 1 else 'are'} marked by people, "
        f"{say.count(totals.released) if totals.released else 'none'} of the others may go out, and "
        f"{say.count(waiting) if waiting else 'none'} {'waits' if waiting <= 1 else 'wait'} for a person."
    )


def headline(totals: OutcomeSection, wrong: Estimate, more_than: str, target: float | None, labelled: int) -> str:
    """The verdict in one sentence. wrong: share of released held-out scores beyond the tolerance; target: the share
    promised."""
    others = totals.responses - totals.marked
    scored = others - totals.unscored
    if not totals.responses:
        return "There was nothing to score."
    if totals.marked and not totals.released:
        return ""
    if not scored:
        return f"None of the {say.plural(totals.responses, 'response')} has a score."
    if not labelled:
        return (
            f"{say.count(scored)} of {say.plural(totals.responses, 'response')} "
            f"{'is' if scored == 1 else 'are'} scored, and no held-out human score tells how well."
        )
    if not totals.released:
        return f"None of the {say.plural(scored, 'score')} may be released without a person looking first."
    start = f"{say.count(totals.released)} of {say.plural(others, 'score')} may be released"
    if wrong.value is None:
        return f"{start}, but how often such scores are wrong is not known: {wrong.note}."
    shown = f"{start}: on held\u2011out responses {say.share(wrong.value)} of such scores {more_than}"
    if target is None:
        return f"{shown}."
    limit = say.rate(target)
    if wrong.value > target:
        return f"{shown}, above the {limit} promised."
    if wrong.high is not None and wrong.high > target:
        return f"{shown}, within the {limit} promised but too few to be sure (up to {say.share(wrong.high)})."
    return f"{shown}, within the {limit} promised."


def nothing_scored(lost: Sequence[Row]) -> str:
    """That the judge scored nothing of what it was asked, and why most often, in a sentence; '' where it did.

    lost: reason, most frequent error of a backend with it, and how many gradings, most first; none where some have
    scores.
    """
    if not lost:
        return ""
    most, every = lost[0], sum(row["n"] for row in lost)
    said = f": {most['error']}" if most["error"] else ""
    return f"Nothing was scored: {UNSCORED_REASONS[most['reason']]} ({most['n']:,} of {every:,}){said}."


def alike(judged: Sequence[Row]) -> str:
    """A judge that says (nearly) the same of every answer, in a sentence; '' of any other.

    judged: of every question with several scored answers, how many these are and how many have its most frequent score
    before calibration.
    """
    answers, same = (sum(row[name] for row in judged) for name in ("answers", "same"))
    if answers < FEWEST_ALIKE or same < ALIKE * answers:
        return ""
    one = "one and the same score" if len(judged) == 1 else "the same score as the others to their question"
    return f"The judge hardly tells answers apart: it gave {say.count(same)} of {say.plural(answers, 'answer')} {one}."


def inside(figures: Figures, rules: Sequence[Row], released: int) -> str:
    """That the scores are not shown to agree with people inside questions, in a sentence; '' where they are, and where
    nothing was compared or there is one question.

    rules: rows of `release_rules`; released: scores that go out. The answers that people marked for calibration decide
    what goes out, and the sentence says of which answers it speaks: held-out ones that do not show it contradict no
    release.
    """
    found = figures.machine("within_r")
    refused = any(rule["refused"] == "question_means" for rule in rules)
    if not found.n or (found.low is not None and found.low > 0):
        not_released = "The answers that people marked for calibration show agreement by question means alone."
        return not_released if refused else ""
    if found.value is None:
        shown = "they are the same for all answers to a question"
    else:
        shown = f"correlation {say.signed(found.value)}"
        shown += f", 95% interval {say.interval(found, 'signed')}" if found.low is not None else ""
    if released:
        return (
            "Released is what the answers marked for calibration allow; the held‑out answers alone do not show that "
            f"scores agree with people inside questions ({shown})."
        )
    means = "agreement is by question means alone: inside questions" if refused else "inside questions"
    return f"{means[:1].upper()}{means[1:]} the scores are not shown to agree with people ({shown})."


def head(study: str, date: str, title: str, looks: Sequence[LookFirst], figures: Figures, released: int) -> ReportHead:
    """Title and key figures: of the released scores where there are any, else of all calibrated ones."""
    stage = "released" if released and figures.machine("qwk", "released").value is not None else "calibrated"
    several = len(figures.values("qwk", "item")) > 1
    pooled = figures.machine("qwk", stage).value is not None
    qwk = ["qwk"] * pooled + ["qwk_item_mean"] * (several or not pooled)  # pooling flatters
    every = [_key(figures, name, stage) for name in (*qwk, "mae", "exact", "within_1", "beyond_tolerance")]
    # Where items have different scales, nothing is known of the whole set but shares and means over items.
    keys = [key for key in every if key.machine.value is not None][:4] or every[:4]
    scope = (
        "Of the released held-out scores" if stage == "released" else "Of all held-out scores, before any is withheld"
    )
    return ReportHead(
        study=study,
        date=date,
        title=title,
        looks=tuple(looks),
        keys=tuple(keys),
        keys_scope=scope,
        cautions=figures.cautions,
    )


def _key(figures: Figures, name: str, stage: str) -> KeyFigure:
    machine, people = figures.machine(name, stage), figures.people(name)
    return KeyFigure(figures.metrics[name].title, figures.unit(name), machine, people)


def gate(row: Row, figures: Figures) -> ShownGate:
    """A row of `verdicts` in words."""
    unit = figures.unit(row["metric"])
    return ShownGate(
        question=figures.questions.get(row["gate"], say.worded(row["gate"]).capitalize()),
        where=_where(row),
        estimate=Estimate(row["estimate"], row["low"], row["high"], clusters=row["clusters"], n=row["n"]),
        unit=unit,
        bound=_bound(row, unit),
        outcome=row["outcome"],
        outcome_words=OUTCOMES[row["outcome"]],
        labels_needed=row["labels_needed"],
        source=row["source"],
        if_missed=row["if_missed"],
    )


def _where(row: Row) -> str:
    """The slice of a gate; '' where it is the whole set."""
    if row["slice"] == "all":
        return "" if row["value_of"] == "all" else row["value_of"]
    return f"{say.worded(row['slice'])} {say.name(row['value_of'])}"


def _bound(row: Row, unit: Unit) -> str:
    """The threshold of a gate; '' where it has none."""
    least, most = (None if row[end] is None else _threshold(row[end], unit) for end in ("least", "most"))
    if least and most:
        return f"{least.removesuffix('%')} to {most}"
    if least:
        return f"at least {least}"
    return f"at most {most}" if most else ""


def _threshold(value: float, unit: Unit) -> str:
    return say.rate(value).replace("-", "−") if unit in ("share", "signed_share") else say.figure(value, unit)


def _weight(row: Row, figures: Figures) -> int:
    order = list(figures.questions)
    return order.index(row["gate"]) if row["gate"] in order else len(order)


def verdict(rows: Sequence[Row], figures: Figures) -> VerdictSection:
    """All gates, those that fail first."""
    ordered = sorted(rows, key=lambda row: (ORDER.index(row["outcome"]), _weight(row, figures)))
    overall = [gate(row, figures) for row in ordered if row["slice"] == "all"]
    slices = [gate(row, figures) for row in ordered if row["slice"] != "all"]
    outcomes = Counter(row["outcome"] for row in rows)
    if not rows:
        missing = "there are no human scores to hold the machine's against"
        return VerdictSection("No gate could be asked", listed([]), listed([]), missing)
    counts = [f"{outcomes[key]} {OUTCOMES[key]}" for key in ORDER if outcomes[key]]
    title = f"Of {say.plural(len(rows), 'gate')}: {', '.join(counts)}"
    return VerdictSection(title, listed(overall, first=20), listed(slices))


def looks(
    rows: Sequence[Row],
    totals: OutcomeSection,
    warnings: int,
    broken: int,
    worst_item: LookFirst | None,
    figures: Figures,
) -> list[LookFirst]:
    """What to look at first beside the headline, at most six things."""
    remarks: list[LookFirst] = []
    for part in _missed(rows, figures)[:3]:
        remarks.append(LookFirst(_missed_words(part, figures), "verdict"))
    if worst_item:
        remarks.append(worst_item)
    if totals.unscored:
        remarks.append(LookFirst(f"{say.plural(totals.unscored, 'response')} without a score", "outcome"))
    if broken:
        remarks.append(LookFirst(f"{say.plural(broken, 'check')} failed or could not run", "checks"))
    elif warnings:
        remarks.append(LookFirst(f"{say.plural(warnings, 'warning')} from the checkpoints", "checks"))
    return remarks


def _missed_words(rows: Sequence[Row], figures: Figures) -> str:
    """A missed gate in words; rows: of its parts, the worst first."""
    worst, more = rows[0], len(rows) - 1
    shown = gate(worst, figures)
    where = f", {shown.where}" if shown.where else ""
    others = f", and on {say.plural(more, 'more')}" if more else ""
    return f"{shown.question}{where}: {_figure(worst, shown.unit)}, wanted {shown.bound}{others}"


def _missed(rows: Sequence[Row], figures: Figures) -> list[list[Row]]:
    """The gates that are missed, each with its worst part first; those of the whole set before those of parts."""
    missed: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["slice"] != "all", _weight(row, figures), _inside(row))):
        if row["outcome"] == "fail" and (row["gate"], row["slice"]) != ("released_errors", "all"):
            missed[row["gate"], row["slice"]].append(row)
    return list(missed.values())


def _inside(row: Row) -> float:
    return margin(row["estimate"], row["least"], row["most"])


def _figure(row: Row, unit: Unit) -> str:
    return say.figure(row["estimate"], unit) if row["estimate"] is not None else say.NOT_KNOWN
