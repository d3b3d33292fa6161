"""What can be seen of a rubric without a model: from its criteria, its counting rule and the text of the scoring guide.

Every rule looks for one thing and is silent where it is not sure: a warning that is false is read once, and then none
is. The words that it looks for are English; rules of points look at numbers alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric
from rubricflow.tasks.core.contracts.composite import together
from rubricflow.tasks.grading.rubrics.wording import (
    AND_OR,
    OR,
    VAGUE_LEVEL,
    CatchAll,
    apart,
    catch_alls,
    grams,
    guide_counts,
    is_catch_all,
    joins_two,
    likeness,
    one_pattern,
    opposed,
)

RULES: Mapping[str, str] = {
    "two_facts": "two facts in one criterion",
    "exclusive": "alternatives that exclude each other are added",
    "overlap": "two criteria say nearly the same and both count",
    "middle_level": "a middle level that nobody defined",
    "points": "points and scale do not fit",
    "guide_count": "a counting rule unlike the guide's numbers",
    "catch_all": "no catch-all where the guide has one",
    "comparison": "a comparison that one sentence must prove",
}
Severity = Literal["wrong", "doubtful"]
"""Whether scores are off wherever it matters, or an answer may be misjudged."""


SEVERAL = ("several",)
"""In place of ids that differ from rubric to rubric."""


class RubricFinding(NamedTuple):
    """What is the matter with a rubric."""

    rubric_id: str
    criteria: tuple[str, ...]
    """In the rubric's order; none where it is about the rubric."""
    rule: str
    """Of RULES; of the kinds of `critique`, or those of `item_analysis`."""
    severity: Severity
    text: str
    """What it is and why it matters, a sentence or two."""
    wording: str = ""
    """What might stand there instead."""


def findings(rubric: Rubric, missed: Sequence[float] = ()) -> list[RubricFinding]:
    """All that the rules find, in the order of RULES. rubric: with the guide in its text; missed: scores of its scale
    that no answer can get by its counts, lowest first."""
    of_missed: Severity = "wrong" if rubric.scale.max in missed else "doubtful"
    found: list[tuple[str, Severity, Found]] = [
        ("two_facts", "doubtful", _two_facts(rubric)),
        ("exclusive", "wrong", _exclusive(rubric)),
        ("overlap", "doubtful", _overlapping(rubric)),
        ("middle_level", "doubtful", _middle_levels(rubric)),
        ("points", of_missed, _missed(rubric, missed)),
        ("points", "wrong", _points(rubric)),
        ("guide_count", "wrong", _guide_counts(rubric)),
        ("catch_all", "wrong", _catch_alls(rubric)),
        ("comparison", "doubtful", _comparisons(rubric)),
    ]
    rows = []
    for rule, severity, of_rule in found:
        rows += [RubricFinding(rubric.rubric_id, tuple(ids), rule, severity, text) for ids, text in of_rule]
    return rows


def merged(found: Sequence[RubricFinding]) -> list[RubricFinding]:
    """The findings, those that are said of several rubrics in the same words once, at the place of the first, with the
    rubrics' names; and with criteria where these are the same."""
    same_words: dict[tuple[str, str, str], list[RubricFinding]] = {}
    for finding in found:
        same_words.setdefault((finding.rule, finding.text, finding.wording), []).append(finding)
    rows = []
    for same in same_words.values():
        names = tuple(dict.fromkeys(finding.rubric_id for finding in same))
        ids = tuple(dict.fromkeys(name for finding in same for name in finding.criteria))
        is_one = len(names) == 1 or len({finding.criteria for finding in same}) == 1
        rows.append(same[0]._replace(rubric_id=", ".join(names), criteria=ids if is_one else SEVERAL))
    return rows


Found = Iterator[tuple[Sequence[str], str]]
"""What a rule finds: criteria, and what is the matter with them."""


def decided(rubric: Rubric) -> list[Criterion]:
    """The criteria that a judge decides: those without sub-points."""
    parents = {criterion.parent for criterion in rubric.criteria}
    return [criterion for criterion in rubric.criteria if criterion.id not in parents]


def _counting(rubric: Rubric) -> dict[str, Criterion]:
    return {criterion.id: criterion for criterion in rubric.criteria if criterion.count}


# Two facts: one decision cannot say that one of them is there and the other is not.


def _two_facts(rubric: Rubric) -> Found:
    for criterion in decided(rubric):
        says_half = len(criterion.levels) > 2 and not undefined_middle(criterion)
        if says_half or criterion.weight < 0 or OR in criterion.text:  # a mistake is often a cause with its effect
            continue
        if AND_OR.search(criterion.text):
            text = "It says 'and/or': whether one of the two is enough is left to each judge. Say which."
            yield [criterion.id], text
        elif second := joins_two(criterion.text):
            text = f"It joins a second statement, '{second}': an answer with one of the two has no right level. "
            yield [criterion.id], text + "Split it, or say that either is enough."


# Criteria next to one another: alternatives that are added, and the same thing twice.


def _added(rubric: Rubric) -> Iterator[tuple[Criterion, ...]]:
    """Decided criteria that stand side by side and are added up: those of one parent, if its count gives more for two
    of them than for one."""
    beside: dict[str | None, list[Criterion]] = defaultdict(list)
    for criterion in decided(rubric):
        beside[criterion.parent].append(criterion)
    counting = _counting(rubric)
    for parent, group in beside.items():
        count = counting[parent].count if parent in counting else None
        if count is None or len(set(count.points[1:])) > 1:
            yield tuple(group)


def _exclusive(rubric: Rubric) -> Found:
    for group in _added(rubric):
        order = {criterion.id: number for number, criterion in enumerate(group)}
        bound: dict[str, set[str]] = {}
        for a, b in combinations(group, 2):
            said = b.id in a.excludes or a.id in b.excludes
            if a.weight * b.weight > 0 and not said and apart(a.text, b.text):
                both = bound.get(a.id, {a.id}) | bound.get(b.id, {b.id})
                bound |= dict.fromkeys(both, both)
        for names in {frozenset(names) for names in bound.values()}:
            ids = sorted(names, key=order.__getitem__)
            text = "No answer can say more than one of these, and yet each adds its points: the top is out of reach, "
            text += "and a right choice earns a fraction. Count them as one (any of them), or let them exclude."
            yield ids, text


_ALIKE = 0.75


def _overlapping(rubric: Rubric) -> Found:
    for group in _added(rubric):
        bags = {criterion.id: grams(criterion.text) for criterion in group}
        for a, b in combinations(group, 2):
            is_apart = a.id in b.excludes or b.id in a.excludes or a.weight * b.weight <= 0
            told_apart = (apart, opposed, one_pattern)
            if is_apart or any(differ(a.text, b.text) for differ in told_apart):
                continue
            if likeness(bags[a.id], bags[b.id]) >= _ALIKE:
                text = "They say nearly the same and both add points: one sentence of an answer is paid twice."
                yield [a.id, b.id], text


# Levels.


def undefined_middle(criterion: Criterion) -> list[str]:
    """The levels between the lowest and the highest whose words fit any criterion, such as `hinted at`."""
    return [level for level in criterion.levels[1:-1] if VAGUE_LEVEL.fullmatch(" ".join(level.lower().split()))]


def _middle_levels(rubric: Rubric) -> Found:
    """One finding for all criteria with the same levels: it is one decision of the author's."""
    counting = _counting(rubric)
    by_level = defaultdict[tuple[str, bool, bool], list[str]](list)
    for criterion in decided(rubric):
        parent = counting.get(criterion.parent or "")
        for level in undefined_middle(criterion):
            is_fact = criterion.kind in ("gold_point", "misconception")
            least = (parent.count.least or criterion.top) if parent and parent.count else 0
            idle = least > criterion.levels.index(level)
            by_level[level, idle, is_fact].append(criterion.id)
    for (level, idle, is_fact), ids in by_level.items():
        text = f"Nobody says what '{level}' looks like here, so each judge draws the line elsewhere"
        if idle:
            text += ", and the count takes it for not met. Leave it out, or say what it is."
        else:
            remedy = ", or leave it out: a fact is said or not." if is_fact else "."
            text += f" and gives part of the points by it. Say by an example what it is{remedy}"
        yield ids, text


# Points against the scale, and against the numbers in the guide.


def _missed(rubric: Rubric, missed: Sequence[float]) -> Found:
    high = rubric.scale.max
    if high in missed:
        yield [], f"No answer can get {high:g}, the top of the scale, by these counts: the best one is marked down."
    elif missed:
        yield [], f"No answer can get {', '.join(f'{s:g}' for s in missed)} by these counts, which people may give."


def _points(rubric: Rubric) -> Found:
    whole = [criterion for criterion in rubric.criteria if criterion.parent is None and criterion.weight > 0]
    is_plain = all(criterion.kind == "gold_point" and criterion.weight == 1 for criterion in whole)
    one_trait = len({criterion.trait for criterion in whole}) == 1
    earned = together(whole)
    steps = rubric.scale.levels - 1
    if len(whole) > 2 and is_plain and one_trait and earned > 2 * steps:
        text = (
            f"{len(whole)} points share {steps} steps of the scale, so each is worth {steps / earned:.2g} of one and "
        )
        text += (
            "the top asks for nearly all of them. Where a guide asks for some of many, give them a parent with a count."
        )
        yield [criterion.id for criterion in whole], text


def _guide_counts(rubric: Rubric) -> Found:
    asked = guide_counts(rubric.text)
    if len(asked) != 1:
        return  # of several kinds of things nobody but the author knows which criteria are which
    (guide,) = asked
    counting = list(_counting(rubric).values())
    needed = {one.id: one.count.points.index(one.count.points[-1]) for one in counting if one.count}
    whole = [criterion for criterion in decided(rubric) if criterion.parent is None and criterion.weight > 0]
    ask = f"The guide gives the most points for {guide.most} of one kind ({guide.thing})"
    if not counting:
        if len(whole) > guide.most:
            text = f"{ask}; here {len(whole)} criteria are added and the top needs them all. Count them under a parent."
            yield [criterion.id for criterion in whole], text
        return
    fitting = [one for one in counting if needed[one.id] == guide.most]
    if not fitting:
        widest = max(counting, key=lambda one: needed[one.id])
        text = f"{ask}; '{widest.id}' gives them for {needed[widest.id]}."
        yield [widest.id], text
        return
    low, high, _ = rubric.scale.bounds
    (one, *others) = fitting
    if others or one.count is None or one.parent is not None or one.count.points[-1] != high - low:
        return
    for number, score in guide.scores.items():
        given = low + one.count.points[min(number, len(one.count.points) - 1)]
        if given != score and low <= score <= high:
            text = f"For {number} of one kind ({guide.thing}) the guide gives {score:g}, '{one.id}' {given:g}."
            yield [one.id], text


# The guide's catch-alls.


def missing_catch_alls(rubric: Rubric) -> list[CatchAll]:
    """The catch-alls of a rubric's guide that none of its criteria takes up; all or, where it has as many as the guide,
    none."""
    asked = catch_alls(rubric.text)
    taken = sum(is_catch_all(criterion.text) for criterion in decided(rubric))
    return asked if taken < len(asked) else []


def _catch_alls(rubric: Rubric) -> Found:
    missing = missing_catch_alls(rubric)
    if missing:
        said = " and ".join(f"'{catch.words}'" for catch in missing)
        text = f"The guide allows {said}, and no criterion does: a right answer that nobody foresaw earns nothing."
        yield [], text


# What a single sentence must prove.

_COMPARES = re.compile(
    r"(?<=[\w,] )while\b(?! (?:statement|loop|\w+ing|in|at|on)\b)|"
    r"\b(?:whereas|in contrast|unlike|on the other hand|both sides)\b",
    re.I,
)


def _comparisons(rubric: Rubric) -> Found:
    for criterion in decided(rubric):
        if _COMPARES.search(criterion.text) and criterion.evidence == "local_quote":
            text = "It sets two things against each other, and its evidence is a quote from one sentence: an answer "
            text += "that says each in a sentence of its own cannot prove it. Take evidence: span_level, or split it."
            yield [criterion.id], text
