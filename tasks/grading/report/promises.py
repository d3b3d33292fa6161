"""The promise about released scores in sentences: what it rests on, why there is none, where it may not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.needs import too_small_words, wanted_words
from rubricflow.tasks.core.display.reasons import against_constant
from rubricflow.tasks.core.stats.promise import PromiseNeeds, fewest_without_error
from rubricflow.tasks.grading.report.figures import Figures

Row = Mapping[str, Any]
NAMED = 3
"""Questions that a sentence names."""


def promise(rules: Sequence[Row], wrong: str) -> str:
    """What is promised about the released scores, by rows of `release_rules`. wrong: what a wrong score is, as
    'more than one point from the human score'."""
    keeping, by_item = [row for row in rules if row["threshold"] is not None], rules[0]["scope"] != "all"
    share, confidence = say.rate(rules[0]["target"]), say.rate(rules[0]["confidence"])
    marked = say.plural(sum(row["n"] for row in keeping), "marked answer")
    each = f" ({len(keeping)} of {len(rules)} questions, each by its own)" if by_item and len(rules) > 1 else ""
    return (
        f"Promised with {confidence} confidence, from {marked}{each}: at most {share} of released scores are {wrong}."
    )


def worth_of_promise(figures: Figures, rules: Sequence[Row]) -> str:
    """How often the best constant score of each question would be wrong, and how many scores are exactly right, among
    the released and among all: held out or, without such labels, on the marked answers. '' where that is not known."""
    stages = {"_released": "released", "": "calibrated"}
    names = {"constant": "constant_beyond_tolerance", "exact": "exact"}
    found = {f"{key}{end}": figures.machine(names[key], stages[end]).value for key in names for end in stages}
    keeping = [row for row in rules if row["threshold"] is not None]
    if None in found.values() and keeping:
        weights = {"_released": "released", "": "n"}
        found = {
            f"{key}{end}": sum(row[f"{key}{end}"] * row[of] for row in keeping) / sum(row[of] for row in keeping)
            for key in names
            for end, of in weights.items()
        }
    if None in found.values():
        return ""
    said = against_constant(found)
    return f"{said[:1].upper()}{said[1:]}."


def asks_nothing_sentence(rules: Sequence[Row]) -> str:
    """The questions of which nothing is promised because a constant would keep it, and the tolerance that would ask
    something; '' where there are none."""
    rows = [row for row in rules if row["refused"] == "asks_nothing"]
    if not rows or len(rules) == 1:
        return ""
    named = ", ".join(say.name(row["scope"]) for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    steps = [row["asking_tolerance"] for row in rows if row["asking_tolerance"] is not None]
    would = "no smaller tolerance would ask something"
    if steps:
        would = f"a tolerance of {say.plural(int(min(steps)), 'step')} would ask something"
    return (
        f"Nothing is promised on {say.plural(len(rows), 'question')} ({named}{more}), where the same score for every "
        f"answer would keep the promise; {would}."
    )


def nothing_released(
    rules: Sequence[Row], possible: Sequence[Row], responses: int, needs: Sequence[PromiseNeeds] = ()
) -> str:
    """Why no score goes out, and how near it was, in sentences that promise nothing.

    rules: rows of `release_rules`; possible: those of them that would allow more wrong scores, nearest first, with `n`
    responses that could go out then; responses: of the run; needs: what every promise wants.
    """
    asking = [row for row in rules if row["refused"] != "asks_nothing"]
    if not asking and not any(row["n"] for row in rules):
        return " ".join(
            filter(None, ("There are no marked answers that a promise could rest on.", too_small_words(needs)))
        )
    why = _why_nothing(asking or rules, needs) if asking or len(rules) == 1 else ""
    wanted = _wanted(asking[0], needs, why) if asking else ""
    near = _how_near(rules, possible, responses)
    return " ".join(filter(None, (why, wanted, asks_nothing_sentence(rules), near)))


def _wanted(rule: Row, needs: Sequence[PromiseNeeds], why: str) -> str:
    """What the promise wants where there is less, unless the reason tells it, and whether that can be had at all."""
    short = any(need.counting < need.needed for need in needs)
    words = wanted_words(rule["target"], rule["confidence"], needs) if short and " needed" not in why else ""
    figure = f"{words[:1].upper()}{words[1:]}." if words else ""
    return " ".join(filter(None, (figure, too_small_words(needs))))


def _why_nothing(rules: Sequence[Row], needs: Sequence[PromiseNeeds]) -> str:
    none = [row for row in rules if row["threshold"] is None]
    if len(none) < len(rules):
        most = max(row["threshold"] for row in rules if row["threshold"] is not None)
        obstacle = "every answer is above it, or needs a person for another reason"
        return f"Scores may go out up to an estimated risk of {say.share(most)}; {obstacle}."
    if len(rules) == 1 or none[0].get("refused") == "question_means":
        return f"{rules[0]['note'][:1].upper()}{rules[0]['note'][1:]}."
    needed = fewest_without_error(rules[0]["target"], rules[0]["confidence"])
    marked = {need.scope: need.counting for need in needs}
    few = [count for count in (marked.get(row["scope"]) or int(row["n"]) for row in rules) if count < needed]
    share = say.rate(rules[0]["target"])
    unproven = f"the marked answers do not show, even for the surest scores, that at most {share} are wrong"
    if not few:
        return f"On none of {len(rules)} questions can anything be promised: {unproven}."
    shortage = f"Too few marked answers to promise anything for {len(few)} of {len(rules)} questions: "
    shortage += f"{say.count(needed)} needed for each, at most {say.count(max(few))} here"
    return (
        f"{shortage}; for the other {len(rules) - len(few)}, {unproven}." if len(few) < len(rules) else f"{shortage}."
    )


def _how_near(rules: Sequence[Row], possible: Sequence[Row], responses: int) -> str:
    if not possible:
        return ""
    nearest = possible[0]
    where = "" if nearest["scope"] == "all" else f" to question {say.name(nearest['scope'])}"
    answers = f"about {say.count(nearest['n'])} of {say.plural(responses, 'answer')}{where} could go out"
    allowed = f"this study allows {say.rate(rules[0]['target'])}"
    return f"If up to {say.rate(nearest['possible_target'])} of them were allowed to be wrong, {answers}; {allowed}."


def above_promise(gates: Sequence[Row]) -> list[Row]:
    """The verdicts on items of whose released held-out scores more is wrong than promised, or may be by the upper end
    of the interval; the worst first. A promise for the set keeps none for an item."""
    items = [row for row in gates if (row["gate"], row["slice"]) == ("released_errors", "item") and row["n"]]
    rows = [row for row in items if max(row["estimate"], row["high"]) > row["most"]]
    return sorted(rows, key=lambda row: (-row["estimate"], -row["high"], row["value_of"]))


def above_promise_sentence(gates: Sequence[Row]) -> str:
    """The same in one or two sentences; '' where there are none."""
    rows = above_promise(gates)
    wrong = [row for row in rows if row["estimate"] > row["most"]]
    return " ".join(filter(None, (_wrong_sentence(wrong), _unsure_sentence(rows[len(wrong) :], bool(wrong)))))


def _wrong_sentence(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    shown = [f"{say.name(row['value_of'])} ({say.share(row['estimate'])} of {row['n']:,})" for row in rows[:NAMED]]
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return f"On {say.plural(len(rows), 'question')} more are wrong than promised: {', '.join(shown)}{more}."


def _unsure_sentence(rows: Sequence[Row], others: bool) -> str:
    """About questions whose figure keeps the promise, but from too few checked scores to be sure."""
    if not rows:
        return ""
    questions = say.plural(len(rows), "other question" if others else "question")
    fewest, most = min(row["n"] for row in rows), max(row["n"] for row in rows)
    checked = say.plural(most, "released score") if fewest == most else f"{fewest:,} to {most:,} released scores"
    each = " each" if len(rows) > 1 else ""
    return f"For {questions} taken alone, too few were checked to be sure of it ({checked}{each})."
