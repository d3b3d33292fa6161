"""What a protocol is: how it asks, reads, mends and adds up. There is one module in tasks/grading/judge/protocols
per name."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import Any, NamedTuple, cast

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, ProtocolName
from rubricflow.tasks.core.contracts.settings.engine import ROOM, Sampling
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.request import Message, Reply, Request, cached_by_identity, together
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.text.units import Unit
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.rows import Case, Decision, EarlierDecision, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.schema import citing, names_of
from rubricflow.tasks.grading.judge.score import Scored


@dataclass(frozen=True)
class Question:
    """Which criteria of which bundle are to be decided about which response; no criteria means one holistic score."""

    bundle: Bundle
    criteria: tuple[Criterion, ...]
    text: str
    units: tuple[Unit, ...]
    item_id: str
    question: str
    context: str | None
    traits: tuple[Trait, ...] = ()
    """Traits to be scored by the judge."""
    part: str = "all"
    """Name of the part asked for."""
    role: str = "grade"
    """What the call is for."""
    shown: tuple[str, ...] = ()
    """What memory showed, see `Shown.sources`."""
    settled: Any = field(default=None, compare=False)
    """What earlier attempts settled, for a repair's check to carry over."""
    reference_answer: str | None = None
    """The model answer."""
    answers: int = 1
    """How many answers are judged together."""
    found: Mapping[str, int | None] | None = field(default=None, compare=False)
    """Criterion → level, of what calls before this one decided; None where it rests on none."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what an offline answer may depend on."""
        content = _shared_hash(self.criteria, self.bundle, self.question).copy()
        content.update(f"{json.dumps(self.text)}]".encode())
        if PROTOCOLS[self.bundle.protocol.name].is_trained:  # no other answerer reads them as plain data
            content.update(json.dumps([self.reference_answer, self.context]).encode())
        return content.hexdigest()


ALL = "all"
CHARACTERS_PER_TOKEN = 4
"""By which tokens are estimated before anything is asked: of a text in English, which leaves room in most others."""
_NAME, _PLAIN = 8, 4
"""Tokens of a member's name with its marks, and of a number, a choice or a bracket."""


class Part(NamedTuple):
    """What one call asks for. No criteria and no traits: one holistic score."""

    name: str
    criteria: tuple[Criterion, ...] = ()
    traits: tuple[Trait, ...] = ()
    answers: int = 1
    """How many are judged together."""


class Answer(NamedTuple):
    """A part and all that happened to its call."""

    part: Part
    call: RequestOutcome[Any]


class Shown(NamedTuple):
    """What worked examples and memory add to a prompt, and where it comes from ('example:<response>',
    'card:<criterion>', 'exemplar:<response>')."""

    text: str = ""
    sources: tuple[str, ...] = ()

    def then(self, other: Shown) -> Shown:
        """This, and then the other."""
        return Shown("\n".join(text for text in (self.text, other.text) if text), self.sources + other.sources)


NOTHING = Shown()


class Outcome(NamedTuple):
    """What became of a case."""

    judged: Judged
    grading: Grading


def unscored(
    case: Case, criteria: Sequence[Criterion], reason: str, signals: dict[str, float] | None = None
) -> Outcome:
    """A case without a score, these criteria undecided for the same reason."""
    decisions = [Decision(criterion.id, None, reason=reason) for criterion in criteria]
    return Outcome(Judged(case, decisions), Grading(case, Scored(None), signals or {}, reason=reason))


@dataclass(frozen=True)
class Opinion:
    """A rater's view of a response before it is put into a contract's words: for answerers that read no prose."""

    levels: Mapping[str, int]
    """Criterion → level."""
    evidence: Mapping[str, Sequence[Mapping[str, str]]]
    """Criterion → quotes as {"unit", "quote"}."""
    traits: Mapping[str, float] = field(default_factory=dict)
    """Trait → score in its range."""
    score: float = 0.0
    """On the bundle's scale."""
    because: str = ""
    """A sentence, where the contract asks for one."""


class AskingProtocol(ABC):
    """How one protocol asks, reads and mends. Its methods are pure."""

    keys: frozenset[str]
    """What a verdict has at its top."""

    @abstractmethod
    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        """What is asked next, given what was answered so far; empty when nothing is left to ask."""

    @abstractmethod
    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        """The contract of a part as JSON Schema."""

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """What all responses of an item share: the protocol's prompt on the part's criteria, or all of the bundle's.

        reference: the model answer.
        """
        criteria = part.criteria or bundle.criteria
        shape = self.schema(bundle, part)
        return prompt.system(bundle, criteria, question, context, schema=shape, reference=reference).rstrip("\n")

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        """The first request for a part, given what was answered before."""
        return build(self, case, part, rater, shown)

    @abstractmethod
    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """What a reply with a text is worth; a repair's value holds what was valid before, too."""

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        """The next request that mends what failed, within the bundle's budgets; None when there is none."""
        return None


class JudgingProtocol(AskingProtocol):
    """One that judges each response by itself, and adds up."""

    @abstractmethod
    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """Decisions and scores from all answers."""

    @abstractmethod
    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion in the words of the contract."""


@cache
def protocol_of(name: ProtocolName) -> JudgingProtocol:
    """A registered protocol."""
    return cast(JudgingProtocol, import_module(f"rubricflow.tasks.grading.judge.protocols.{name}").PROTOCOL)


@cached_by_identity
def _opening(
    protocol: AskingProtocol,
    bundle: Bundle,
    name: str,
    criteria: tuple[Criterion, ...],
    traits: tuple[Trait, ...],
    answers: int,
    question: str,
    context: str | None,
    reference: str | None,
) -> tuple[Message, JsonDict]:
    """The message that opens every request about a part of an item, and its contract."""
    part = Part(name, criteria, traits, answers)
    system = Message("system", protocol.system(bundle, part, question, context, reference))
    return system, protocol.schema(bundle, part)


def build(
    protocol: AskingProtocol,
    case: Case,
    part: Part,
    rater: Rater,
    shown: Shown = NOTHING,
    *,
    role: str = "grade",
    task: str = "",
) -> Request:
    """A request about a case: the system message, which all responses of an item share; then what is shown with it,
    the fenced response, and `task`, what is to be done beyond the system message."""
    bundle = case.bundle
    names = names_of(case.bundle)
    system, schema = _opening(protocol, bundle, *part, case.question, case.context, case.reference_answer)
    question = Question(
        bundle=bundle,
        criteria=part.criteria,
        text=case.text,
        units=case.units,
        item_id=case.item_id,
        question=case.question,
        context=case.context,
        traits=part.traits,
        part=part.name,
        role=role,
        shown=shown.sources,
        reference_answer=case.reference_answer,
        answers=part.answers,
    )
    shown_together = [answer.text for answer in case.answers]
    fenced = prompt.answers(shown_together) if case.answers else prompt.response(case.text, case.units, names)
    sizes = {"bundle": len(system.content), "memory": len(shown.text), "response": len(fenced), "repair": len(task)}
    return Request(
        messages=(system, Message("user", "\n".join(text for text in (shown.text, fenced, task) if text))),
        schema=citing(schema, case.units, names) if rater.structured else None,
        sampling=sampling_for(rater.sampling, schema, bundle.protocol.context_tokens),
        want_logprobs=rater.want_logprobs,
        until=rater.until,
        role=role,
        keys=protocol.keys,
        subject=together([answer.response_id for answer in case.answers]) if case.answers else case.response_id,
        data=question,
        data_digest=question.digest,
        memory=shown.sources,
        characters={name: size for name, size in sizes.items() if size},
    )


def spare_characters(bare: Request) -> float:
    """Characters that the context holds besides a request and its longest reply; below 0 where it does not hold these,
    infinite where the bundle names no bound."""
    context = bare.data.bundle.protocol.context_tokens
    if context is None:
        return math.inf
    prompt_characters = (context - bare.sampling.longest) * CHARACTERS_PER_TOKEN
    return float(prompt_characters - sum(len(message.content) for message in bare.messages))


def open_parts(parts: list[Part], earlier: Mapping[str, EarlierDecision]) -> list[Part]:
    """The parts with what is still to be asked for; one of which everything stands is left out."""
    if not earlier:
        return parts
    names = frozenset(earlier)
    narrowed = [part._replace(criteria=_open_criteria(part.criteria, names)) for part in parts]
    return [after for before, after in zip(parts, narrowed, strict=True) if after.criteria or not before.criteria]


@cached_by_identity
def _open_criteria(criteria: tuple[Criterion, ...], kept: frozenset[str]) -> tuple[Criterion, ...]:
    """One tuple for all responses of which the same stands: caches know it by its identity."""
    return tuple(criterion for criterion in criteria if criterion.id not in kept)


# How long a reply may be, from what it is asked for.


@cached_by_identity
def sampling_for(sampling: Sampling, schema: JsonObject, context: int | None) -> Sampling:
    """The sampling with room for what a contract asks for, where the study names none: `ROOM` at least, so that small
    requests stay what they were, and no more than half of the context where that is known."""
    if sampling.max_tokens is not None:
        return sampling
    room = needed(schema) if context is None else min(needed(schema), context // 2)
    return sampling.model_copy(update={"max_tokens": max(ROOM, room)})


def needed(schema: JsonObject) -> int:
    """Tokens, roughly, of a full reply under a contract: texts of the longest admitted, one entry in every list."""
    kinds = schema.get("anyOf")
    if kinds:
        return max(needed(kind) for kind in kinds)
    if "properties" in schema:
        return _PLAIN + sum(_NAME + needed(member) for member in schema["properties"].values())
    if "items" in schema:
        return _PLAIN + needed(schema["items"])
    return _PLAIN + (0 if "enum" in schema else schema.get("maxLength", 0) // CHARACTERS_PER_TOKEN)


@cached_by_identity
def _shared_hash(criteria: tuple[Criterion, ...], bundle: Bundle, question: str) -> hashlib._Hash:
    """The hash of a question as plain data, up to the response's text: what all responses of an item share. Of a weight
    it holds at most the sign: another weight asks nothing anew."""
    content = [c.model_dump(mode="json", exclude={"weight", "earns"}) | {"earns": c.weight >= 0} for c in criteria]
    decided = json.dumps(content, sort_keys=True) if criteria else bundle.bundle_id
    return hashlib.sha256(f"[{json.dumps(decided)}, {json.dumps(question)}, ".encode())
