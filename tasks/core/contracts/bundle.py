"""The bundle: everything that judging may depend on, as data, so that rules are never branches in code."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from rubricflow.tasks.core.contracts import Fields, ScaleBounds
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.protocols import (
    PROTOCOLS,
    Combine,
    Compare,
    ConsistencyMemory,
    FinalScore,
    Level,
    ProtocolName,
    Repair,
    RubricMemory,
    Signal,
    SupportRule,
)
from rubricflow.tasks.core.contracts.schema import Frozen, Natural, Positive, left_out

EvidenceType = Literal["local_quote", "span_level", "global_diagnostic", "weakly_groundable", "none"]
CriterionKind = Literal["gold_point", "misconception", "checklist", "concept", "criterion"]
_LONGEST_HEADING = 40


class Scale(Frozen):
    """A score scale; it lives in the bundle and nowhere else."""

    min: float
    """Lowest score."""
    max: float
    """Highest score."""
    step: float = 1.0
    """Distance between neighbouring scores; (max − min) is a multiple of it."""

    @model_validator(mode="after")
    def _is_a_scale(self) -> Scale:
        steps = (self.max - self.min) / self.step if self.step > 0 else math.nan
        if not (math.isfinite(steps) and steps >= 1 and abs(steps - round(steps)) < 1e-9):
            raise ValueError(f"{self.min}..{self.max} in steps of {self.step} is not a scale")
        return self

    @property
    def levels(self) -> int:
        """Number of scores on the scale."""
        return round((self.max - self.min) / self.step) + 1

    @property
    def bounds(self) -> ScaleBounds:
        """(min, max, step)."""
        return self.min, self.max, self.step


class Anchor(Frozen):
    """What a score, or a band of scores, looks like."""

    score: float
    """The score described (the upper end of a band)."""
    text: str
    """Its description."""


class Trait(Scale):
    """A quality dimension with a range of its own."""

    id: str
    """Short id, unique in the bundle."""
    name: str
    """Name for people."""
    source: Literal["derived", "judged"] = "derived"
    """Whether code derives the score from the trait's criteria or the judge states it."""
    anchors: tuple[Anchor, ...] = ()
    """Score anchors or mark bands, lowest first."""


class Count(Frozen):
    """Official keys count: "any three of these eight". A criterion with a count is worth points by the number of its
    sub-points that are met, whichever these are."""

    points: tuple[float, ...]
    """Points for none, one, two … of them; more than are listed earn the last, which is the criterion's weight."""
    least: Positive | None = None
    """The level from which a sub-point is met; null for its highest."""
    needs: tuple[str, ...] = ()
    """Sub-points without which nothing is earned, whatever else is met."""

    @model_validator(mode="after")
    def _rises(self) -> Count:
        words = ", ".join(f"{point:g}" for point in self.points)
        if not all(map(math.isfinite, self.points)) or self.points[:1] != (0,) or max(self.points) <= 0:
            raise ValueError(f"points {words} do not go from 0, for none, to more than 0")
        if any(more < fewer for fewer, more in pairwise(self.points)):
            raise ValueError(f"points {words} fall: more sub-points met would be worth less")
        return self


class Criterion(Frozen):
    """One decision that a rater takes on a response. Levels are 0…M with M = number of levels − 1."""

    id: str
    """Short id, unique in the bundle."""
    trait: str
    """The trait that it counts for."""
    text: str = Field(min_length=1)
    """What is looked for, as one statement."""
    kind: CriterionKind = "gold_point"
    """gold_point, misconception, checklist, concept or criterion."""
    levels: tuple[str, ...] = ("absent", "present")
    """Ordered anchors, worst first for credit; index = level."""
    earns: tuple[float, ...] = left_out(())
    """The share of its weight that each level earns (or costs), from 0 to 1 and never falling. Left out of the content
    where levels are equally spaced, as `count` is."""
    weight: float = 1.0
    """Signed: negative for what costs marks."""
    parent: str | None = None
    """The criterion that this one is a sub-point of: that one is not decided then, but made of its sub-points."""
    count: Count | None = left_out(None)
    """Where it has sub-points, how many of them earn what; null where each earns for itself. Left out of the content
    where there is none: bundles from before it was keep their ids."""
    excludes: tuple[str, ...] = ()
    """Criteria that cannot hold together with this one: not both count, see tasks/core/contracts/composite.py."""
    evidence: EvidenceType = "local_quote"
    """What must support a level above 0, see tasks/grading/judge/verify.py."""
    evidence_from: Literal["response", "response_and_context"] = "response"
    """Where the quote may come from."""
    evidence_kind: Literal["user", "assistant", "thought", "call", "result"] | None = left_out(None)
    """Of a trace: whose turn, or which kind of step, a quote has to stand in, see TURN_KINDS. Null for any but what the
    assistant was told before it began, and then left out as `count` is."""

    @field_validator("earns")
    @classmethod
    def _unlike_equal(cls, earns: tuple[float, ...], read: ValidationInfo) -> tuple[float, ...]:
        return () if earns == _equal(len(read.data.get("levels", ()))) else earns

    @property
    def top(self) -> int:
        """M, the highest level."""
        return len(self.levels) - 1

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of its weight that each level earns."""
        return self.earns or _equal(len(self.levels))


def _equal(levels: int) -> tuple[float, ...]:
    return tuple(level / max(levels - 1, 1) for level in range(levels))


class JudgingRules(Frozen):
    """What a study says of judging and its bundles keep as it is."""

    failed_quote: Literal["demote", "count", "drop"] = "demote"
    """A level above 0 whose evidence fails: set to 0 with a signal; kept and counted; or the detection is dropped."""
    unscored: Literal["null", "bounds", "zero"] = "null"
    """A criterion without a usable verdict: no score; no score but bounds; or level 0 (the papers' reading)."""
    repair: Repair | None = None
    """How often a reply may be mended; null for never."""
    rubric_memory: RubricMemory | None = None
    """Cards of the rubric pointed out with a response; null for none."""
    consistency_memory: ConsistencyMemory | None = None
    """Earlier gradings of the item shown with a response; null for none."""
    context_tokens: int | None = Field(default=None, ge=256)
    """Tokens that a prompt with its reply may take: beyond it memory is left out, exemplars first; never the contract
    or the response. Null for no such bound."""
    evidence_match: Literal["lexical", "semantic"] = "lexical"
    """lexical: a quote must stand in the response; semantic: failing that, an encoder may find the span that says the
    same, recorded apart."""
    shared_quotes: int | None = left_out(None, ge=1)
    """How many criteria may stand on the same words: where more do, the words prove none of them. Null for any number,
    and then left out of the content: bundles from before it was keep their ids."""
    support: SupportRule | None = left_out(None)
    """A second look at every credit. Null for none, and then left out as above."""
    level: Level = left_out("stated")
    """Where the model's probabilities are known: the level or score that the reply states; the likeliest; or of scores
    the expected one, and of criteria the likeliest. Left out of the content where it is the first, as `count` is."""
    unknown_fields: Literal["counted", "refused"] = left_out("counted")
    """Fields of a reply that nobody asked for: passed over with a signal; or the reply breaks the contract, which has
    exactly the required fields in the paper (GradeAgentOps, section 2.3), and is asked for anew as a whole."""
    top_is_rare: bool = left_out(True)
    """Whether annotators of concepts are told that few responses reach a concept's highest level; not so in the paper
    (REC-CBM, appendix C.2)."""
    compare: Compare | None = left_out(None)
    """Where answers are compared, which with which, see `Compare`. Left out of the content where it is null."""


class Protocol(JudgingRules):
    """How a response is judged under this bundle."""

    name: ProtocolName
    """One of `PROTOCOLS`."""
    final_score: FinalScore
    """Raw score: weighted share of levels on the scale (the judge's traits, if any, are reported with it);
    mean of the traits' shares on the scale (of the judged traits alone, where there are any); sum of the traits'
    scores; or the number that the judge states."""
    show_weights: bool = False
    """Whether the judge sees the weights."""
    levels_shown: Literal["ascending", "descending"] = "ascending"
    """The order in which a prompt prints a criterion's levels and a trait's anchors; levels are stored 0…M all the
    same."""
    signals: tuple[Signal, ...]
    """What calibration may use."""
    min_tokens: Natural = 1
    """A response with fewer alphanumeric tokens is settled without a model call."""
    criteria_per_call: Positive = 1
    """Criteria in one call, where a call is for a few of them, see `part_size`."""
    in_parts: bool = left_out(False)
    """Whether a protocol that asks for the whole checklist in one call asks for it in parts. Left out of the content
    where it does not: bundles from before it was keep their ids."""
    jurors: tuple[str, ...] = left_out(())
    """The jurors by name, where a jury judges; left out of the content where none does."""
    combine: Combine = left_out("choose")
    """How their decisions and scores become one, see `COMBINE`."""
    steps: int = left_out(1)
    """Of the cascade, where one judges: what is said here is the first one's."""
    echo: Literal["refused", "allowed"] = "refused"
    """Whether a quote that repeats a criterion's wording is evidence: not where only the rubric's author knows it, but
    where criteria are the sentences of a model answer. A repetition of the question never is."""
    units: Literal["sentences", "turns"] = left_out("sentences")
    """What quotes cite: sentences and paragraphs, or the turns and steps of traces. Left out where it is the first."""

    @property
    def part_size(self) -> int | None:
        """Most criteria in one call; None for the whole checklist."""
        return self.criteria_per_call if self.in_parts or PROTOCOLS[self.name].criteria_per_call else None


class Labelled(Frozen):
    """What one concept of an example is labelled with."""

    level: int = Field(ge=0)
    """The level."""
    evidence: str = ""
    """Words of the example's response, or of its context, that show it."""


class Example(Frozen):
    """A response with the labels that it deserves, for annotators to see."""

    question: str
    """The question it answers."""
    response: str
    """The response."""
    reference: str = ""
    """The model answer."""
    labels: dict[str, Labelled]
    """Criterion → its label."""


class Rubric(Frozen):
    """An authored rubric, as its YAML is written. `points: 4`, and `step: 0.5` where half points are given, may stand
    in place of the scale, which then goes from 0 to these points; a trait that says no range, or the only one where
    none is listed, has the scale's."""

    rubric_id: str
    """The name that items point to."""
    title: str = ""
    """Title for people."""
    text: str = ""
    """The rubric in prose, as its author wrote it."""
    notes: tuple[str, ...] = ()
    """Scoring notes: what raters hold beyond the guide, a rule each, such as where the line between two scores lies."""
    scale: Scale
    """The score scale."""
    traits: tuple[Trait, ...] = ()
    """At least one, unless they are to be induced."""
    criteria: tuple[Criterion, ...] = ()
    """In order; order is part of the content. At least one, unless they are to be induced."""
    examples: tuple[Example, ...] = ()
    """Labelled examples that annotators are shown."""

    @property
    def guide(self) -> str:
        """What a score is given by, apart from criteria: the text, and then the scoring notes."""
        notes = "\n".join(["Scoring notes:", *(f"- {note}" for note in self.notes)]) if self.notes else ""
        return "\n\n".join(filter(None, (self.text, notes)))

    @model_validator(mode="before")
    @classmethod
    def _of_points(cls, written: Any) -> Any:
        if not isinstance(written, dict) or ("points" not in written and "scale" in written):
            return written
        if "points" not in written:
            odd = ", ".join(sorted(f"'{key}'" for key in written.keys() - cls.model_fields.keys()))
            raise ValueError(f"says neither points nor a scale{f'; there is no key {odd}' if odd else ''}")
        if "scale" in written:
            raise ValueError("says its points twice, by points and by scale: leave one of them out")
        scale = {"min": 0, "max": written["points"], "step": written.get("step", 1)}
        rest = {key: value for key, value in written.items() if key not in ("points", "step")}
        traits, criteria = written.get("traits"), written.get("criteria")
        if criteria and not traits:
            traits = [{"id": "content", "name": "Content"}]
            criteria = [{"trait": "content"} | one if isinstance(one, dict) else one for one in criteria]
        ranged = [
            {**scale, **trait} if isinstance(trait, dict) and not trait.keys() & scale.keys() else trait
            for trait in traits or ()
        ]
        return rest | {"scale": scale, "traits": ranged, "criteria": criteria or ()}


class Bundle(Frozen):
    """A locked rubric with its protocol. `bundle_id` is the SHA-256 of this content and of nothing else."""

    text: str
    """The rubric's prose."""
    scale: Scale
    """The score scale."""
    traits: tuple[Trait, ...]
    """The quality dimensions."""
    criteria: tuple[Criterion, ...]
    """The decisions, in order."""
    composites: tuple[Criterion, ...] = ()
    """The criteria that are not decided but made of their sub-points, in order: their share is the sub-points' weighted
    shares over their own weight, within [0, 1], or what their count makes of them."""
    examples: tuple[Example, ...] = ()
    """Labelled examples, where the protocol shows them."""
    protocol: Protocol
    """How they are taken and added up."""

    def canonical(self) -> str:
        """The content as JSON with sorted keys and no spaces; integral numbers carry no decimal point."""
        content = json.loads(json.dumps(self.model_dump(mode="json")), parse_float=_plain_number)
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def bundle_id(self) -> str:
        """SHA-256 of the canonical content, 64 hex digits."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    @classmethod
    def unlock(cls, bundle_id: str, content: str) -> Bundle:
        """A locked bundle from its stored content; ContractError if the content is not what the id was made from."""
        try:
            bundle = cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            raise ContractError(f"bundle {bundle_id[:12]}: {first['msg']} at {first['loc']}") from error
        if bundle.bundle_id != bundle_id:
            rule = f"its content has the hash {bundle.bundle_id[:12]}; it was changed after locking"
            raise ContractError(f"bundle {bundle_id[:12]}: {rule}")
        return bundle

    @property
    def judged(self) -> tuple[Trait, ...]:
        """The traits that the judge scores."""
        return tuple(trait for trait in self.traits if trait.source == "judged")

    @property
    def whole(self) -> tuple[Criterion, ...]:
        """The criteria that are no sub-points, decided or composite, in the order in which each is first decided."""
        by_id = {criterion.id: criterion for criterion in (*self.criteria, *self.composites)}
        tops: dict[str, Criterion] = {}
        for criterion in self.criteria:
            top = criterion
            while top.parent is not None:
                top = by_id[top.parent]
            tops.setdefault(top.id, top)
        return tuple(tops.values())

    @property
    def names(self) -> dict[str, str]:
        """Criterion → what people read: the heading of its text, the name of the trait that it alone makes up, or its
        id in words."""
        alone = {mine[0].id: trait.name for trait in self.traits if len(mine := list(self.of_trait(trait.id))) == 1}
        names = {}
        for criterion in self.criteria:
            head, colon, _ = criterion.text.partition(": ")  # as in 'Relevance: the answer …'
            heading = head if colon and len(head) <= _LONGEST_HEADING else ""
            words = criterion.id.replace("_", " ")
            names[criterion.id] = heading or alone.get(criterion.id) or words[:1].upper() + words[1:]
        return names

    def sub_points(self, criterion_id: str) -> tuple[Criterion, ...]:
        """The direct sub-points of a criterion; empty for one that is decided."""
        return tuple(c for c in (*self.criteria, *self.composites) if c.parent == criterion_id)

    def of_trait(self, trait_id: str) -> Iterator[Criterion]:
        """The criteria that count for a trait, in order."""
        return (criterion for criterion in self.criteria if criterion.trait == trait_id)


def unlocked(rows: Iterable[Fields]) -> dict[str, Bundle]:
    """Rubric → its bundle, from rows of `bundles`; ContractError for one that was changed after locking."""
    return {row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]) for row in rows}


def _plain_number(digits: str) -> float:
    """1.0 and 1 are the same content; write both as 1."""
    number = float(digits)
    return int(number) if number.is_integer() else number
