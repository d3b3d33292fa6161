"""The rater that a study names, with its backend."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.backends import BACKENDS, Answered, Grader
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.judge import Foreign, Judge
from rubricflow.tasks.core.llm.ask import RequestOutcome
from rubricflow.tasks.core.llm.backend import Arriving, Backend, BackendWrapper, KeyOf, Offline
from rubricflow.tasks.core.llm.backends.replay import ForeignReplay, Recorded, read_recording
from rubricflow.tasks.core.llm.calls import Metered
from rubricflow.tasks.core.llm.choices import Path as ValuePath
from rubricflow.tasks.core.llm.choices import Place, level_probabilities, offsets
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.llm.foreign import foreign_rows, foreign_score, rescale
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonObject
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.judge import embedded
from rubricflow.tasks.grading.judge.comparing import TIE
from rubricflow.tasks.grading.judge.mend import verdict_in
from rubricflow.tasks.grading.judge.protocol import Answer, Part, Question, protocol_of
from rubricflow.tasks.grading.judge.rows import Graded, Rater
from rubricflow.tasks.grading.judge.simulated import HumanMarks, Simulated

_BATCH = 256
_UNASKED: RequestOutcome[Any] = RequestOutcome(Request(messages=(), role="", subject=""))


def rater(
    judge: Judge,
    base: Path,
    replies: Replies,
    key_of: KeyOf = os.environ.get,
    grader: Grader | None = None,
    marks: Mapping[str, HumanMarks] | None = None,
) -> Rater:
    """The rater of a study; its id names kind of answerer, model and protocol.

    key_of: name of a credential → its value, see `Engine.key`; grader: what backend 'trained' answers by; marks: what
    'simulated' knows. InputError or BackendError where the recorded replies, the grader, the marks, the encoder or the
    language model are not there.
    """
    if judge.foreign:
        recorded = _foreign(judge.foreign, base, judge.sampling.seed)
        return Rater(f"{recorded.model}:{judge.protocol}", "replayed", recorded)
    kind = BACKENDS[judge.backend]
    engine = judge.engine
    if PROTOCOLS[judge.protocol].compares and not kind.reads_prose:
        readers = ", ".join(name for name, of in BACKENDS.items() if of.reads_prose)
        raise InputError("only a judge that reads prose compares answers", field="judge.backend", hint=f"use {readers}")
    backend: Backend
    mender: Backend | None = None
    rater_kind = kind.rater_kind
    asking = dict[str, Any](sampling=judge.sampling)
    if judge.replies:  # who is asked as then
        recording = read_recording(base / judge.replies)
        speaker = recording.speaker(judge.model)
        backend, rater_kind = Recorded(recording, speaker), "replayed"
        mender = Recorded(recording, speaker, mends=True) if speaker.mender is not None else None
        asking |= {"want_logprobs": speaker.logprobs > 0, "structured": speaker.structured}
    elif kind.reads_prose:
        backend = Levelled(open_backend(judge, base, replies, key_of))
        if judge.repair_engine and kind.needs == "engine":
            mending = judge.model_copy(update={"engine": judge.repair_engine})
            mender = Levelled(open_backend(mending, base, replies, key_of))
        if engine:
            asking |= {"want_logprobs": engine.logprobs > 0, "structured": engine.structured}
    elif judge.backend == "simulated" and judge.truth:
        if not marks:
            raise InputError(f"rater '{judge.truth.rater}' marked and scored nothing", field="judge.truth.rater")
        backend = Simulated(judge.truth, marks)
    elif judge.backend == "embedded":
        encoder, asking = minilm(), {}
        model = f"{embedded.MODEL}, {encoder.made}"
        backend = Offline(model, partial(embedded.answer, encoder=encoder), batch_size=_BATCH)
    elif grader is not None:
        backend = Offline(grader.name, partial(answer, grader=grader), batch_size=_BATCH)
        asking = {}
    else:
        raise InputError(f"backend '{judge.backend}' has no grader to ask", field="judge.grader")
    models = backend.model if mender is None else f"{backend.model}+{mender.model}"
    if judge.backend == "embedded":
        # How the encoder computed stands in every attempt; workers on processors of two kinds are one rater.
        models = embedded.MODEL
    if kind.needs != "engine":  # of others `open_backend` counts the calls
        backend = Metered(backend, None)
    return Rater(f"{judge.backend}:{models}:{judge.protocol}", rater_kind, backend, mender, **asking)


def _foreign(foreign: Foreign, base: Path, seed: int) -> ForeignReplay:
    """The replies of a foreign table, repeated ones from a seed on. What the readers make of it is kept like any reply,
    so its name covers the table and how it is read."""
    rows = foreign_rows(foreign, base)
    raw = {row["response_id"]: row["reply"] for row in rows if row["reply"] is not None}
    repeated: dict[tuple[str, int], str] | None = None
    content = json.dumps([foreign.model_dump(mode="json"), raw], sort_keys=True)
    if foreign.sample:
        seeds, repeated = Counter[str](), {}
        for row in rows:
            number = row["sample"] if foreign.order else seeds[row["response_id"]]
            if row["reply"] is not None:
                repeated[row["response_id"], seed + number] = row["reply"]
            seeds[row["response_id"]] += 1
        content += json.dumps(list(repeated.items()))
    model = f"foreign:{Path(foreign.file).stem}-{text_digest(content)[:12]}"

    def read(text: str, request: Request) -> str | None:
        """The contract's JSON; None where no score, or no verdict on a pair, can be read."""
        question: Question = request.data
        value = foreign_score(foreign, question.item_id, request.subject, text, question.text)
        if value is None:
            return None
        if foreign.order:
            if value not in (0, 1, 2):
                return None
            is_swapped = foreign.order.names == "pair" and request.subject.endswith(":a")  # b was shown first
            return json.dumps({"winner": (TIE, "1", "2")[-int(value) if is_swapped else int(value)]})
        return json.dumps({"score": rescale(value, foreign, question.item_id, question.bundle.scale)})

    return ForeignReplay(raw, model, read, repeated)


def signal_recorded(graded: Iterable[Graded], recorded: Mapping[str, float], foreign: Foreign) -> None:
    """Add to gradings, as a signal, the score of `foreign_scores` where there is one."""
    for grading in chain.from_iterable(sample.gradings for sample in graded):
        case = grading.case
        value = recorded.get(grading.case.response_id)
        if value is not None:
            grading.signals["recorded"] = rescale(value, foreign, case.item_id, case.bundle.scale)


def repeated(rater: Rater, samples: int) -> list[Rater]:
    """The rater as it asks for each of its samples: with another seed."""
    seeds = range(rater.sampling.seed, rater.sampling.seed + samples)
    return [
        replace(rater, sample=sample, sampling=rater.sampling.model_copy(update={"seed": seed}))
        for sample, seed in enumerate(seeds)
    ]


# The trained rater: a bottleneck grader's levels and score as replies.


def answer(questions: Sequence[Question], grader: Grader) -> list[Reply]:
    """One reply in the contract of `tasks.grading.judge.protocols.bottleneck` for each question, with the
    probability of every level. InputError where the grader does not fit a bundle, see `fit`."""
    for bundle in {id(question.bundle): question.bundle for question in questions}.values():
        fit(bundle, grader)
    answered = [Answered(q.question, q.text, q.reference_answer, q.context) for q in questions]
    replies = []
    for estimate in grader(answered):
        levels = {name: max(range(len(likely)), key=likely.__getitem__) for name, likely in estimate.levels.items()}
        artifact = {"levels": levels, "score": estimate.score, "probability": estimate.grades[estimate.score]}
        likely = {name: list(chances) for name, chances in estimate.levels.items()}
        replies.append(Reply(text=json.dumps(artifact, ensure_ascii=False), level_probabilities=likely))
    return replies


def fit(bundle: Bundle, grader: Grader) -> None:
    """InputError that names what differs, unless the bundle's criteria are the grader's concepts, each with as many
    levels, and all its scores lie on the bundle's scale."""
    criteria = {criterion.id: len(criterion.levels) for criterion in bundle.criteria}
    low, high, _ = bundle.scale.bounds
    problems = [f"it has no concept '{name}'" for name in criteria if name not in grader.concepts]
    problems += [f"the rubric has no criterion '{name}'" for name in grader.concepts if name not in criteria]
    for name, levels in grader.concepts.items():
        if criteria.get(name, levels) != levels:
            problems.append(f"'{name}' has {levels} levels in it and {criteria[name]} in the rubric")
    for score in grader.scores:
        if not low - 1e-9 <= score <= high + 1e-9:
            problems.append(f"it gives {score:g}, which is off the scale {low:g} to {high:g}")
    if problems:
        rule = f"the grader was trained with another rubric: {'; '.join(problems)}"
        raise InputError(rule, field="judge.grader", hint="use the rubric that it was trained with, or train it anew")


# How probable each level was: token log-probabilities become probabilities of the values that a contract admits.


_MOST = 100
"""More values than this are a number that is read, not a choice."""


class Levelled(BackendWrapper):
    """A backend whose replies carry `level_probabilities` in place of token log-probabilities."""

    def through(self, requests: Sequence[Request], answers: Iterator[tuple[int, Reply]]) -> Arriving:
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
    protocol = protocol_of(bundle.protocol.name)
    before = list[Answer]()
    while parts := protocol.parts(bundle, before):
        before += [Answer(part, _UNASKED) for part in parts]
    choices = chain.from_iterable(_choices(protocol.schema(bundle, part)).values() for part, _ in before)
    return max(map(len, choices), default=0)


def places(request: Request, text: str) -> dict[str, Place]:
    """Decision → where its value stands in a reply, and how the values that the contract admits are spelled."""
    schema = request.schema
    if schema is None:
        question: Question = request.data
        part = Part(question.part, question.criteria, question.traits)
        schema = protocol_of(question.bundle.protocol.name).schema(question.bundle, part)
    # An object with any of the keys may have a value in such a place: where several differ none is told.
    found = verdict_in(request, Reply(text=text), serves=lambda node: not request.keys.isdisjoint(node))
    starts = {} if found.artifact is None else offsets(text, found.start)
    decided = [(path, values) for path, values in _choices(schema).items() if path in starts]
    # `{"decisions": {"P1": {"level": 2}}}` decides P1, `{"subscores": {"clarity": 7}}` clarity, `{"score": 3}` score.
    return {str(path[min(1, len(path) - 1)]): (starts[path], values) for path, values in decided}


@cached_by_identity
def _choices(schema: JsonObject) -> dict[ValuePath, tuple[str, ...]]:
    """ValuePath → spellings of the values that a contract admits there, for all places with a few plain values."""
    admitted = defaultdict[ValuePath, set[Any]](set)
    todo: list[tuple[ValuePath, JsonObject]] = [((), schema)]
    while todo:
        path, node = todo.pop()
        todo += [(path, kind) for kind in node.get("anyOf", ())]
        todo += [((*path, name), member) for name, member in node.get("properties", {}).items()]
        if "enum" in node:
            admitted[path].update(node["enum"])
        elif node.get("type") == "integer" and "minimum" in node and "maximum" in node:
            admitted[path].update(range(int(node["minimum"]), int(node["maximum"]) + 1))
    few = {path: sorted(values) for path, values in admitted.items() if 1 < len(values) <= _MOST}
    return {path: tuple(map(json.dumps, values)) for path, values in few.items()}
