"""What a protocol is: how it asks, reads, mends and adds up. There is one module in tasks/judge/protocols per name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from tasks.contracts.bundle import Bundle, Criterion, Trait
from tasks.contracts.protocols import ProtocolName
from tasks.judge import prompt
from tasks.judge.question import Question
from tasks.judge.reply_length import sampling_for
from tasks.judge.rows import Case, Grading, Judged, Rater
from tasks.judge.schema import citing
from tasks.judge.unit_names import names_of
from tasks.llm.ask import Attempt, Checked, RequestOutcome
from tasks.llm.request import Message, Reply, Request, Same

ALL = "all"


class Part(NamedTuple):
    """What one call asks for. No criteria and no traits: one holistic score."""

    name: str
    criteria: tuple[Criterion, ...] = ()
    traits: tuple[Trait, ...] = ()


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


class ProtocolModule(Protocol):
    """The functions that a module of tasks/judge/protocols has. All are pure."""

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        """What is asked next, given what was answered so far; empty when nothing is left to ask."""

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        """The first request for a part."""

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """What a reply with a text is worth; a repair's value holds what was valid before, too."""

    def repair(self, request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
        """The next request that mends what failed, within the bundle's budgets; None when there is none."""

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """Decisions and scores from all answers."""

    def artifact(self, question: Question, opinion: Opinion) -> dict[str, Any]:
        """An opinion in the words of the contract."""

    def schema(self, bundle: Bundle, part: Part) -> dict[str, Any]:
        """The contract of a part as JSON Schema."""


@cache
def protocol_module(name: ProtocolName) -> ProtocolModule:
    """The functions of a registered protocol."""
    return cast(ProtocolModule, import_module(f"tasks.judge.protocols.{name}"))


def question_about(
    case: Case, part: Part, role: str = "grade", shown: Shown = NOTHING, settled: Any = None
) -> Question:
    """What a part asks about a case, as plain data. settled: see `Question.settled`."""
    return Question(
        bundle=case.bundle,
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
        settled=settled,
        reference_answer=case.reference_answer,
    )


def build(
    case: Case,
    part: Part,
    rater: Rater,
    system: Message,
    schema: Mapping[str, Any],
    keys: frozenset[str],
    *,
    shown: Shown = NOTHING,
    role: str = "grade",
    task: str = "",
    mends: tuple[str, ...] = (),
    settled: Any = None,
) -> Request:
    """A request about a case: the system message, which all responses of an item share; then what is shown beside it,
    the fenced response, and `task`, what is to be done beyond the system message, such as what a repair shall mend.

    settled: what earlier attempts have settled, for the check to carry over.
    """
    question = question_about(case, part, role, shown, settled)
    names = names_of(Same(case.bundle))
    fenced = prompt.fenced(case.text, Same(case.units), names)
    content = "\n".join(text for text in (shown.text, fenced, task) if text)
    sizes = {"bundle": len(system.content), "memory": len(shown.text), "response": len(fenced), "repair": len(task)}
    cited = citing(schema, case.units, names) if rater.structured else None
    sampling = sampling_for(Same(rater.sampling), Same(schema), case.bundle.protocol.context_tokens)
    return Request(
        messages=(system, Message("user", content)),
        schema=cited,
        sampling=sampling,
        want_logprobs=rater.want_logprobs,
        until=rater.until,
        role=role,
        keys=keys,
        subject=case.response_id,
        data=question,
        data_digest=question.digest,
        mends=mends,
        memory=shown.sources,
        characters={name: size for name, size in sizes.items() if size},
    )
