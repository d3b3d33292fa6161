"""The top of the page: what may be used, where the scores go, and what the gates say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.evaluation import OUTCOMES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import (
    FIRST,
    MOST,
    Figure,
    Grid,
    Key,
    Keys,
    Named,
    Part,
    Section,
    Text,
    long_list,
)
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate, margin
from rubricflow.tasks.grading.report.charts import outcome_shape
from rubricflow.tasks.grading.report.figures import Figures, NamedCount, reasons, total

ALIKE, FEWEST_ALIKE = 0.95, 5
"""Share of answers with their question's most frequent score from which on a judge hardly tells them apart, of this
many answers at least."""
ORDER = ("fail", "undecided", "unknown", "pass")


class RunOutcome(NamedTuple):
    """Where the scores of all responses go. marked: those that people decided; the others are released, go to people,
    or have no score."""

    title: str
    responses: int
    released: int
    review: int
    unscored: int
    released_why: str
    review_reasons: tuple[NamedCount, ...]
    unscored_reasons: tuple[NamedCount, ...]
    marked: int = 0


def outcome(responses: Rows, released_why: str) -> RunOutcome:
    """Where all responses go. released_why: the promise about what is released, or why nothing is."""
    undecided = [row for row in responses if not row["by_people"]]
    lost = [row for row in undecided if not row["scored"]]
    withheld = [row for row in undecided if row["scored"] and row["route"] != "release"]
    marked, review, unscored = total(responses) - total(undecided), total(withheld), total(lost)
    released = total(undecided) - review - unscored
    kinds = (
        (marked, f"{say.plural(marked, 'is', 'are')} marked by people"),
        (released, f"{say.plural(released, 'score')} may be released"),
        (review, f"{say.plural(review, 'waits', 'wait')} for people"),
        (unscored, f"{say.plural(unscored, 'has', 'have')} no score"),
    )
    clauses = [words for number, words in kinds if number]
    title = " and ".join(filter(None, (", ".join(clauses[:-1]), *clauses[-1:]))) or "There are no responses"
    if review and not released and not marked:
        title = f"No score is released: {title}"
    why_withheld = reasons(withheld, "route_reason", ROUTE_REASONS)
    why_lost = reasons(lost, "unscored_reason", UNSCORED_REASONS)
    numbers = total(responses), released, review, unscored
    return RunOutcome(title, *numbers, released_why, why_withheld, why_lost, marked)


def three_kinds(totals: RunOutcome) -> str:
    """How many answers people marked, how many scores may go out, and how many answers wait; '' where nobody marked
    one."""
    if not totals.marked:
        return ""
    waiting, answers = totals.review + totals.unscored, totals.responses
    if totals.marked == answers:
        return f"{say.plural(answers, 'answer is', 'answers are')} marked by people, and none waits."
    released = say.count(totals.released) if totals.released else "none"
    waits = f"{say.count(waiting) if waiting else 'none'} {'waits' if waiting <= 1 else 'wait'} for a person"
    marked = f"{say.plural(totals.marked, 'is', 'are')} marked by people"
    return f"Of {say.plural(answers, 'answer')}, {marked}, {released} of the others may go out, and {waits}."


def headline(totals: RunOutcome, wrong: Estimate, more_than: str, target: float | None, labelled: int) -> str:
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
    where = "above" if wrong.value > target else "within"
    shown = f"{shown}, {where} the {say.rate(target)} promised"
    if wrong.value <= target and wrong.high is not None and wrong.high > target:
        shown += f" but too few to be sure (up to {say.share(wrong.high)})"
    return f"{shown}."


def nothing_scored(lost: Rows) -> str:
    """That the judge scored nothing of what it was asked, and why most often, in a sentence; '' where it did.

    lost: reason, most frequent error of a backend with it, and how many gradings, most first; none where some have
    scores.
    """
    if not lost:
        return ""
    most, every = lost[0], sum(row["n"] for row in lost)
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


def inside(figures: Figures, rules: Rows, released: int) -> str:
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
    return f"{say.sentence(means)} the scores are not shown to agree with people ({shown})."


def key_parts(figures: Figures, released: int) -> list[Part]:
    """Key figures next to those of people: of the released scores where there are any, else of all calibrated ones."""
    stage = "released" if released and figures.machine("qwk", "released").value is not None else "calibrated"
    several = len(figures.values("qwk", "item")) > 1
    pooled = figures.machine("qwk", stage).value is not None
    qwk = ["qwk"] * pooled + ["qwk_item_mean"] * (several or not pooled)  # pooling flatters
    names = [*qwk, "mae", "exact", "within_1", "beyond_tolerance"]
    # Where items have different scales, nothing is known of the whole set but shares and means over items.
    known = [name for name in names if figures.machine(name, stage).value is not None][:4]
    if not known:
        why = figures.machine(names[0], stage).note
        return [Text(f"How well the scores agree with people is not known: {why}.", "missing")]
    keys = []
    for name in known:
        machine, people, unit = figures.machine(name, stage), figures.people(name).value, figures.unit(name)
        ends = Markup('95% interval <span class="nb">{}</span>, ').format(say.interval(machine, unit))
        n = Markup('{}<span class="nb">n = {}</span>').format(
            ends if machine.low is not None else "", say.count(machine.n)
        )
        style, shown = ("nk", say.NOT_KNOWN) if people is None else ("h", say.figure(people, unit))
        value = Markup('<span class="m">{}</span>').format(say.figure(machine.value or 0.0, unit))
        two = Markup('two people <span class="{}">{}</span>').format(style, shown)
        keys.append(Key(figures.metrics[name].title, value, (n, two)))
    before = "Of all held-out scores, before any is withheld"
    scope = "Of the released held-out scores" if stage == "released" else before
    return [Text(scope, "eyebrow"), Keys(keys)]


def verdict_section(rows: Rows, figures: Figures) -> Section:
    """All gates, those that fail first."""
    question = "Verdict: may the scores be used, and for what?"
    if not rows:
        unknown = "there are no human scores to hold the machine's against"
        return Section("verdict", question, "No gate could be asked", unknown=unknown)
    ordered = sorted(rows, key=lambda row: (ORDER.index(row["outcome"]), _weight(row, figures)))
    overall, slices = (
        _gate_table([row for row in ordered if (row["slice"] == "all") == whole], figures) for whole in (True, False)
    )
    outcomes = Counter(row["outcome"] for row in rows)
    counts = [f"{outcomes[key]} {OUTCOMES[key]}" for key in ORDER if outcomes[key]]
    title = f"Of {say.plural(len(rows), 'gate')}: {', '.join(counts)}"
    lead = (
        "A gate is a flag for a person. It is met or missed only where the whole 95% interval lies on one side of the "
        "threshold; otherwise it is undecided, with about how many more labelled responses would decide it. That a "
        "score is more than length has to be shown: that gate is missed wherever the estimate is."
    )
    parts: list[Part] = [Text(lead), *long_list(overall, "gates", "verdicts", first=MOST)]
    if slices.rows:
        folded = long_list(slices, "gates", "verdicts", "more gates of items and groups", FIRST)
        parts += [Text("Items and groups", "h3"), *folded]
    return Section("verdict", question, title, parts=parts)


def _gate_table(rows: Rows, figures: Figures) -> Grid:
    """Rows of `verdicts` in words."""
    lines = []
    for row in rows:
        unit, more = figures.unit(row["metric"]), row["labels_needed"]
        bound, source = _bound(row, unit), Markup(' <span class="source">{}</span>').format(row["source"])
        estimate = Estimate(row["estimate"], row["low"], row["high"], clusters=row["clusters"], n=row["n"])
        labels = "" if more is None else say.more_labels(more)
        lines.append(
            (
                Named(_question(row, figures), _where(row)),
                outcome_shape(row["outcome"]) + OUTCOMES[row["outcome"]],
                Figure(estimate, unit),
                Named(Markup("{}{}").format(bound, source if row["source"] and bound else "")),
                row["n"],
                Named(labels) if labels else None,
                "" if row["outcome"] == "pass" else row["if_missed"],
            )
        )
    heads = ("outcome", "estimate, 95% interval", "wanted", "n", "labels to decide", "what to do")
    return Grid(("Gate", *heads), lines, "verdict stack", marks=[f"o-{row['outcome']}" for row in rows])


def _question(row: Row, figures: Figures) -> str:
    return figures.questions.get(row["gate"], say.worded(row["gate"]).capitalize())


def _where(row: Row) -> str:
    """The slice of a gate; '' where it is the whole set."""
    if row["slice"] == "all":
        return "" if row["value_of"] == "all" else row["value_of"]
    return f"{say.worded(row['slice'])} {say.name(row['value_of'])}"


def _bound(row: Row, unit: Unit) -> str:
    """The threshold of a gate; '' where it has none."""
    ends = [row["least"], row["most"]]
    if unit in ("share", "signed_share"):
        least, most = ("" if end is None else say.rate(end).replace("-", "−") for end in ends)
    else:
        least, most = ("" if end is None else say.figure(end, unit) for end in ends)
    if least and most:
        return f"{least.removesuffix('%')} to {most}"
    if least:
        return f"at least {least}"
    return f"at most {most}" if most else ""


def _weight(row: Row, figures: Figures) -> int:
    return [*figures.questions, row["gate"]].index(row["gate"])


def looks(
    rows: Rows, totals: RunOutcome, warnings: int, broken: int, worst_item: str, figures: Figures
) -> list[tuple[str, str]]:
    """What to look at first after the headline, at most six things: the words, and the section they are about.

    rows: of `verdicts`; the gates that are missed come with their worst part, those of the whole set first.
    """
    missed = defaultdict[tuple[str, str], list[Row]](list)

    def order(row: Row) -> tuple[bool, int, float]:
        return row["slice"] != "all", _weight(row, figures), margin(row["estimate"], row["least"], row["most"])

    for row in sorted(rows, key=order):
        if row["outcome"] == "fail" and (row["gate"], row["slice"]) != ("released_errors", "all"):
            missed[row["gate"], row["slice"]].append(row)
    remarks = []
    for worst, *others in list(missed.values())[:3]:
        unit, place = figures.unit(worst["metric"]), ", ".join(filter(None, (_question(worst, figures), _where(worst))))
        shown = say.NOT_KNOWN if worst["estimate"] is None else say.figure(worst["estimate"], unit)
        more = f", and on {say.plural(len(others), 'more')}" if others else ""
        remarks.append((f"{place}: {shown}, wanted {_bound(worst, unit)}{more}", "verdict"))
    if worst_item:
        remarks.append((worst_item, "agreement"))
    if totals.unscored:
        remarks.append((f"{say.plural(totals.unscored, 'response')} without a score", "outcome"))
    if broken:
        remarks.append((f"{say.plural(broken, 'check')} failed or could not run", "checks"))
    elif warnings:
        remarks.append((f"{say.plural(warnings, 'warning')} from the checkpoints", "checks"))
    return remarks
