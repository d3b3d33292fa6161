"""The top of the page: what may be used, where the scores go, what the gates say, and what was read and lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tasks.contracts.tables.calibration import ROUTE_REASONS
from tasks.contracts.tables.data import INPUT_WARNINGS
from tasks.contracts.tables.evaluation import OUTCOMES
from tasks.contracts.tables.judging import UNSCORED_REASONS
from tasks.display import say
from tasks.report.grading.figures import Figures
from tasks.report.grading.parts import (
    DataSection,
    FunnelStep,
    KeyFigure,
    LookFirst,
    NamedCount,
    Oddity,
    OutcomeSection,
    ReportHead,
    ShownGate,
    VerdictSection,
    listed,
)
from tasks.stats.estimate import Estimate
from tasks.stats.metric import Unit
from tasks.stats.verdict import margin

Row = Mapping[str, Any]
ORDER = ("fail", "undecided", "unknown", "pass")


def reasons(rows: Iterable[Row], column: str, names: Mapping[str, str]) -> tuple[NamedCount, ...]:
    """Counts by reason, largest first."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row[column] or "reason not given"] += row["n"]
    return tuple(
        NamedCount(names.get(why, say.worded(why)), n)
        for why, n in sorted(found.items(), key=lambda kv: (-kv[1], kv[0]))
    )


def total(rows: Iterable[Row], where: Callable[[Row], Any] = bool) -> int:
    """Responses in the rows that a condition holds for."""
    return sum(row["n"] for row in rows if where(row))


def outcome(responses: Sequence[Row], released_why: str) -> OutcomeSection:
    """Where all responses go. released_why: the promise about what is released, or why nothing is."""
    every = total(responses)
    unscored = [row for row in responses if not row["scored"]]
    review = [row for row in responses if row["scored"] and row["route"] != "release"]
    released = total(responses, lambda row: row["scored"] and row["route"] == "release")
    parts = [
        f"{say.plural(released, 'score')} may be released" if released else "",
        f"{say.count(total(review))} {'waits' if total(review) == 1 else 'wait'} for people" if review else "",
        f"{say.count(total(unscored))} {'has' if total(unscored) == 1 else 'have'} no score" if unscored else "",
    ]
    said = [part for part in parts if part] or ["There are no responses"]
    title = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    if not released and review:
        title = f"No score is released: {title}"
    return OutcomeSection(
        title,
        every,
        released,
        total(review),
        total(unscored),
        released_why,
        reasons(review, "route_reason", ROUTE_REASONS),
        reasons(unscored, "unscored_reason", UNSCORED_REASONS),
    )


def headline(found: OutcomeSection, wrong: Estimate, more_than: str, target: float | None, labelled: int) -> str:
    """The verdict in one sentence. wrong: share of released held-out scores beyond the tolerance; target: the share
    promised."""
    scored = found.responses - found.unscored
    if not found.responses:
        return "There was nothing to score."
    if not scored:
        return f"None of the {say.plural(found.responses, 'response')} has a score."
    if not labelled:
        return (
            f"{say.count(scored)} of {say.plural(found.responses, 'response')} "
            f"{'is' if scored == 1 else 'are'} scored, and no held-out human score tells how well."
        )
    if not found.released:
        return f"None of the {say.plural(scored, 'score')} may be released without a person looking first."
    start = f"{say.count(found.released)} of {say.plural(found.responses, 'score')} may be released"
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


def head(study: str, date: str, title: str, looks: Sequence[LookFirst], figures: Figures, released: int) -> ReportHead:
    """Title and key figures: of the released scores where there are any, else of all calibrated ones."""
    stage = "released" if released and figures.machine("qwk", "released").value is not None else "calibrated"
    several = len(figures.values("qwk", "item")) > 1
    pooled = figures.machine("qwk", stage).value is not None
    qwk = ["qwk"] * pooled + ["qwk_item_mean"] * (several or not pooled)  # pooling flatters
    every = [
        KeyFigure(figures.metrics[name].title, figures.unit(name), figures.machine(name, stage), figures.people(name))
        for name in (*qwk, "mae", "exact", "within_1", "beyond_tolerance")
    ]
    # Where items have different scales, nothing is known of the whole set but shares and means over items.
    keys = [key for key in every if key.machine.value is not None][:4] or every[:4]
    of = "Of the released held-out scores" if stage == "released" else "Of all held-out scores, before any is withheld"
    return ReportHead(study, date, title, tuple(looks), tuple(keys), of, figures.cautions)


def gate(row: Row, figures: Figures) -> ShownGate:
    """A row of `verdicts` in words."""
    unit = figures.unit(row["metric"])
    least, most = (None if row[end] is None else _threshold(row[end], unit) for end in ("least", "most"))
    if least and most:
        bound = f"{least.removesuffix('%')} to {most}"
    else:
        bound = f"at least {least}" if least else f"at most {most}" if most else ""
    where = f"{say.worded(row['slice'])} {say.name(row['value_of'])}"
    if row["slice"] == "all":
        where = "" if row["value_of"] == "all" else row["value_of"]
    return ShownGate(
        figures.questions.get(row["gate"], say.worded(row["gate"]).capitalize()),
        where,
        Estimate(row["estimate"], row["low"], row["high"], clusters=row["clusters"], n=row["n"]),
        unit,
        bound,
        row["outcome"],
        OUTCOMES[row["outcome"]],
        row["labels_needed"],
        row["source"],
        row["if_missed"],
    )


def _threshold(value: float, unit: Unit) -> str:
    return say.rate(value).replace("-", "−") if unit in ("share", "signed_share") else say.figure(value, unit)


def _weight(row: Row, figures: Figures) -> int:
    known = list(figures.questions)
    return known.index(row["gate"]) if row["gate"] in known else len(known)


def verdict(rows: Sequence[Row], figures: Figures) -> VerdictSection:
    """All gates, those that fail first."""
    ordered = sorted(rows, key=lambda row: (ORDER.index(row["outcome"]), _weight(row, figures)))
    whole = [gate(row, figures) for row in ordered if row["slice"] == "all"]
    parts = [gate(row, figures) for row in ordered if row["slice"] != "all"]
    found = Counter(row["outcome"] for row in rows)
    if not rows:
        return VerdictSection(
            "No gate could be asked", listed([]), listed([]), "there are no human scores to hold the machine's against"
        )
    counts = [f"{found[key]} {OUTCOMES[key]}" for key in ORDER if found[key]]
    title = f"Of {say.plural(len(rows), 'gate')}: {', '.join(counts)}"
    return VerdictSection(title, listed(whole, first=20), listed(parts))


def looks(
    rows: Sequence[Row],
    found: OutcomeSection,
    warnings: int,
    broken: int,
    worst_item: LookFirst | None,
    figures: Figures,
) -> list[LookFirst]:
    """What to look at first beside the headline, at most six things."""
    said: list[LookFirst] = []
    for part in _missed(rows, figures)[:3]:
        row, more = part[0], len(part) - 1
        shown = gate(row, figures)
        where = f", {shown.where}" if shown.where else ""
        others = f", and on {say.plural(more, 'more')}" if more else ""
        said.append(
            LookFirst(f"{shown.question}{where}: {_figure(row, shown.unit)}, wanted {shown.bound}{others}", "verdict")
        )
    if worst_item:
        said.append(worst_item)
    if found.unscored:
        said.append(LookFirst(f"{say.plural(found.unscored, 'response')} without a score", "outcome"))
    if broken:
        said.append(LookFirst(f"{say.plural(broken, 'check')} failed or could not run", "checks"))
    elif warnings:
        said.append(LookFirst(f"{say.plural(warnings, 'warning')} from the checkpoints", "checks"))
    return said


def _missed(rows: Sequence[Row], figures: Figures) -> list[list[Row]]:
    """The gates that are missed, each with its worst part first; those of the whole set before those of parts."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["slice"] != "all", _weight(row, figures), _inside(row))):
        if row["outcome"] == "fail" and (row["gate"], row["slice"]) != ("released_errors", "all"):
            found[row["gate"], row["slice"]].append(row)
    return list(found.values())


def _inside(row: Row) -> float:
    return margin(row["estimate"], row["least"], row["most"])


def _figure(row: Row, unit: Unit) -> str:
    return say.figure(row["estimate"], unit) if row["estimate"] is not None else say.NOT_KNOWN


def data(responses: Sequence[Row], whole: Row, quarantined: int, warnings: Sequence[Row] = ()) -> DataSection:
    """The funnel of all responses and that of the labelled ones, with every loss by name, and what is odd about them.
    warnings: rows of `input_warnings`."""
    every, labels = total(responses), [row for row in responses if row["labelled"]]
    scored = [row for row in responses if row["scored"]]
    released = [row for row in scored if row["route"] == "release"]
    held_out = _of_split(labels, "test")
    compared = [row for row in held_out if row["scored"]]
    unscored = [row for row in responses if not row["scored"]]
    review = [row for row in scored if row["route"] != "release"]
    wholes = [
        _step("read", every, every, ()),
        _step("scored", total(scored), every, _losses(unscored, "unscored_reason", UNSCORED_REASONS)),
        _step("released", total(released), every, _losses(review, "route_reason", ROUTE_REASONS)),
    ]
    splits = Counter({split: total(_of_split(labels, split)) for split in ("calibration", "train", "chosen")})
    used = tuple(f"{say.count(n)} in the {split} split" for split, n in splits.items() if n)
    known = [
        _step(
            "with a human score",
            total(labels),
            every,
            (f"{say.count(every - total(labels))} without one",) if every > total(labels) else (),
        ),
        _step("held out for this report", total(held_out), every, used),
        _step(
            "compared",
            total(compared),
            every,
            _losses([r for r in held_out if not r["scored"]], "unscored_reason", UNSCORED_REASONS),
        ),
        _step("compared, of the released", total(compared, lambda row: row["route"] == "release"), every, ()),
    ]
    doubles = total(held_out, lambda row: row["persons"] >= 2)
    facts = [
        NamedCount("items", whole["items"]),
        NamedCount(
            "authors",
            whole["authors"],
            None,
            ""
            if whole["with_author"] == whole["responses"]
            else f"{say.count(whole['responses'] - whole['with_author'])} responses name none",
        ),
        *(
            NamedCount(f"in the {split} split", total(_of_split(responses, split)))
            for split in ("train", "calibration", "test", "chosen")
            if split != "chosen" or _of_split(responses, split)
        ),
        NamedCount(
            "held out and scored by two people",
            doubles,
            None,
            "fewer than 100: true-score figures are unsteady" if doubles < 100 else "",
        ),
        NamedCount("rows in quarantine", quarantined),
    ]
    return DataSection(
        _data_title(every, total(scored), total(labels), total(held_out)),
        tuple(wholes),
        tuple(known),
        tuple(facts),
        tuple(_oddity(row) for row in warnings),
    )


def _oddity(row: Row) -> Oddity:
    examples = ", ".join(row["examples"]) + (", …" if row["responses"] > len(row["examples"]) else "")
    return Oddity(INPUT_WARNINGS[row["kind"]], row["responses"], examples)


def _of_split(rows: Sequence[Row], split: str) -> list[Row]:
    return [row for row in rows if row["split"] == split]


def _data_title(every: int, scored: int, labelled: int, held_out: int) -> str:
    if not labelled:
        return f"{say.count(scored)} of {say.plural(every, 'response')} scored, none of them with a human score"
    start = f"{say.count(scored)} of {say.plural(every, 'response')} scored"
    return f"{start}; {say.count(held_out)} with a human score held out to judge by"


def _step(name: str, count: int, whole: int, lost: tuple[str, ...]) -> FunnelStep:
    return FunnelStep(name, count, count / whole if whole else 0.0, lost)


def _losses(rows: Sequence[Row], column: str, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{say.count(found.count)} {found.name}" for found in reasons(rows, column, names))
