"""The rubric linter: names criteria that raters will read differently. It warns and never refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric, Scale
from rubricflow.tasks.core.contracts.composite import clipped, together
from rubricflow.tasks.core.text.tokens import tokens

_MARK = re.compile(
    r"(?:^[ \t]*(?:[-*•]\s*)?|(?<=[.;!?])\s+)"
    r"(?:(?:score|level|band|grade|mark)\s+(?:of\s+)?(?P<named>\d+(?:\.\d+)?)\s*[:=–—-]"
    r"|(?P<plain>\d+(?:\.\d+)?)(?:\s+points?)?\s*[:=])\s*",
    re.IGNORECASE | re.MULTILINE,
)


class Band(NamedTuple):
    """A passage: text[start:end] says what `score` looks like; what it says begins at `body`."""

    score: float
    start: int
    body: int
    end: int


_MOST = 100_000
"""Sums beyond which a rubric is taken to reach what it likes."""


_VAGUE = frozenset(
    {"good", "bad", "nice", "appropriate", "adequate", "sufficient", "reasonable", "proper", "effective", "effectively"}
    | {"clear", "clearly", "well", "strong", "weak", "interesting", "relevant", "some", "several", "various", "etc"}
)
_TWO_IN_ONE = re.compile(r"\b(?:and also|as well as|and/or)\b|;", re.IGNORECASE)
_OVERLAP = 0.7
_LONG = 40


def lint(rubric: Rubric) -> list[str]:
    """Warnings as `criterion: what`, in the order of the criteria: vague words, two demands in one, too long, without
    weight, sub-points that do not add up, nearly the same as an earlier one; and of the rubric: scores that its counts
    cannot reach, and that it can only cost marks."""
    warnings = []
    parts = _parts(rubric)
    words = {criterion.id: tokens(criterion.text) for criterion in rubric.criteria}
    for criterion in rubric.criteria:
        vague = sorted(_VAGUE & set(tokens(_TWO_IN_ONE.sub(" ", criterion.text))))
        if vague:
            warnings.append(f"{criterion.id}: vague ({', '.join(vague)})")
        if _TWO_IN_ONE.search(criterion.text):
            warnings.append(f"{criterion.id}: double-barrelled; two demands in one criterion")
        if len(words[criterion.id]) > _LONG:
            warnings.append(f"{criterion.id}: {len(words[criterion.id])} words long")
        if criterion.weight == 0:
            warnings.append(f"{criterion.id}: weight 0; it counts only as a condition of others")
        if criterion.id in parts and not math.isclose(parts[criterion.id], abs(criterion.weight)):
            most = f"{parts[criterion.id]:g} of its {abs(criterion.weight):g} points"
            warnings.append(f"{criterion.id}: its sub-points come to {most}")
    if missed := unreachable(rubric):
        warnings.append(f"rubric: by its counts no answer can get {', '.join(f'{score:g}' for score in missed)}")
    warnings += _overlapping({name: set(of_criterion) for name, of_criterion in words.items()})
    if all(criterion.weight <= 0 for criterion in rubric.criteria if criterion.parent is None):
        warnings.append("rubric: every criterion costs marks; the full score is where nothing is found")
    return warnings


def _overlapping(words: dict[str, set[str]]) -> Iterator[str]:
    """Each criterion that says nearly the same as an earlier one, with the first of these. words: of each criterion."""
    for number, (name, later_words) in enumerate(words.items()):
        for earlier, earlier_words in islice(words.items(), number):
            sizes = len(later_words), len(earlier_words)
            if min(sizes) < _OVERLAP * max(*sizes, 1):
                continue  # they cannot share enough; a rubric may have a thousand criteria
            shared = len(later_words & earlier_words)
            both = sum(sizes) - shared
            if shared / both >= _OVERLAP:
                yield f"{earlier}, {name}: overlapping; {shared} of {both} words are the same"
                break


def _parts(rubric: Rubric) -> dict[str, float]:
    """Criterion with sub-points that earn for themselves → the points that these earn towards it at most."""
    counting = {criterion.id for criterion in rubric.criteria if criterion.count}
    weights = {criterion.id: criterion.weight for criterion in rubric.criteria}
    points: dict[str, float] = {}
    for criterion in rubric.criteria:
        parent = criterion.parent
        if parent is not None and parent in weights and parent not in counting:
            towards = math.copysign(1.0, weights[parent]) * criterion.weight
            points[parent] = points.get(parent, 0.0) + max(0.0, towards)
    return points


# Scores that no answer can get, where a rubric counts.


def unreachable(rubric: Rubric) -> list[float]:
    """Scores of the scale that no levels of a rubric with a count add up to by weighted points, lowest first.

    None where nothing is counted or nothing earns. Exclusions are passed over: they only leave fewer sums.
    """
    upper = [criterion for criterion in rubric.criteria if criterion.parent is None]
    full = together([criterion for criterion in upper if criterion.weight > 0])
    if not full or not any(criterion.count for criterion in rubric.criteria):
        return []
    parts: dict[str, list[Criterion]] = {}
    for criterion in rubric.criteria:
        if criterion.parent is not None:
            parts.setdefault(criterion.parent, []).append(criterion)
    sums = _sums(upper, parts)
    if sums is None:
        return []
    low, high, step = rubric.scale.bounds
    reached = {math.floor(clipped(points / full) * (high - low) / step + 0.5 + 1e-9) for points in sums}
    return [round(low + number * step, 12) for number in range(rubric.scale.levels) if number not in reached]


def _sums(criteria: Iterable[Criterion], parts: Mapping[str, Sequence[Criterion]]) -> set[float] | None:
    """All that criteria together can add to the points; None where that is too much."""
    sums = {0.0}
    for criterion in criteria:
        added = _points(criterion, parts)
        if added is None or len(sums) * len(added) > _MOST:
            return None
        sums = {round(before + points, 9) for before, points in product(sums, added)}
    return sums


def _points(criterion: Criterion, parts: Mapping[str, Sequence[Criterion]]) -> set[float] | None:
    """All that a criterion can add to the points; None where that is too much."""
    if criterion.count:
        most = round(together(parts[criterion.id], counted=True))
        points = criterion.count.points
        last = len(criterion.count.points) - 1
        met = range(len(criterion.count.needs), most + 1)
        return {0.0} | {math.copysign(points[min(number, last)], criterion.weight) for number in met}
    if criterion.id in parts:
        sums = _sums(parts[criterion.id], parts)
        return sums and {clipped(earned / criterion.weight) * criterion.weight for earned in sums}
    return {criterion.weight * share for share in criterion.shares}


# Score bands in a rubric's prose: passages that begin with the score which they describe.


def bands(text: str, scale: Scale) -> list[Band]:
    """The bands in the order of the text; none unless there are at least two, of different scores on the scale.

    A band ends where the next one begins, the last at a blank line.
    """
    marks = list(_MARK.finditer(text))
    scores = [float(mark["named"] or mark["plain"]) for mark in marks]
    on_scale = all(scale.min <= score <= scale.max for score in scores)
    if len(marks) < 2 or len(set(scores)) < len(scores) or not on_scale:
        return []
    starts = [mark.start() + len(mark[0]) - len(mark[0].lstrip()) for mark in marks]
    blank = re.compile(r"\n\s*\n").search(text, marks[-1].end())
    ends = [*starts[1:], blank.start() if blank else len(text)]
    bodies = [mark.end() for mark in marks]
    return [Band(*columns) for columns in zip(scores, starts, bodies, ends, strict=True)]


def reversed_bands(text: str, scale: Scale) -> str:
    """The text with its bands in the reverse order; white space between them, and all else, stays where it is."""
    score_bands = bands(text, scale)
    if not score_bands:
        return text
    bodies = [text[band.start : band.end].rstrip() for band in score_bands]
    gaps = [text[band.start + len(body) : band.end] for band, body in zip(score_bands, bodies, strict=True)]
    middle = "".join(body + gap for body, gap in zip(reversed(bodies), gaps, strict=True))
    return text[: score_bands[0].start] + middle + text[score_bands[-1].end :]
