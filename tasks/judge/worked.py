"""Worked examples in a prompt: responses that people graded, in the user's message before the response, where the
prefix cache holds those that are the same for an item.

They are student texts: each stands on one line as a JSON string, inside a fence with a code made from all of them, and
never in the system message, whose word counts for more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.contracts.bundle import Bundle
from tasks.contracts.protocols import PROTOCOLS
from tasks.judge import prompt
from tasks.judge.examples import LONGEST, WorkedExample
from tasks.judge.memory import room
from tasks.judge.numbered import numbered_names
from tasks.judge.protocol import NOTHING, Part, Shown
from tasks.judge.rows import Case
from tasks.llm.request import Request


def fitting(case: Case, part: Part, bare: Request) -> Shown:
    """As many of a case's examples as the context holds beside a request without them; the most wanted stay."""
    most = room(case.bundle, bare)
    for count in range(len(case.examples), 0, -1):
        shown = show(case.examples[:count], part, case.bundle)
        if len(shown.text) <= most:
            return shown
    return NOTHING


def show(examples: Sequence[WorkedExample], part: Part, bundle: Bundle) -> Shown:
    """Examples, the most wanted first, with what people decided of the part that is asked for; the most wanted is shown
    last, next to the response."""
    ordered = examples[::-1]
    text = "\n".join(f"{number}. {_line(example, part, bundle)}" for number, example in enumerate(ordered, 1))
    shown = prompt.fill("worked", {"examples": text, "nonce": prompt.nonce(text)}).rstrip("\n")
    return Shown(shown, tuple(f"example:{example.response_id}" for example in ordered))


def _line(example: WorkedExample, part: Part, bundle: Bundle) -> str:
    cut = " […]" if len(example.text) > LONGEST else ""
    decided = "; ".join(_decided(example, part, bundle))
    return f"response: {prompt.quoted(example.text[:LONGEST])}{cut}\n   decided by people: {decided}"


def _decided(example: WorkedExample, part: Part, bundle: Bundle) -> Iterator[str]:
    """What people decided, in the words of the contract."""
    protocol = PROTOCOLS[bundle.protocol.name]
    if "score" in protocol.teaches:
        yield f"score {example.score:g}"
    yield from (f"{t.id} {example.traits[t.id]:g}" for t in part.traits if t.id in example.traits)
    names = numbered_names(bundle)
    for criterion in part.criteria:
        if criterion.id in example.levels:
            level = example.levels[criterion.id]
            is_point = protocol.shape == "points"
            yield f"{names[criterion.id]} {criterion.levels[level]}" if is_point else f"{criterion.id} level {level}"
