"""Deterministic edits of a mark scheme, each with what becomes of every mark (section 3.4 and appendix E.1).

An edit is known by what becomes of every mark: an array from the old marks 0…M_q to the new ones. A mark of 0 stays 0
under all of them: where nothing is creditable there is nothing to shift, which is why the mean |Δgold| that the paper
gives for A1 is below 2. Levels (the paper leaves bands aside; ours): a mark moves as its level does, so that its place
in the band is kept. Points: marks are multiplied and rounded half up.

In the tests a scheme's prose is the printed scheme alone, with and without the edit: an author's prose may state marks,
which an edit would contradict. Where criteria or levels state marks themselves, the scheme is refused.

Rule faithfulness is measured here, too: whether a grader's marks follow the edits.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.edit import Family, RuleEdit, Totals
from rubricflow.tasks.core.stats.arrays import Floats, ratio
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, sums_by_code
from rubricflow.tasks.methods.edit.rollout import Sample, bands, family, printed, refuse_counted, top_mark

EDITS: dict[Family, tuple[RuleEdit, ...]] = {"levels": ("A1", "A2", "B1"), "points": ("x0.5", "x1.5", "x2.0")}
FACTORS: dict[RuleEdit, float] = {"x0.5": 0.5, "x1.5": 1.5, "x2.0": 2.0}
"""What every point's value is multiplied by."""
_COUNTED = r"\d+(?:[.,/]\d+)?|\b(?:half an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_MARKS = re.compile(rf"(?:{_COUNTED})[\s-]*(?:marks?\b|分(?![钟之]))|\bmarks?\s*[:=]\s*\d", re.IGNORECASE)

_BAND = re.compile(r"\b(\d+)(?:-(\d+))? marks?\b")


@dataclass(frozen=True)
class Edited:
    """A mark scheme after an edit."""

    edit: RuleEdit
    family: Family
    marks: tuple[int, ...]
    """New mark of every old mark 0…M_q; it never falls from one to the next."""
    bundle: Bundle
    """The scheme: weights, anchors, ranges, highest mark and prose."""
    bundle_id: str
    """Its id."""

    def row(
        self,
        rater_id: str,
        response_id: str,
        item_id: str,
        gold: int,
        predicted: tuple[float | None, float | None],
        totals: Totals,
    ) -> Record:
        """A row of `rule_tests`. gold: the human mark under the scheme as it was, 0…M_q; predicted: the grader's marks
        without and with the edit. InputError for a human mark off the scale."""
        if not 0 <= gold < len(self.marks):
            rule = f"response '{response_id}': a mark of {gold} is off the scale 0 to {len(self.marks) - 1}"
            raise InputError(rule, field="gold")
        return {
            "rater_id": rater_id,
            "edit": self.edit,
            "family": self.family,
            "response_id": response_id,
            "item_id": item_id,
            "bundle_id": self.bundle_id,
            "gold": gold,
            "gold_edited": self.marks[gold],
            "predicted": predicted[0],
            "predicted_edited": predicted[1],
            "top": len(self.marks) - 1,
            "top_edited": self.marks[-1],
            "totals": totals,
        }


def edits(bundle: Bundle) -> tuple[Edited, ...]:
    """A scheme after each edit of its family.

    InputError where points are counted, for marks that are not 0, 1, … M_q, for bands that do not hold every mark once,
    and where the words of a criterion, a level or an anchor state marks.
    """
    refuse_counted(bundle)
    for field, text in _words(bundle):
        if stated := _MARKS.search(text):
            rule = f"'{stated[0]}' in the words of the scheme would contradict an edit of its marks"
            raise InputError(rule, field=field, hint="marks belong in weights and in the scores of anchors")
    kind, plain = family(bundle), restated(bundle)
    edited = []
    for edit in EDITS[kind]:
        marks = moved(bundle, edit)
        changed = _shifted(plain, marks) if kind == "levels" else _multiplied(plain, FACTORS[edit])
        new = changed.model_copy(update={"scale": Scale(min=0, max=marks[-1])})
        edited.append(Edited(edit, kind, marks, new, new.bundle_id))
    return tuple(edited)


def moved(bundle: Bundle, edit: RuleEdit) -> tuple[int, ...]:
    """What becomes of every mark 0…M_q of a scheme of the edit's family. InputError as in `edits`.

    A1: +2; A2: × 2; B1: +1 in the lowest level that is worth more than 0, +2 above; points: times the factor, rounded
    half up. 0 stays 0.
    """
    old = range(top_mark(bundle) + 1)
    if edit in FACTORS:
        return tuple(math.floor(mark * FACTORS[edit] + 0.5) for mark in old)
    levels = bands(bundle)
    marks = chain.from_iterable(range(low, high + 1) for low, high in levels)
    if list(marks) != list(old):
        ends = ", ".join(str(high) for _, high in levels)
        rule = f"the levels end at {ends}: they do not part the marks 0 to {old[-1]}"
        raise InputError(rule, field="anchors", hint="the score of an anchor is the highest mark of its level")
    if edit == "A2":
        return tuple(2 * mark for mark in old)
    first = next(end for _, end in levels if end > 0)
    return tuple(mark and mark + (1 if edit == "B1" and mark <= first else 2) for mark in old)


def restated(bundle: Bundle) -> Bundle:
    """The scheme without an edit as the tests show it: the prose is the printed scheme, weights are marks, and a judge
    who states the total sees them."""
    protocol = bundle.protocol.model_copy(update={"show_weights": totals(bundle) == "stated"})
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    return bundle.model_copy(update={"text": printed(bundle), "protocol": protocol, **_weighted(bundle, unit)})


def totals(bundle: Bundle) -> Totals:
    """stated where a judge under this bundle gives the total itself, or the one trait that makes it; else summed."""
    judged = [trait for trait in bundle.traits if trait.source == "judged"]
    formula = bundle.protocol.final_score
    return "stated" if formula == "judged" or (len(judged) == 1 and formula != "weighted_points") else "summed"


def _multiplied(bundle: Bundle, factor: float) -> Bundle:
    """A points scheme with everything that is counted in marks multiplied, nothing rounded."""

    def times(scale: Scale) -> dict[str, float]:
        return {"min": scale.min * factor, "max": scale.max * factor, "step": scale.step * factor}

    traits = []
    for trait in bundle.traits:
        anchors = [anchor.model_copy(update={"score": anchor.score * factor}) for anchor in trait.anchors]
        traits.append(trait.model_copy(update={"anchors": tuple(anchors), **times(trait)}))
    scale = bundle.scale.model_copy(update=times(bundle.scale))
    weighted = _weighted(bundle, factor)
    exact = bundle.model_copy(update={"scale": scale, "traits": tuple(traits), **weighted})
    return exact.model_copy(update={"text": printed(exact)})


def _shifted(bundle: Bundle, marks: Sequence[int]) -> Bundle:
    """A levels scheme with every mark replaced. Its bands may lie apart then, which anchors do not tell, so they are
    replaced as printed: no other words of it state marks."""
    (criterion,) = bundle.criteria

    def new_band(band: re.Match[str]) -> str:
        new = [marks[int(mark)] for mark in band.groups() if mark]
        return f"{'-'.join(map(str, new))} mark{'' if new == [1] else 's'}"

    text, count = _BAND.subn(new_band, bundle.text)
    assert count == len(criterion.levels)  # or `edits` would have refused the scheme
    traits = list(bundle.traits)
    for place, trait in enumerate(traits):
        if trait.id == criterion.trait:
            scores = [float(marks[round(anchor.score)]) for anchor in trait.anchors]
            pairs = zip(trait.anchors, scores, strict=True)
            anchors = tuple(anchor.model_copy(update={"score": score}) for anchor, score in pairs)
            range_of = {"min": 0.0, "max": float(marks[-1]), "step": 1.0}
            traits[place] = trait.model_copy(update={"anchors": anchors, **range_of})
    weighted = _weighted(bundle, marks[-1] / bundle.scale.max)
    return bundle.model_copy(update={"traits": tuple(traits), "text": text, **weighted})


def _weighted(bundle: Bundle, factor: float) -> dict[str, tuple[Criterion, ...]]:
    """Criteria and composites with their weights multiplied."""
    parts = {"criteria": bundle.criteria, "composites": bundle.composites}
    return {
        name: tuple(criterion.model_copy(update={"weight": criterion.weight * factor}) for criterion in criteria)
        for name, criteria in parts.items()
    }


def _words(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """(where it stands, text) of all that judges are shown with the prose."""
    for criterion in bundle.criteria:
        for text in (criterion.text, *criterion.levels):
            yield f"criteria.{criterion.id}", text
    for trait in bundle.traits:
        yield f"traits.{trait.id}", trait.name
        for anchor in trait.anchors:
            yield f"traits.{trait.id}", anchor.text


# Rule faithfulness: whether a grader's marks follow edits of the mark scheme (section 3.4 and appendix E).


def rule_tests(
    samples: Sequence[Sample],
    bundles: Mapping[str, Bundle],
    mark_of: Callable[[Sequence[Sample]], Sequence[int | None]],
    rater_id: str,
) -> list[Record]:
    """Rows of `rule_tests` of a grader that states the total: every sample marked as it is and under every edit.

    samples: those without a gold mark are left out. bundles: item → its scheme. mark_of: the marks of samples in their
    order, None where the grader gives none; it is called once. InputError as in `edits`.
    """
    labelled = [sample for sample in samples if sample.gold is not None]
    items = list(dict.fromkeys(sample.item_id for sample in labelled))
    schemes = {item: edits(bundles[item]) for item in items}
    plain = {item: printed(bundles[item]) for item in items}
    before = [replace(sample, scheme=plain[sample.item_id]) for sample in labelled]
    tests = []
    for number, sample in enumerate(labelled):
        tests += [(number, edited) for edited in schemes[sample.item_id]]
    after = []
    for number, edited in tests:
        sample, marks_after = labelled[number], edited.marks
        gold = marks_after[sample.gold or 0]
        after.append(replace(sample, scheme=edited.bundle.text, top=marks_after[-1], gold=gold))
    marks = mark_of([*before, *after])
    rows = []
    for (number, edited), mark in zip(tests, marks[len(before) :], strict=True):
        sample = labelled[number]
        predicted = (marks[number], mark)
        row = edited.row(rater_id, sample.response_id, sample.item_id, sample.gold or 0, predicted, "stated")
        rows.append(row)
    return rows


def faithfulness(tests: Iterable[Fields], draws: int = 2000, seed: int = 0) -> list[Record]:
    """Rows of `rule_faithfulness`: one for every grader and edit in rows of `rule_tests`, in their order.

    Floor rate: share of marks under the edited scheme that are 0. RSR = mean |Δpred| / mean |Δgold|, a ratio of means;
    in-rubric RSR: the same over rows whose mark under the edited scheme is not 0. Marks count as the grader gave them;
    one that is no whole number is 0 where it rounds to that, half up. Rows without one of the grader's marks are left
    out and counted. Intervals resample responses, `draws` times; none where that is 0.
    """
    grouped: defaultdict[tuple[str, RuleEdit], list[Fields]] = defaultdict(list)
    for row in tests:
        grouped[row["rater_id"], row["edit"]].append(row)
    return [_follow(rows, draws, seed) for rows in grouped.values()]


def _follow(rows: Sequence[Fields], draws: int, seed: int) -> Record:
    """The row of one grader and edit."""
    scored = [row for row in rows if row["predicted"] is not None and row["predicted_edited"] is not None]
    marks = [[row[name] for name in ("gold", "gold_edited", "predicted", "predicted_edited")] for row in scored]
    gold, gold_edited, predicted, predicted_edited = np.array(marks, np.float64).reshape(-1, 4).T
    one = np.ones(len(scored))
    inside = (predicted_edited >= 0.5).astype(np.float64)
    change = np.abs(predicted_edited - predicted)
    gold_change = np.abs(gold_edited - gold)
    responses = np.array([row["response_id"] for row in scored], dtype=object)
    row = {name: rows[0][name] for name in ("rater_id", "edit", "family", "totals")}
    row |= {"n": len(scored), "unscored": len(rows) - len(scored), "in_rubric_n": int(inside.sum())}
    row["gold_change"] = float(gold_change.mean()) if scored else None
    for name, ends, top, bottom, counted, needed in (
        ("floor_rate", "floor", 1 - inside, one, one, ""),
        ("rsr", "rsr", change, gold_change, one, "response has both marks"),
        (
            "in_rubric",
            "in_rubric",
            change * inside,
            gold_change * inside,
            inside,
            "mark under the edited scheme is above 0",
        ),
    ):
        value = float(top.sum() / bottom.sum()) if bottom.any() else None
        low, high = _ratio_interval(top, bottom, counted, responses, draws, seed) if value is not None else (None, None)
        row |= {name: value, f"{ends}_low": low, f"{ends}_high": high}
        if needed:
            n = int(counted.sum())
            note = f"undefined: the edit changes no human mark of {n}" if n else f"undefined: no {needed}"
            row[f"{name}_note"] = note if value is None else None
    return row


def _ratio_interval(
    top: Floats, bottom: Floats, counted: Floats, responses: np.ndarray, draws: int, seed: int
) -> tuple[float | None, float | None]:
    """95% interval of Σ top / Σ bottom over responses; a draw in which the lower sum is 0 has no ratio. All (n,);
    counted: 1 for the rows that the ratio rests on."""
    if not draws:
        return None, None
    codes, size = cluster_codes(responses)
    above, below = draw_totals([sums_by_code(np.stack([top, bottom], axis=1), codes, size)], draws, seed)[0].T
    return interval(ratio(above, below), len(set(responses[counted > 0])))[:2]
