"""The rater that a study names, with its backend."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from tasks.contracts.backends import BACKENDS
from tasks.contracts.bundle import Scale
from tasks.contracts.errors import InputError
from tasks.contracts.grader import Grader
from tasks.contracts.settings.judge import Foreign, Judge
from tasks.judge import embedded, trained
from tasks.judge.levels import Levelled
from tasks.judge.question import Question
from tasks.judge.rows import Graded, Rater
from tasks.judge.simulated import Known, Simulated
from tasks.llm.backend import Backend
from tasks.llm.backends.offline import Offline
from tasks.llm.backends.replay import ForeignReplay
from tasks.llm.encoder import minilm
from tasks.llm.opening import KeyOf, open_backend
from tasks.llm.readers import read_score
from tasks.llm.replies import ReplyStore
from tasks.llm.request import Request
from tasks.store.cells import as_number, as_text, missing, need, select
from tasks.store.source import read

_BATCH = 256


def rater(
    judge: Judge,
    base: Path,
    replies: ReplyStore,
    key_of: KeyOf = os.environ.get,
    grader: Grader | None = None,
    known: Mapping[str, Known] | None = None,
) -> Rater:
    """The rater of a study; its id names kind of answerer, model and protocol.

    key_of: name of a credential → its value, see `Engine.key`; grader: what backend 'trained' answers by; known: what
    'simulated' knows. InputError or BackendError where the recorded replies, the grader, the marks, the encoder or the
    language model are not there.
    """
    if judge.foreign:
        recorded = _foreign(judge.foreign, base)
        return Rater(f"{recorded.model}:{judge.protocol}", "replayed", recorded)
    kind = BACKENDS[judge.backend]
    if not kind.reads_prose:
        backend, asking = _offline(judge, grader, known)
        return Rater(f"{judge.backend}:{backend.model}:{judge.protocol}", kind.rater_kind, backend, **asking)
    backend, mender = Levelled(open_backend(judge, base, replies, key_of)), None
    if judge.repair_engine and kind.needs == "engine":
        mending = judge.model_copy(update={"engine": judge.repair_engine})
        mender = Levelled(open_backend(mending, base, replies, key_of))
    models = backend.model if mender is None else f"{backend.model}+{mender.model}"
    return Rater(f"{judge.backend}:{models}:{judge.protocol}", kind.rater_kind, backend, mender, **_asking(judge))


def _offline(judge: Judge, grader: Grader | None, known: Mapping[str, Known] | None) -> tuple[Backend, dict[str, Any]]:
    """What answers questions of judging from their plain data, and how it is asked."""
    if judge.backend == "simulated" and judge.truth:
        if not known:
            raise InputError(f"rater '{judge.truth.rater}' marked and scored nothing", field="judge.truth.rater")
        return Simulated(judge.truth, known), {"sampling": judge.sampling}
    if judge.backend == "embedded":
        return Offline(embedded.MODEL, partial(embedded.answer, encoder=minilm()), batch_size=_BATCH), {}
    if grader is None:
        raise InputError(f"backend '{judge.backend}' has no grader to ask", field="judge.grader")
    return Offline(grader.name, partial(trained.answer, grader=grader), batch_size=_BATCH), {}


def _foreign(foreign: Foreign, base: Path) -> ForeignReplay:
    """The replies of a foreign table. What the readers make of it is kept like any reply, so its name covers the table
    and how it is read."""
    raw = {row["response_id"]: row["reply"] for row in foreign_rows(foreign, base) if row["reply"] is not None}
    content = json.dumps([foreign.model_dump(mode="json"), raw], sort_keys=True)
    model = f"foreign:{Path(foreign.file).stem}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return ForeignReplay(raw, model, _reading(foreign))


def _asking(judge: Judge) -> dict[str, Any]:
    """How a language model is asked, which is part of what it was asked."""
    engine = judge.engine
    return {
        "sampling": judge.sampling,
        "want_logprobs": bool(engine and engine.logprobs),
        "structured": engine.structured if engine else True,
    }


def foreign_rows(foreign: Foreign, base: Path) -> list[dict[str, Any]]:
    """The rows of a foreign table that the study selects: response_id, reply and, if there is one, the recorded score.

    Several columns of the response's id are joined by colons, several of the reply become one JSON object. A cell
    without a value is None, and so is a reply of which a column has none. InputError for a missing column, a response
    with two replies, a recorded score that is no finite number, or a selection that leaves nothing.
    """
    path = base / foreign.file
    frame = read(path)
    for name in (*_names(foreign.response_id), *_names(foreign.reply), *_names(foreign.recorded)):
        need(frame, name, path)
    frame = select(frame, foreign.where, path)
    ids, replies = (
        cast(list[dict[str, Any]], frame[list(_names(columns))].to_dict("records"))
        for columns in (foreign.response_id, foreign.reply)
    )
    scores = frame[foreign.recorded].tolist() if foreign.recorded else [None] * len(frame)
    rows = [
        {"response_id": ":".join(map(as_text, key.values())), "reply": _reply(reply), "recorded": score}
        for key, reply, score in zip(ids, replies, scores, strict=True)
    ]
    if not rows:
        raise InputError("no reply is left; look at 'where'", file=path)
    seen: set[str] = set()
    for row in rows:
        if row["response_id"] in seen:
            problem = f"response '{row['response_id']}' has several replies; select one with 'where'"
            raise InputError(problem, file=path, field=", ".join(_names(foreign.response_id)))
        seen.add(row["response_id"])
        row["recorded"] = as_number(row["recorded"], path, None, foreign.recorded)
    return rows


def _names(columns: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns or ()


def _reply(cells: dict[str, Any]) -> str | None:
    """One cell as text, several as a JSON object; None where one is missing."""
    if any(missing(cell) for cell in cells.values()):
        return None
    return as_text(*cells.values()) if len(cells) == 1 else json.dumps(cells, ensure_ascii=False, default=as_text)


def rescale(value: float, foreign: Foreign, item_id: str, scale: Scale) -> float:
    """A score of the foreign judge's scale, linearly on the bundle's."""
    special = foreign.items.get(item_id)
    used = (special and special.scale) or foreign.scale or scale
    return scale.min + (value - used.min) / (used.max - used.min) * (scale.max - scale.min)


def _reading(foreign: Foreign) -> Callable[[str, Request], str | None]:
    """Raw reply → the holistic contract's JSON, or None where nothing can be read."""

    def reading(text: str, request: Request) -> str | None:
        question: Question = request.data
        item_id = question.item_id
        special = foreign.items.get(item_id)
        try:
            value = read_score(text, (special and special.reader) or foreign.reader)
        except InputError as error:
            rule = f"reply about response '{request.subject}': {error.rule}"
            raise InputError(rule, file=foreign.file, field=f"reader.{error.field}", hint=error.hint) from error
        if value is None:
            return None
        return json.dumps({"score": rescale(value, foreign, item_id, question.bundle.scale)})

    return reading


def foreign_scores(foreign: Foreign, base: Path) -> dict[str, float]:
    """Response → the score that the foreign system itself read from the reply, on the scale that its judge used."""
    rows = foreign_rows(foreign, base)
    return {row["response_id"]: row["recorded"] for row in rows if row["recorded"] is not None}


def signal_recorded(graded: Iterable[Graded], recorded: Mapping[str, float], foreign: Foreign) -> None:
    """Add to gradings, as a signal, the score of `foreign_scores` where there is one."""
    for grading in (grading for sample in graded for grading in sample.gradings):
        case, value = grading.case, recorded.get(grading.case.response_id)
        if value is not None:
            grading.signals["recorded"] = rescale(value, foreign, case.item_id, case.bundle.scale)


def repeated(rater: Rater, samples: int) -> list[Rater]:
    """The rater as it asks for each of its samples: with another seed."""
    seeds = range(rater.sampling.seed, rater.sampling.seed + samples)
    return [
        replace(rater, sample=sample, sampling=rater.sampling.model_copy(update={"seed": seed}))
        for sample, seed in enumerate(seeds)
    ]
