"""How probable each level was: a backend's token log-probabilities become probabilities of the values that a contract
admits, before a reply is kept.

The reply store keeps the probabilities and not the tokens, which take some forty times as much room.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.backend import Arriving, BackendWrapper, ReplyStream
from rubricflow.tasks.core.llm.choices import Path, Place, level_probabilities, offsets
from rubricflow.tasks.core.llm.request import IdentityKey, Reply, Request
from rubricflow.tasks.grading.judge.mend import verdict_in
from rubricflow.tasks.grading.judge.protocol import Part, Question, protocol_module

_MOST = 100
"""More values than this are a number that is read, not a choice."""


class Levelled(BackendWrapper):
    """A backend whose replies carry `level_probabilities` in place of token log-probabilities."""

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does."""
        answers = self._backend.answer(requests)
        return ReplyStream.on(self._levelled(requests, answers), answers)

    def _levelled(self, requests: Sequence[Request], answers: Iterator[tuple[int, Reply]]) -> Arriving:
        for index, reply in answers:
            yield index, levelled(requests[index], reply) if reply.token_logprobs else reply


def levelled(request: Request, reply: Reply) -> Reply:
    """The reply with the probability of each value of every decision in it, values in ascending order.

    Keys are what was decided: the criterion, the trait, or 'score' for one that stands alone. Decisions that are not in
    the reply, or whose tokens are not known, are left out.
    """
    probabilities = level_probabilities(reply, places(request, reply.text or ""))
    return replace(reply, token_logprobs=None, level_probabilities=probabilities or None)


def widest(bundle: Bundle) -> int:
    """Most values that one decision under a bundle may have; log-probabilities of fewer alternatives lose some."""
    protocol = protocol_module(bundle.protocol.name)
    schemas = [protocol.schema(bundle, part) for part in protocol.parts(bundle, ())]
    choices = chain.from_iterable(_choices(IdentityKey(schema)).values() for schema in schemas)
    return max(map(len, choices), default=0)


def places(request: Request, text: str) -> dict[str, Place]:
    """Decision → where its value stands in a reply, and how the values that the contract admits are spelled."""
    schema = request.schema
    if schema is None:
        question: Question = request.data
        part = Part(question.part, question.criteria, question.traits)
        schema = protocol_module(question.bundle.protocol.name).schema(question.bundle, part)
    # An object with any of the keys may have a value in such a place: where several differ none is told.
    found = verdict_in(request, Reply(text=text), serves=lambda node: not request.keys.isdisjoint(node))
    starts = {} if found.artifact is None else offsets(text, found.start)
    decided = [(path, values) for path, values in _choices(IdentityKey(schema)).items() if path in starts]
    # `{"decisions": {"P1": {"level": 2}}}` decides P1, `{"subscores": {"clarity": 7}}` clarity, `{"score": 3}` score.
    return {str(path[min(1, len(path) - 1)]): (starts[path], values) for path, values in decided}


@lru_cache(maxsize=1024)
def _choices(schema: IdentityKey[Mapping[str, Any]]) -> dict[Path, tuple[str, ...]]:
    """Path → spellings of the values that a contract admits there, for all places with a few plain values."""
    admitted = defaultdict[Path, set[Any]](set)
    todo: list[tuple[Path, Mapping[str, Any]]] = [((), schema.value)]
    while todo:
        path, node = todo.pop()
        todo += [(path, kind) for kind in node.get("anyOf", ())]
        todo += [((*path, name), member) for name, member in node.get("properties", {}).items()]
        admitted[path].update(_values(node))
    few = {path: sorted(values) for path, values in admitted.items() if 1 < len(values) <= _MOST}
    return {path: tuple(map(json.dumps, values)) for path, values in few.items()}


def _values(node: Mapping[str, Any]) -> Sequence[Any]:
    if "enum" in node:
        return list(node["enum"])
    if node.get("type") == "integer" and "minimum" in node and "maximum" in node:
        return range(int(node["minimum"]), int(node["maximum"]) + 1)
    return ()
