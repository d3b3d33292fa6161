"""The promise about released scores: what it rests on, why there is none, where it may not hold, and what goes to
people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import against_constant, too_small_words, wanted_words
from rubricflow.tasks.core.display.section import (
    MOST,
    Columns,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
)
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.conformal import risk_coverage
from rubricflow.tasks.core.stats.promise import PromiseNeeds, fewest_without_error
from rubricflow.tasks.grading.report import charts
from rubricflow.tasks.grading.report.charts import Risk
from rubricflow.tasks.grading.report.figures import Figures, first_names

ScaleBounds = tuple[float, float, float]
Rule = tuple[str, str]
"""What a rule of release is for, and what it says."""
MOST_POINTS = 100


def promise(rules: Rows, wrong: str) -> str:
    """What is promised about the released scores, by rows of `release_rules`. wrong: what a wrong score is, as
    'more than one point from the human score'."""
    keeping, by_item = [row for row in rules if row["threshold"] is not None], rules[0]["scope"] != "all"
    share, confidence = say.rate(rules[0]["target"]), say.rate(rules[0]["confidence"])
    marked = say.plural(sum(row["n"] for row in keeping), "marked answer")
    each = f" ({len(keeping)} of {len(rules)} questions, each by its own)" if by_item and len(rules) > 1 else ""
    return (
        f"Promised with {confidence} confidence, from {marked}{each}: at most {share} of released scores are {wrong}."
    )


def worth_of_promise(figures: Figures, rules: Rows) -> str:
    """How often the best constant score of each question would be wrong, and how many scores are exactly right, among
    the released and among all: held out or, without such labels, on the marked answers. '' where that is not known."""
    found, keeping = dict[str, float | None](), [row for row in rules if row["threshold"] is not None]
    for key, metric in (("constant", "constant_beyond_tolerance"), ("exact", "exact")):
        found[f"{key}_released"] = figures.machine(metric, "released").value
        found[key] = figures.machine(metric).value
    if None in found.values() and keeping:
        for key in found:
            weights = [row["released" if key.endswith("_released") else "n"] for row in keeping]
            found[key] = float(np.average([row[key] for row in keeping], weights=weights))
    if None in found.values():
        return ""
    return f"{say.sentence(against_constant(found))}."


def asks_nothing_sentence(rules: Rows) -> str:
    """The questions of which nothing is promised because a constant would keep it, and the tolerance that would ask
    something; '' where there are none."""
    rows = [row for row in rules if row["refused"] == "asks_nothing"]
    if not rows or len(rules) == 1:
        return ""
    named = first_names([row["scope"] for row in rows])
    steps = [row["asking_tolerance"] for row in rows if row["asking_tolerance"] is not None]
    would = "no smaller tolerance would ask something"
    if steps:
        would = f"a tolerance of {say.plural(int(min(steps)), 'step')} would ask something"
    return (
        f"Nothing is promised on {say.plural(len(rows), 'question')} ({named}), where the same score for every "
        f"answer would keep the promise; {would}."
    )


def nothing_released(rules: Rows, possible: Rows, responses: int, needs: Sequence[PromiseNeeds] = ()) -> str:
    """Why no score goes out, and how near it was, in sentences that promise nothing.

    rules: rows of `release_rules`; possible: those of them that would allow more wrong scores, nearest first, with `n`
    responses that could go out then; responses: of the run; needs: what every promise wants.
    """
    asking, small = [row for row in rules if row["refused"] != "asks_nothing"], too_small_words(needs)
    if not asking and not any(row["n"] for row in rules):
        return " ".join(filter(None, ("There are no marked answers that a promise could rest on.", small)))
    why = _why_nothing(asking or rules, needs) if asking or len(rules) == 1 else ""
    wanted = ""
    if asking and " needed" not in why and any(need.counting < need.needed for need in needs):
        wanted = f"{say.sentence(wanted_words(asking[0]['target'], asking[0]['confidence'], needs))}."
    near = ""
    if possible:
        nearest = possible[0]
        where = "" if nearest["scope"] == "all" else f" to question {say.name(nearest['scope'])}"
        answers = f"about {say.count(nearest['n'])} of {say.plural(responses, 'answer')}{where} could go out"
        allowed = f"this study allows {say.rate(rules[0]['target'])}"
        near = (
            f"If up to {say.rate(nearest['possible_target'])} of them were allowed to be wrong, {answers}; {allowed}."
        )
    return " ".join(filter(None, (why, wanted, small if asking else "", asks_nothing_sentence(rules), near)))


def _why_nothing(rules: Rows, needs: Sequence[PromiseNeeds]) -> str:
    none = [row for row in rules if row["threshold"] is None]
    if len(none) < len(rules):
        most = max(row["threshold"] for row in rules if row["threshold"] is not None)
        obstacle = "every answer is above it, or needs a person for another reason"
        return f"Scores may go out up to an estimated risk of {say.share(most)}; {obstacle}."
    if len(rules) == 1 or none[0].get("refused") == "question_means":
        return f"{say.sentence(rules[0]['note'])}."
    needed = fewest_without_error(rules[0]["target"], rules[0]["confidence"])
    marked = {need.scope: need.counting for need in needs}
    few = [count for count in (marked.get(row["scope"]) or int(row["n"]) for row in rules) if count < needed]
    share = say.rate(rules[0]["target"])
    unproven = f"the marked answers do not show, even for the surest scores, that at most {share} are wrong"
    if not few:
        return f"On none of {len(rules)} questions can anything be promised: {unproven}."
    others = f"; for the other {len(rules) - len(few)}, {unproven}" if len(few) < len(rules) else ""
    return (
        f"Too few marked answers to promise anything for {len(few)} of {len(rules)} questions: "
        f"{say.count(needed)} needed for each, at most {say.count(max(few))} here{others}."
    )


def above_promise(gates: Rows) -> list[Row]:
    """The verdicts on items of whose released held-out scores more is wrong than promised, or may be by the upper end
    of the interval; the worst first. A promise for the set keeps none for an item."""
    items = [row for row in gates if (row["gate"], row["slice"]) == ("released_errors", "item") and row["n"]]
    rows = [row for row in items if max(row["estimate"], row["high"]) > row["most"]]
    return sorted(rows, key=lambda row: (-row["estimate"], -row["high"], row["value_of"]))


def above_promise_sentence(gates: Rows) -> str:
    """The same in one or two sentences; '' where there are none. The second is about questions whose figure keeps the
    promise, but from too few checked scores to be sure."""
    rows, sentences = above_promise(gates), list[str]()
    wrong, unsure = ([row for row in rows if (row["estimate"] > row["most"]) is wanted] for wanted in (True, False))
    if wrong:
        shown = [f"{say.name(row['value_of'])} ({say.share(row['estimate'])} of {row['n']:,})" for row in wrong[:3]]
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        questions = say.plural(len(wrong), "question")
        sentences.append(f"On {questions} more are wrong than promised: {', '.join(shown)}{more}.")
    if unsure:
        questions = say.plural(len(unsure), "other question" if wrong else "question")
        fewest, most = min(row["n"] for row in unsure), max(row["n"] for row in unsure)
        checked = say.plural(most, "released score") if fewest == most else f"{fewest:,} to {most:,} released scores"
        each = " each" if len(unsure) > 1 else ""
        sentences.append(f"For {questions} taken alone, too few were checked to be sure of it ({checked}{each}).")
    return " ".join(sentences)


def wrong_score_words(tolerance: float, scales: Mapping[str, ScaleBounds]) -> tuple[str, str]:
    """What a wrong score is: as a predicate ('are more than one point from the human score'), and without the verb."""
    points = all(bounds[2] == 1 for bounds in scales.values())
    unit, units = ("point", "points") if points else ("step of the scale", "steps of the scale")
    if not tolerance:
        return "differ from the human score", "different from the human score"
    amount = f"one {unit}" if tolerance == 1 else f"{tolerance:g} {units}"
    return f"are more than {amount} from the human score", f"more than {amount} from the human score"


def routing_section(
    curve: Risk | None,
    rules: Rows,
    gates: Rows,
    figures: Figures,
    wrong: tuple[str, str],
    released: int,
    promised: str,
) -> Section:
    """The risk–coverage curve, the rules of release, and the items above the promise.

    curve: as `coverage` gives it; wrong: as `wrong_score_words` gives it; released: scores of the whole run that may go
    out; promised: the promise, or why there is none.
    """
    column: list[Part] = [Text("What may be released", "h3"), Text(promised, "")]
    ordered = sorted(rules, key=lambda row: (row["threshold"] is not None, row["scope"]))
    said = [
        ("all items" if row["scope"] == "all" else say.name(row["scope"]), _rule(row, wrong[1], released))
        for row in ordered
    ]
    column += _listed(said, "rules", "release_rules", "more rule")
    above = []
    for row in above_promise(gates):
        share = f"{say.share(row['estimate'])} of {say.plural(row['n'], 'released held-out score')} {wrong[0]}"
        interval = f"95% interval {say.share(row['low']).removesuffix('%')} to {say.share(row['high'])}"
        above.append((say.name(row["value_of"]), f"{share} ({interval}; {say.rate(row['most'])} promised)."))
    if above:
        column += [
            Text("Items above it, or not surely within", "h3"),
            *_listed(above, "items", "verdicts", "more item"),
        ]
    columns = [_drawn(curve), column] if curve else [column]
    statistics = [figures.named(metric.name, figures.any(metric.name)) for metric in figures.listed("routing")]
    folded = Fold("Figures of intervals, order and probabilities", figure_table(statistics))
    missing = "" if curve else "no held-out response has a human score, a machine score and an estimated risk"
    question, parts = "Routing: what goes to people?", (Columns(columns), folded)
    return Section("routing", question, _routing_title(curve, rules), unknown=missing, parts=parts)


def _drawn(curve: Risk) -> list[Part]:
    ends = " The curve ends where the answers without a score begin: these never go out." if curve.ends < 1 else ""
    last = len(curve.machine) - 1
    points = [point for place, point in enumerate(curve.machine) if place % 10 == 0 or place == last]
    numbers = [(say.share(x), Named(say.share(y))) for x, y in points]
    return [
        Text(f"Released scores that are {curve.wrong}, %; surest scores first.{ends}", "note"),
        charts.risk(curve),
        Fold("Numbers", [Grid(("released", "wrong"), numbers, "tight narrow")]),
    ]


def _listed(rules: Sequence[Rule], noun: str, table: str, more: str) -> list[Part]:
    """Three rules, and the others folded away; a scope is named where there are several."""
    line = Markup("<strong>{}</strong>: {}" if len(rules) > 1 or noun == "items" else "{1}")
    lines: list[Part] = [Text(line.format(*rule), "note") for rule in rules[:MOST]]
    folded = [Fold(say.plural(len(lines) - 3, more), lines[3:])] if len(lines) > 3 else []
    return [*lines[:3], *folded, *left_out(rules, noun, table)]


def _routing_title(curve: Risk | None, rules: Rows) -> str:
    if curve is None:
        known = "What releasing would risk is not known"
        return known if rules else "Every score goes to a person: nothing tells its risk"
    every = curve.machine[-1][1]
    if curve.chosen is None:
        return f"Nothing is released; releasing every held-out score would leave {say.share(every)} wrong"
    share, wrong = curve.chosen
    keeps = "keeps" if wrong <= curve.target else "does not keep"
    consequence = "would not" if every > curve.target >= wrong else f"would leave {say.share(every)}"
    promise = f"{keeps} errors within {say.rate(curve.target)} ({say.share(wrong)} on held-out responses)"
    return f"Releasing {say.share(share)} {promise}; releasing all {consequence}"


def _rule(row: Row, wrong: str, released: int) -> str:
    """A row of `release_rules` in words."""
    if row["threshold"] is None:
        return f"Nothing may be released: {row['note']}."
    if not released:
        return f"No score is at or below the estimated risk of {say.share(row['threshold'])}."
    worth, upper = "", ""
    if row["worth"] < row["released"] - 0.5:
        worth = f", worth {say.count(round(row['worth']))} independent ones as answers of an author are alike"
    if row["upper"] is not None:
        upper = f", so with {say.rate(row['confidence'])} confidence at most {say.share(row['upper'])}"
    return (
        f"A score is released at an estimated risk up to {say.share(row['threshold'])}: {say.count(row['released'])} "
        f"of {say.plural(row['n'], 'labelled response')}{worth}, {say.count(row['wrong'])} of them {wrong}{upper}; "
        f"{against_constant(row)}."
    )


def coverage(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], tolerance: float, target: float, wrong: str
) -> Risk | None:
    """The risk–coverage curve on held-out responses; unscored ones are never covered: the curve ends before 1. target:
    the share promised; wrong: what a wrong score is, without a verb."""
    labelled = scores[scores["target"].notna()]
    judged = labelled.dropna(subset=["calibrated", "risk"])
    if judged.empty:
        return None
    step = judged["item_id"].map({item: bounds[2] for item, bounds in scales.items()}).astype(float)
    gap = (judged["calibrated"] - judged["target"]).abs() / step
    loss = np.asarray(gap > tolerance + 1e-9, dtype=np.float64)
    total = len(labelled)
    released = (judged["route"] == "release").to_numpy()
    chosen = (float(released.sum() / total), float(loss[released].mean())) if released.any() else None
    machine, oracle = (_covered(loss, risk, total) for risk in (judged["risk"].to_numpy(float), loss))
    return Risk(machine, oracle, float(loss.mean()), len(judged) / total, chosen, target, wrong)


def _covered(loss: npt.NDArray[np.float64], risk: npt.NDArray[np.float64], total: int) -> charts.Points:
    """(coverage, share wrong) of the surest scores, thinned for drawing."""
    curve = risk_coverage(loss, -risk, total)
    keep = np.unique(np.linspace(0, len(loss) - 1, MOST_POINTS).round().astype(int))
    return tuple(zip(curve.coverage[keep].tolist(), curve.risk[keep].tolist(), strict=True))
