"""The rater that a study names, with its backend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tasks.contracts.bundle import Scale
from tasks.contracts.errors import InputError
from tasks.contracts.study import Foreign, Judge, Reader
from tasks.judge import embedded
from tasks.judge.encoder import minilm
from tasks.judge.question import Question
from tasks.judge.rows import Rater
from tasks.llm.backends.offline import Offline
from tasks.llm.backends.replay import ForeignReplay, Replay
from tasks.llm.readers import json_keys, pattern
from tasks.llm.replies import ReplyStore
from tasks.llm.request import Request
from tasks.store.cells import as_number, as_text, missing, need, select
from tasks.store.source import read

_BATCH = 256


def rater(judge: Judge, base: Path, replies: ReplyStore) -> Rater:
    """The rater of a study; its id names kind of answerer, model and protocol.

    InputError or BackendError where the recorded replies or the encoder are not there.
    """
    if judge.backend == "embedded":
        encode = minilm()
        answer = partial(embedded.answer, encode=encode, knows=encode.knows)
        backend = Offline(embedded.MODEL, answer, batch_size=_BATCH)
        return Rater(f"embedded:{embedded.MODEL}:{judge.protocol}", "encoder", backend)
    if judge.foreign is None:
        if judge.model is None:
            raise InputError("backend 'replay' needs a model, or a foreign table of replies", field="judge.model")
        return Rater(f"replay:{judge.model}:{judge.protocol}", "replayed", Replay(replies, judge.model))
    raw = {row["response_id"]: row["reply"] for row in foreign_rows(judge.foreign, base) if row["reply"] is not None}
    # What the readers make of the table is kept like any reply, so its name covers the table and how it is read.
    content = json.dumps([judge.foreign.model_dump(mode="json"), raw], sort_keys=True)
    model = f"foreign:{Path(judge.foreign.file).stem}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return Rater(f"{model}:{judge.protocol}", "replayed", ForeignReplay(raw, model, _reading(judge.foreign)))


def foreign_rows(foreign: Foreign, base: Path) -> list[dict[str, Any]]:
    """The rows of a foreign table that the study selects: response_id, reply and, if there is one, the recorded score.

    A cell without a value is None. InputError for a missing column, a response with two replies, a recorded score that
    is no finite number, or a selection that leaves nothing.
    """
    path = base / foreign.file
    frame = read(path)
    wanted = {"response_id": foreign.response_id, "reply": foreign.reply}
    wanted |= {"recorded": foreign.recorded} if foreign.recorded else {}
    for name in wanted.values():
        need(frame, name, path)
    frame = select(frame, foreign.where, path)
    columns = [frame[column].tolist() for column in wanted.values()]
    rows = [dict(zip(wanted, row, strict=True)) for row in zip(*columns, strict=True)]
    if not rows:
        raise InputError("no reply is left; look at 'where'", file=path)
    seen: set[str] = set()
    for row in rows:
        row["response_id"] = as_text(row["response_id"])
        row["reply"] = None if missing(row["reply"]) else as_text(row["reply"])
        if row["response_id"] in seen:
            problem = f"response '{row['response_id']}' has several replies; select one with 'where'"
            raise InputError(problem, file=path, field=foreign.response_id)
        seen.add(row["response_id"])
        row["recorded"] = as_number(row.get("recorded"), path, None, foreign.recorded)
    return rows


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
        value = _value(text, (special and special.reader) or foreign.reader)
        if value is None:
            return None
        return json.dumps({"score": rescale(value, foreign, item_id, question.bundle.scale)})

    return reading


def _value(text: str, reader: Reader) -> float | None:
    return pattern(text, reader.pattern, reader.take) if reader.pattern else json_keys(text, reader.json_keys)


def foreign_scores(foreign: Foreign, base: Path) -> dict[str, float]:
    """Response → the score that the foreign system itself read from the reply, on the scale that its judge used."""
    rows = foreign_rows(foreign, base)
    return {row["response_id"]: row["recorded"] for row in rows if row["recorded"] is not None}
