"""A grader's reasoning: the sample it grades, the steps of its rollout, and the mark that the rollout ends with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.edit import Family, Part, Unmarked


class GradingSamples(NamedTuple):
    """The samples of a study in the order of their ids."""

    train: tuple[Sample, ...]
    """The train split, as far as it has gold marks."""
    test: tuple[Sample, ...]
    """The test split."""
    part: Mapping[str, Part]
    """Response → train, or whether its item is seen in training."""
    unlabelled: int
    """Training responses left out because they have no gold mark."""
    bundles: Mapping[str, Bundle]
    """Item → its locked rubric."""


SCAFFOLD = "Final mark: "
"""What stands before the mark: the last line of a rollout, and what the belief probe appends (section 2.1)."""

_STATED = re.compile(r"^[ \t*#>-]*final mark[* \t]*[:：][* \t]*(?P<mark>[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(
    r"(?P<mark>-?[0-9]{1,6}(?:\.[0-9]{1,6})?)[* \t]*\(?(?:(?:/|out of)[ \t]*[0-9]{1,6})?\)?(?:[ \t]*marks?)?[ \t.*]*",
    re.IGNORECASE,
)
"""The mark as people dress it: bold, out of the highest, with its unit."""
_POINT = re.compile(r"^(?P<id>[^:\n]+): .*\((?:[^()]* marks?|counts)\)$", re.MULTILINE)
_LEVEL = re.compile(r"Level \d+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True)
class Sample:
    """What is graded: x = {q, ρ, a} with the marks it may get."""

    response_id: str
    item_id: str
    question: str
    """q, with the material that belongs to it."""
    scheme: str
    """ρ, the mark scheme as printed for the grader."""
    answer: str
    """a, the student's text."""
    top: int
    """M_q, the highest mark, ≥ 1; the lowest is 0."""
    gold: int | None = None
    """m*, the human mark; None where there is none."""


class Step(NamedTuple):
    """A step of a rollout: text[start:end], white space around it left out."""

    start: int
    end: int


class Stated(NamedTuple):
    """The mark that a rollout states: a value, or why there is none."""

    mark: int | None
    reason: Unmarked | None


def cut(text: str) -> tuple[Step, ...]:
    """The steps of a rollout in order, without the line that states the mark and what follows it.

    The paper leaves the cut open; ours: a step is a line; reasoning on one line is cut into sentences, also of scripts
    that put no space between them. White space alone is no step, so an empty rollout has none.

    >>> text = "P1 is met.\\nP2 is not.\\nFinal mark: 1"
    >>> [text[step.start : step.end] for step in cut(text)]
    ['P1 is met.', 'P2 is not.']
    """
    stated = _last(text)
    end = stated.start() if stated else len(text)
    lines = list(_pieces(text, 0, end, re.compile(r"\n")))
    return tuple(_pieces(text, *lines[0], _SENTENCE)) if len(lines) == 1 else tuple(lines)


def read_mark(text: str, top: int) -> Stated:
    """The mark that the last 'Final mark: …' line states, an integer in 0…top.

    >>> read_mark("…\\nFinal mark: 3", 4), read_mark("…\\nFinal mark: 5", 4).reason, read_mark("3", 4).reason
    (Stated(mark=3, reason=None), 'off_scale', 'no_mark')
    """
    stated = _last(text)
    number = _NUMBER.fullmatch(stated["mark"].strip()) if stated else None
    if number is None:
        return Stated(None, "no_mark")
    mark = float(number["mark"])
    return Stated(int(mark), None) if mark.is_integer() and 0 <= mark <= top else Stated(None, "off_scale")


def states_mark(text: str) -> bool:
    """Whether a line states a mark, on the scale or off it.

    >>> states_mark("…\\nFinal mark: 30"), states_mark("…\\nFinal mark: N")
    (True, False)
    """
    return read_mark(text, 0).reason != "no_mark"


def up_to_mark(text: str, top: int) -> str:
    """A rollout up to the line that states its mark, without what the policy went on to write; all of it where no line
    does."""
    stated = _last(text)
    return text[: stated.end()] if stated and read_mark(text, top).mark is not None else text


def without_mark(text: str) -> str:
    """A text without a last line that states a mark."""
    stated = _last(text)
    return text[: stated.start()] if stated and stated.end() == len(text) else text


def _last(text: str) -> re.Match[str] | None:
    return next(reversed(list(_STATED.finditer(text))), None)


def _pieces(text: str, start: int, end: int, between: re.Pattern[str]) -> list[Step]:
    """text[start:end] between separators, stripped, the empty ones left out."""
    ends = [match.span() for match in between.finditer(text, start, end)]
    steps, begin = [], start
    for stop, after in [*ends, (end, end)]:
        piece = text[begin:stop]
        if piece.strip():
            lead = len(piece) - len(piece.lstrip())
            steps.append(Step(begin + lead, begin + len(piece.rstrip())))
        begin = after
    return steps


# What a study gives the arms to learn from and to be measured on: its tables as samples. Pure.


def grading_samples(
    responses: Sequence[Fields],
    items: Sequence[Fields],
    bundles: Mapping[str, Bundle],
    gold: Mapping[str, float],
) -> GradingSamples:
    """Rows of `responses` and `items`, bundles by rubric and target scores by response as samples.

    InputError for a target score that is no whole mark from 0 to the highest, a scale of another form, no training
    response with a target score, or no test response.
    """
    item_rows = {item["item_id"]: item for item in items}
    bundle_of = {item_id: bundles[item["rubric_id"]] for item_id, item in item_rows.items()}
    tops = {item_id: top_mark(bundle) for item_id, bundle in bundle_of.items()}
    schemes = {item_id: printed(bundle) for item_id, bundle in bundle_of.items()}

    def sample(row: Fields) -> Sample:
        item_id = row["item_id"]
        score = gold.get(row["response_id"])
        item = item_rows[item_id]
        top = tops[item_id]
        if score is not None and not (float(score).is_integer() and 0 <= score <= top):
            whose = f"response '{row['response_id']}' has the target score {score:g}"
            rule = f"{whose}; a mark is a whole number from 0 to {top}"
            raise InputError(rule, field="score", hint="evaluation: {target: …} names one rater in place of the mean")
        asked = filter(None, (item["question"], item["context"]))
        return Sample(
            response_id=row["response_id"],
            item_id=item_id,
            question="\n\n".join(asked),
            scheme=schemes[item_id],
            answer=row["text"],
            top=top,
            gold=None if score is None else int(score),
        )

    ordered = sorted(responses, key=lambda row: str(row["response_id"]))
    train_split = [sample(row) for row in ordered if row["split"] == "train"]
    train = tuple(sample for sample in train_split if sample.gold is not None)
    test = tuple(sample(row) for row in ordered if row["split"] == "test")
    if not train:
        rule = "there is no response to train on"
        if train_split:
            rule = "none of the responses to train on has a target score"
        raise InputError(rule, field="split", hint="split: {shares: [0.8, 0, 0.2]} makes four fifths the train split")
    if not test:
        raise InputError("there is no response in the test split, so no arm could be measured", field="split")
    train_items = {sample.item_id for sample in train}
    part: dict[str, Part] = {}
    for tested in test:
        part[tested.response_id] = "seen" if tested.item_id in train_items else "unseen"
    part |= {sample.response_id: "train" for sample in train}
    return GradingSamples(train, test, part, len(train_split) - len(train), bundle_of)


# The mark scheme ρ as the policy reads it, printed from a locked bundle.


def family(bundle: Bundle) -> Family:
    """levels where the bundle decides one criterion whose levels its trait's anchors give bands of marks; else
    points."""
    if len(bundle.criteria) != 1:
        return "points"
    (criterion,) = bundle.criteria
    (trait,) = (trait for trait in bundle.traits if trait.id == criterion.trait)
    return "levels" if len(trait.anchors) == len(criterion.levels) > 2 else "points"


def top_mark(bundle: Bundle) -> int:
    """M_q; InputError for a scale that is not 0, 1, … M_q."""
    low, high, step = bundle.scale.bounds
    if low != 0 or step != 1:
        rule = f"marks are whole numbers from 0; this scale is {low:g} to {high:g} in steps of {step:g}"
        raise InputError(rule, field="scale")
    return round(high)


def bands(bundle: Bundle) -> list[tuple[int, int]]:
    """(lowest, highest) mark of every level of a levels scheme, lowest level first."""
    (criterion,) = bundle.criteria
    (trait,) = (trait for trait in bundle.traits if trait.id == criterion.trait)
    ends = [round(anchor.score) for anchor in trait.anchors]
    starts = [0, *(end + 1 for end in ends)]
    return list(zip(starts, ends, strict=False))


def printed(bundle: Bundle) -> str:
    """The scheme as text: a line for each point with its marks, or for each level with its band; where points are
    counted, a line for each point and one that says how many of them earn what.

    A point's marks are its share of the scale's maximum, as the protocol's `weighted_points` gives them. InputError
    where only some points are counted, or where a count is made of counts.
    """
    if any(composite.count for composite in bundle.composites):
        # The points that one criterion counts, and how many of them earn what.
        counter, *others = bundle.composites
        counts_alone = counter.count is not None and not counter.count.needs and counter.weight > 0
        of_counter = all(point.parent == counter.id and point.top == 1 for point in bundle.criteria)
        if others or not counts_alone or not of_counter:
            rule = f"criterion '{counter.id}' counts sub-points in a way that cannot be printed for the policy"
            raise InputError(rule, field="count", hint="one criterion that counts all points, met or not, or weights")
        points = [f"{point.id}: {' '.join(point.text.split())} (counts)" for point in bundle.criteria]
        return "\n".join([*points, f"What they earn: {_earned(counter, bundle.scale.max)}"])
    if family(bundle) == "levels":
        levels = zip(bands(bundle), bundle.criteria[0].levels, strict=True)
        lines = []
        for number, ((low, high), text) in enumerate(levels):
            lines.append(f"Level {number}: {text} ({_marks(low) if low == high else f'{low}-{high} marks'})")
        return "\n".join(lines)
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    lines = []
    for criterion in bundle.criteria:
        text = " ".join(criterion.text.split())
        lines.append(f"{criterion.id}: {text} ({_marks(criterion.weight * unit)})")
    return "\n".join(lines)


def point_ids(scheme: str) -> tuple[str, ...]:
    """The points that a printed scheme names; none for levels, whose checklist lists what the answer may say.

    >>> point_ids("P1: roots absorb water (1 mark)\\nP2: leaves release it (0.5 marks)")
    ('P1', 'P2')
    """
    return tuple(name for name in line_ids(scheme) if not _LEVEL.fullmatch(name))


def line_ids(scheme: str) -> tuple[str, ...]:
    """What a checklist of a printed scheme has a line for: its points, or its levels, as the scheme calls them.

    >>> line_ids("Level 0: nothing (0 marks)\\nLevel 1: a reason (1-2 marks)")
    ('Level 0', 'Level 1')
    """
    return tuple(match["id"] for match in _POINT.finditer(scheme))


def refuse_counted(bundle: Bundle) -> None:
    """InputError where points are counted: they have no marks of their own."""
    if counting := [composite.id for composite in bundle.composites if composite.count]:
        rule = f"criterion '{counting[0]}' counts its sub-points, which then have no marks of their own to edit"
        raise InputError(rule, field="count", hint="edit: {faithfulness: false} leaves the edits of schemes out")


def _earned(counter: Criterion, most: float) -> str:
    """How many points earn how many marks.

    >>> _earned(Criterion(id="K", trait="t", text="Steps.", count={"points": [0, 1, 1, 2]}), 4)
    'none of them 0 marks; 1 or 2 of them 2 marks; 3 or more of them 4 marks'
    """
    assert counter.count is not None
    top = len(counter.count.points) - 1
    bands = []
    for points, steps in groupby(enumerate(counter.count.points), key=lambda step: step[1]):
        met = [number for number, _ in steps]
        mark = _marks(points / counter.weight * most)
        first, last = met[0], met[-1]
        if last == top:
            many = f"{first} or more"
        elif first == last:
            many = str(first) if first else "none"
        else:
            many = f"{first} or {last}" if last == first + 1 else f"{first} to {last}"
        bands.append(f"{many} of them {mark}")
    return "; ".join(bands)


def _marks(value: float) -> str:
    return f"{value:g} mark{'' if value == 1 else 's'}"
