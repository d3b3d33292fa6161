"""The rubric linter: names criteria that raters will read differently. It warns and never refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice

from tasks.contracts.bundle import Rubric
from tasks.lock.reach import unreachable
from tasks.text.tokens import tokens

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
    warnings: list[str] = []
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
