"""The black-box grader to compare with: a language model is asked for the score, with some examples or with none
(REC-CBM, appendix D.1). Student text is data inside a fence that it cannot close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Attempt, Checked, ask
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract, said
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import record
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.core.text.templates import Templates

PROMPTS = Templates(Path(__file__).with_name("prompts"))
_KEYS = frozenset({"score"})
_SLACK = 1e-9
_SHOWN = 2_000
"""Characters of a failed reply that its repair shows."""
_FAILED: Meanings = {
    "unreadable": "no JSON object with a score could be read",
    "malformed_score": "the score was no number",
    "score_off_scale": "the score was outside the scale",
    "score_off_step": "the score fell between two scores of the scale",
}


@dataclass(frozen=True)
class Shot:
    """An example: a response of the train split with its human score."""

    answered: Answered
    score: float


def choose_shots(answered: Sequence[Answered], scores: Floats, rows: Ints, count: int, seed: int) -> tuple[Shot, ...]:
    """Examples spread evenly over the scores that occur, lowest first; which responses show them is drawn.

    scores: (n,) human scores, NaN where there is none. rows: of the train split. InputError where fewer than `count`
    of them have a score.
    """
    scored = rows[~np.isnan(scores[rows])]
    if len(scored) < count:
        raise InputError(f"{count} examples are asked for, but only {len(scored)} training responses have a score")
    levels, rank = np.unique(scores[scored], return_inverse=True)
    unused = np.random.default_rng(seed).permutation(len(scored)).tolist()
    shown: list[int] = []
    for target in np.floor((np.arange(count) + 0.5) * len(levels) / count):
        shown.append(min(unused, key=lambda place: abs(rank[place] - target)))
        unused.remove(shown[-1])
    lowest_first = scored[sorted(shown, key=lambda place: rank[place])]
    return tuple(Shot(answered[row], float(scores[row])) for row in lowest_first)


def prompted(
    answered: Sequence[Answered],
    shots: Sequence[Shot],
    scale: Scale,
    backend: Backend,
    replies: Replies,
    *,
    response_ids: Sequence[str],
    rubric: str = "",
    sampling: Sampling | None = None,
    structured: bool = True,
) -> list[float | None]:
    """Asks once about each response, and once more where the reply holds no score of the scale: the scores in the order
    of the responses, None where no reply held one.

    shots: none for zero-shot. response_ids: of `answered`, for the record. rubric: in prose. structured: whether the
    model is held to a JSON Schema. InputError for a backend that reads no prose.
    """
    if not backend.reads_prose:
        raise InputError(f"backend '{backend.name}' reads no prompts; a prompted grader needs a language model")
    # The part that is the same for every response, so that a server's prefix cache holds it.
    examples = "\n".join(f"{_shown(shot.answered)}\nScore: {shot.score:g}\n" for shot in shots)
    instructions = PROMPTS.fill(
        "grade",
        {
            "rubric": f"\nRubric:\n{rubric}\n" if rubric else "",
            "scale": _range(scale),
            "anchors": "",
            "examples": f"\nResponses that a person has graded:\n\n{examples}" if examples else "",
        },
    )
    schema = record({"score": {"type": "number", "minimum": scale.min, "maximum": scale.max}})
    requests = [
        Request(
            messages=(Message("system", instructions), Message("user", _shown(response))),
            role="grade",
            subject=response_id,
            keys=_KEYS,
            schema=schema if structured else None,
            sampling=sampling or Sampling(),
            data=response,
        )
        for response_id, response in zip(response_ids, answered, strict=True)
    ]
    answers = ask(requests, backend, replies, partial(_check, scale=scale), partial(_repair, scale=scale))
    return [answer.value for answer in answers]


def _shown(answered: Answered) -> str:
    """A response between its fences, below what belongs to it."""
    material = (("Material that belongs to it", answered.context), ("Model answer", answered.reference))
    return PROMPTS.fill(
        "answer",
        {
            "question": answered.question,
            "material": "".join(f"\n{title}:\n{text}\n" for title, text in material if text),
            "nonce": nonce(answered.response),
            "response": answered.response,
        },
    ).rstrip("\n")


def _range(scale: Scale) -> str:
    return f"{scale.min:g} to {scale.max:g} in steps of {scale.step:g}"


def _check(request: Request, reply: Reply, scale: Scale) -> Checked[float]:
    """The score that a reply states, if it is one of the scale's."""
    artifact, note = extract(reply.text, request.keys, response=request.data.response)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    stated = artifact["score"]
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return Checked(None, ("malformed_score",))
    if not scale.min - _SLACK <= stated <= scale.max + _SLACK:
        return Checked(None, ("score_off_scale",))
    steps = (stated - scale.min) / scale.step
    return Checked(float(stated), ()) if abs(steps - round(steps)) <= _SLACK else Checked(None, ("score_off_step",))


def _repair(request: Request, history: tuple[Attempt[float], ...], scale: Scale) -> Request | None:
    """The same once more, with what failed; what the backend could not answer is left to a rerun."""
    kind = history[-1].checked.violations[0].partition(":")[0] if history[-1].checked.violations else ""
    if len(history) > 1 or kind not in _FAILED:
        return None
    previous = said(history[-1].reply.text)[:_SHOWN]
    text = PROMPTS.fill(
        "mend",
        {
            "failed": _FAILED[kind],
            "nonce": nonce(previous),
            "previous": "\n".join(f"| {line}" for line in previous.splitlines()) or "| (nothing)",
            "scale": _range(scale),
        },
    )
    system, user = request.messages
    mended = Message("user", f"{user.content}\n{text}".rstrip("\n"))
    return replace(request, messages=(system, mended), role="contract_repair", mends=("score",))
