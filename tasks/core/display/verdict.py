"""The one verdict on a graded run: which scores may go out, by what promise, and what the machine is not good for.

It follows from the final scores, the rules of release and the gates together, so that page, terminal, Prefect and
gradebook say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row, Rows

ScaleBounds = tuple[float, float, float]
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
    counts, waiting = Counter[str](), Counter[str]()
    for row in final_scores:
        counts[row["decided_by"]] += row["n"]
        if row["decided_by"] == "waits":
            counts["scored"] += row["n"] * row["scored"]
            counts["held back"] += row["n"] * (row["settled_by"] is None and row["route_reason"] == "promise_broken")
            waiting[_why_it_waits(row)] += row["n"]
    answers, released, held_back = sum(row["n"] for row in final_scores), counts["machine"], counts["held back"]
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
