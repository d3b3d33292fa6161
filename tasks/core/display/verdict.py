"""The one verdict on a graded run: which scores may go out, by what promise, and what the machine is not good for; why
an answer waits for a person, and what a promise wants of marked answers.

It follows from the final scores, the rules of release and the gates together, so that page, terminal, Prefect and
gradebook say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.settings.data import Split
from rubricflow.tasks.core.contracts.settings.study import Release, Study
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, Refusal
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.promise import (
    SECONDS_TO_MARK,
    WORDS_A_MINUTE,
    MarkedAnswers,
    PromiseNeeds,
    promise_needs,
)

FINAL_SCORES = """
    SELECT decided_by, settled_by, machine_score IS NOT NULL AS scored, route_reason, unscored_reason, count(*) AS n
    FROM final_scores GROUP BY ALL ORDER BY ALL"""
"""What a verdict counts, asked of a run's tables."""


SECOND_MARKER = ("degradation_qwk", "degradation_exact", "machine_qwk")
"""Gates that a second marker has to keep."""


class ReleaseVerdict(NamedTuple):
    """What a run's scores may be used for."""

    sentence: str
    """Which scores go out: it decides."""
    promise: str
    """What is promised of those that go out, and how the held-out ones keep it; '' where none goes out."""
    caution: str
    """What the gates say that the machine is not good for; '' where nothing."""
    answers: int
    by_people: int
    released: int
    held_back: int
    """Answers whose scores would go out, were the promise kept on those held out; they wait for a person."""
    waiting: Mapping[str, int]
    """Why answers wait for a person → how many, most first."""

    @property
    def words(self) -> str:
        return " ".join(filter(None, (self.sentence, self.promise, self.caution)))


def verdict(final_scores: Rows, rules: Rows, gates: Rows, wrong: str) -> ReleaseVerdict:
    """final_scores: as FINAL_SCORES gives them; rules: of `release_rules`; gates: of `verdicts`; wrong: as
    `wrong_words` gives it."""
    counts = Counter[str]()
    waiting = Counter[str]()
    for row in final_scores:
        counts[row["decided_by"]] += row["n"]
        if row["decided_by"] == "waits":
            counts["scored"] += row["n"] * row["scored"]
            counts["held back"] += row["n"] * (row["settled_by"] is None and row["route_reason"] == "promise_broken")
            waiting[_why_it_waits(row)] += row["n"]
    answers = sum(row["n"] for row in final_scores)
    released = counts["machine"]
    held_back = counts["held back"]
    overall = {row["gate"]: row for row in gates if row["slice"] == row["value_of"] == "all"}
    most_first = dict(sorted(waiting.items(), key=lambda pair: (-pair[1], pair[0])))
    promise = _promise(rules, overall.get("released_errors"), wrong) if (released or held_back) and rules else ""
    caution = _caution(overall, gates)
    return ReleaseVerdict(
        _sentence(counts), promise, caution, answers, counts["person"], released, held_back, most_first
    )


def _sentence(counts: Mapping[str, int]) -> str:
    """counts: answers by who decided them; of those that wait also how many are 'scored' and how many 'held back'."""
    by_people, unjudged, released, waits = (counts[by] for by in ("person", "cannot_be_judged", "machine", "waits"))
    start = f"{say.plural(by_people, 'answer has', 'answers have')} people's scores. " if by_people else ""
    start += f"{say.plural(unjudged, 'answer')} cannot be judged. " if unjudged else ""
    if not released and not waits:
        return start.strip() or "There was nothing to score."
    other = "other " if by_people or unjudged else ""
    noun = f"{other}{'score' if counts['scored'] == waits else 'answer'}"
    scores = say.plural(released + waits, noun)
    if counts["held back"]:
        which = f"all {scores} back" if waits > 1 else f"the {noun} back"
        return f"{start}Hold {which}: of the {say.count(counts['held back'])} that would go out, too many are wrong."
    if not released:
        them = "people should grade them all" if waits > 1 else "a person should grade it"
        if not counts["scored"]:
            return f"{start}None of {say.plural(waits, f'{other}answer')} has a score: {them}."
        return f"{start}Release {f'none of {scores}' if waits > 1 else 'no score'}: {them}."
    if not waits:
        return f"{start}Release {f'all {scores}' if released > 1 else f'the one {other}score'}."
    return f"{start}Release {say.count(released)} of {scores}; people should grade the other {say.count(waits)}."


def _why_it_waits(row: Row) -> str:
    if row["settled_by"] is not None:
        return SCORE_SETTLED[row["settled_by"]]
    if not row["scored"] and row["unscored_reason"]:
        return UNSCORED_REASONS.get(row["unscored_reason"], say.worded(row["unscored_reason"]))
    reason = row["route_reason"] or "reason not given"
    return ROUTE_REASONS.get(reason, say.worded(reason))


def _promise(rules: Rows, gate: Row | None, wrong: str) -> str:
    """What is promised, and what the released scores of held-out answers are like, in two sentences."""
    keeping = [row for row in rules if row["threshold"] is not None]
    first = rules[0]
    marked = say.plural(sum(row["n"] for row in keeping), "marked answer")
    of_questions = f", for {len(keeping)} of {len(rules)} questions" if len(rules) > 1 else ""
    promise = (
        f"Promise: at most {say.rate(first['target'])} of released scores are {wrong} "
        f"({say.rate(first['confidence'])} confidence, from {marked}{of_questions})."
    )
    if gate is None or gate["estimate"] is None:
        return f"{promise} No held-out answer tells whether it is kept."
    interval = ""
    if gate["low"] is not None:
        interval = f" (95% interval {say.share(gate['low']).removesuffix('%')} to {say.share(gate['high'])})"
    return f"{promise} Of {say.count(gate['n'])} held-out ones, {say.share(gate['estimate'])} were{interval}."


def _caution(overall: Mapping[str, Row], gates: Rows) -> str:
    """What the machine is not: a second marker, or better than a model of the words."""
    below_people = {_outcome(overall, name) for name in SECOND_MARKER}
    over_words = next((row for row in gates if row["gate"] == "rubric" and row["slice"] == "all"), None)
    is_like_words = (
        over_words is not None
        and over_words["outcome"] != "unknown"
        and over_words["estimate"] is not None
        and over_words["estimate"] <= 0
    )
    like_words = "no better than a model of the words alone"
    if "fail" in below_people:
        also = f", and {like_words}" if is_like_words else ""
        return f"Not a second marker: it agrees with people less than a second person should{also}."
    if _outcome(overall, "within_questions") == "fail":
        return "Not shown to tell answers to one question apart: it may only know which questions are hard."
    return f"It agrees with people {like_words}." if is_like_words else ""


def _outcome(overall: Mapping[str, Row], gate: str) -> str:
    return str(overall[gate]["outcome"]) if gate in overall else "unknown"


def wrong_words(tolerance: float, scales: Iterable[ScaleBounds]) -> str:
    """What a wrong score is, as a predicate without its verb: more than 1 of 10 points off. tolerance: in steps of the
    scale (lowest, highest, step)."""
    if not tolerance:
        return "not exactly the human score"
    widths = {(high - low, step) for low, high, step in scales}
    if len(widths) == 1:
        ((width, step),) = widths
        return f"more than {say.level(tolerance * step)} of {say.level(width)} points off"
    return f"more than {say.level(tolerance)} {'step' if tolerance == 1 else 'steps'} of the scale off"


Rules = Mapping[str, Row]


def by_scope(rules: Iterable[Row]) -> Rules:
    """Rows of `release_rules`, by the item that they hold for."""
    return {row["scope"]: row for row in rules}


def why_waits(answer: Row, rules: Rules) -> str:
    """Why a person looks at a score before it goes out; no level and no score, as who votes blind reads it.

    answer: of `predictions` the columns item_id, route_reason and risk, and unscored_reason if it is known; rules: by
    their scope, those that are known. A reason that is not known is 'not released'.
    """
    reason = answer["route_reason"]
    words = ROUTE_REASONS.get(reason or "", "not released")
    rule = rules.get(answer["item_id"]) or rules.get("all")
    if reason == "unscored" and answer.get("unscored_reason") in UNSCORED_REASONS:
        return f"{words}: {UNSCORED_REASONS[answer['unscored_reason']]}"
    if reason in get_args(Refusal) and rule is not None and rule["note"]:
        return str(rule["note"])
    if reason != "risk" or answer["risk"] is None:
        return words
    estimate = say.share(answer["risk"])
    if rule is None or rule["threshold"] is None:
        return f"{words}: risk {estimate}"
    most = say.share(rule["threshold"])
    # Where both read alike, the difference is in digits that a reader does not need.
    limit = "just above the limit" if estimate == most else f"limit {most}"
    return f"{words}: risk {estimate}, {limit}"


def marked_by(marks: Mapping[str, float]) -> str:
    """Who marked an answer in the data, and with what: marked 3 by anna and 2 by ben. marks: rater → score, at least
    one."""
    given = [f"{say.level(round(score, 2))} by {say.name(rater)}" for rater, score in sorted(marks.items())]
    return f"marked {given[0] if len(given) == 1 else ', '.join(given[:-1]) + ' and ' + given[-1]}"


def score_step(step: Row) -> str:
    """A step of column `history` of `settled_scores`: the score, who gave it, when and why."""
    score = "none" if step["score"] is None else f"{step['score']:g}"
    when = f", {step['at'][:16].replace('T', ' ')}" if step["at"] else ""
    why = f": {step['comment']}" if step["comment"] else ""
    return f"{score} ({step['who']}{when}){why}"


def against_constant(figures: Row) -> str:
    """What a promise is worth, in a sentence without its full stop: how often the best constant score of each question
    would be wrong, and how many scores are exactly right.

    figures: shares of the released, `constant_released` and `exact_released`, and of all, `constant` and `exact`, as in
    `release_rules`.
    """
    constant, exact = (f"{say.share(figures[f'{key}_released'])} of" for key in ("constant", "exact"))
    of_all, exact_of_all = (f"{say.share(figures[key])} of all" for key in ("constant", "exact"))
    return (
        f"the same score for every answer to a question would be so for {constant} them ({of_all}); "
        f"{exact} them are exactly right ({exact_of_all})"
    )


# What a promise wants.

Finding = tuple[str, str, str]
"""(kind, what, message), as `validate` prints it."""


def release_needs(study: Study, items: Sequence[MarkedAnswers]) -> Iterator[Finding]:
    """What the promise about released scores needs, and what there is; and which marks the split sets aside."""
    needs = needs_of(study.release, items)
    too_small = too_small_words(needs)
    if any(item.marked for item in items):
        short = any(need.counting < need.needed for need in needs)
        yield "warning" if short else "ok", "release", wanted_words(study.release.risk, study.release.confidence, needs)
    else:
        yield "warning", "release", "no answer is marked by people: nothing is calibrated, and no score is released"
    if too_small:
        yield "warning", "release", too_small
    elif short_by_split := _set_aside(study.split, items, needs):
        yield "warning", "split", short_by_split


def needs_of(release: Release, items: Sequence[MarkedAnswers]) -> list[PromiseNeeds]:
    """What each promise of a study wants: one of the whole set, or one an item."""
    return promise_needs(items, release.risk, release.confidence, release.by == "item")


def wanted_words(risk: float, confidence: float, needs: Sequence[PromiseNeeds]) -> str:
    """How many marked answers would do for a promise of this risk, and how many there are that count."""
    needed = needs[0].needed
    promised = f"at most {say.rate(risk)} wrong at {say.rate(confidence)} confidence"
    start = f"a promise of {promised} takes {say.plural(needed, 'marked answer')} without an error"
    fewest = min(needs, key=lambda need: need.counting)
    if len(needs) == 1:
        return f"{start}: {say.count(needed)} needed, {say.count(fewest.counting)} here"
    short = sum(need.counting < needed for need in needs)
    here = f"at least {say.count(fewest.counting)} here"
    if short:
        here = (
            f"{short} of {len(needs)} questions have fewer, '{say.visible(fewest.scope)}' {say.count(fewest.counting)}"
        )
    return f"{start}, for every question by itself: {say.count(needed)} needed, {here}"


def too_small_words(needs: Sequence[PromiseNeeds]) -> str:
    """That all answers together cannot suffice, and how long people take to mark them where some are not marked, in
    sentences; '' where they can, of any promise."""
    small = [need for need in needs if need.answers < need.needed]
    if not small:
        return ""
    answers = sum(need.answers for need in small)
    needed = say.count(small[0].needed)
    minutes = say.count(max(1, round(sum(need.minutes for need in small))))
    every = "it" if answers == 1 else f"all {say.count(answers)}"
    work = (
        f" To read and mark {every} takes a person about {minutes} min, at {WORDS_A_MINUTE} words a minute and "
        f"{SECONDS_TO_MARK} s for each mark."
        if any(need.marked < need.answers for need in small)
        else ""
    )
    if sum(need.answers for need in needs) < small[0].needed:
        return (
            f"This class is too small for any promise: it takes {needed} marked answers, and all answers together are "
            f"{say.count(answers)}.{work}"
        )
    some = "Every question has" if len(small) == len(needs) else f"{len(small)} of {len(needs)} questions have"
    together = "release.by: set promises for all questions together."
    return f"{some} fewer than {needed} answers in all, too few for a promise of its own. {together}{work}"


def _set_aside(plan: Split, items: Sequence[MarkedAnswers], needs: Sequence[PromiseNeeds]) -> str:
    """How many marks a split keeps for measuring where the promise wants them; '' where it does not."""
    marked = sum(item.marked for item in items)
    counting = sum(item.counting for item in items)
    if plan.cross or counting == marked or all(need.counting >= need.needed for need in needs):
        return ""
    wished = plan.calibration * (len(items) if plan.per == "item" else 1)
    each = " for each question" if plan.per == "item" else ""
    wish = f"split.calibration wishes for {plan.calibration} marked answers{each}; " if counting < wished else ""
    others = say.count(marked - counting)
    return (
        f"{wish}{say.count(counting)} of {say.count(marked)} marked answers count, {others} are held out to test the "
        f"scores: with split: {{cross: true}} all {say.count(marked)} would count, and test the scores, too"
    )
