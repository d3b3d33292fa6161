"""The phases of Edit, values in and rows out: rollouts, signals, selection, revisions, pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.settings.edit import TUNED, Arm, Revising
from tasks.contracts.tables.edit import Part, Signal
from tasks.edit.audit import Label, separations
from tasks.edit.belief import change, error, expected
from tasks.edit.closing import Write, closed
from tasks.edit.grounding import Support, residual
from tasks.edit.intervene import ask, intervene
from tasks.edit.pool import Demonstration, Pool, interventions, natural, pool, repaired, told
from tasks.edit.prompt import Prompts
from tasks.edit.revise import Candidate, FailedRollout, Revision, diagnosis, revise
from tasks.edit.rollout import Sample, cut, read_mark
from tasks.edit.select import candidates, named, thresholds, weak
from tasks.edit.tuning import Tuned
from tasks.stats.arrays import Floats
from tasks.text.patterns import begins

Key = tuple[str, int]
"""A rollout of a seed: response_id and sample."""
Record = Mapping[str, Any]
"""A row."""
SIGNALLED = tuple(arm for arm in TUNED if arm not in ("int_sft", "no_signals"))
"""Arms whose pool rests on the signals."""
_REASONS = {"no_mark": "unreadable_reply", "off_scale": "off_scale"}


def rolled(
    write: Write,
    prompts: Prompts,
    samples: Sequence[Sample],
    count: int,
    *,
    temperature: float,
    max_tokens: int,
    seed: int,
) -> list[FailedRollout]:
    """`count` rollouts of every sample, in their order; those that state no mark are closed."""
    each = [(sample, number) for sample in samples for number in range(count)]
    asked = [prompts.grade(sample) for sample, _ in each]
    texts = write(asked, temperature=temperature, max_tokens=max_tokens, seed=seed) if asked else []
    replies = closed(write, asked, texts)
    return [FailedRollout(*which, *reply) for which, reply in zip(each, replies, strict=True)]


def rollout_row(arm: Arm, seed: int, part: Part, attempt: FailedRollout, seconds: float) -> dict[str, Any]:
    """A row of `rollouts`."""
    sample, number, text, is_closed = attempt
    mark, reason = read_mark(text, sample.top)
    return {
        "arm": arm,
        "seed": seed,
        "response_id": sample.response_id,
        "item_id": sample.item_id,
        "sample": number,
        "part": part,
        "text": text,
        "steps": len(cut(text)),
        "mark": mark,
        "unmarked": "closed" if is_closed and reason is None else reason,
        "gold": sample.gold,
        "top": sample.top,
        "seconds": seconds,
    }


def grading_row(rollout: Record, bundle_id: str) -> dict[str, Any]:
    """A greedy rollout, as a row of `rollouts`, as a row of `gradings`."""
    mark = rollout["mark"]
    return {
        "response_id": rollout["response_id"],
        "item_id": rollout["item_id"],
        "rater_id": f"{rollout['arm']}-{rollout['seed']}",
        "rater_kind": "llm" if rollout["arm"] == "base" else "trained",
        "sample": 0,
        "bundle_id": bundle_id,
        "score": None if mark is None else float(mark),
        "trait_scores": {},
        "signals": {},
        "status": "unscored" if mark is None else "scored",
        "unscored_reason": _REASONS.get(rollout["unmarked"]),
    }


def is_wrong(attempt: FailedRollout) -> bool:
    """Whether a rollout misses the gold mark; one that states no mark does, too."""
    return read_mark(attempt.text, attempt.sample.top).mark != attempt.sample.gold


def step_rows(
    arm: Arm, seed: int, attempt: FailedRollout, belief: Floats, support: Support | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of `steps` of one rollout, T + 1, without what only all rollouts of the seed tell: residual and fate.

    belief: (T + 1, M + 1). support: of the T steps; None where it was not measured.
    """
    sample, number, text, _ = attempt
    assert sample.gold is not None  # a training sample has one
    means, errors = expected(belief), error(belief, sample.gold)
    gains, spans = change(errors), cut(text)
    for k, row in enumerate(belief):
        grounding = [float(of[k - 1]) for of in support] if k and support else [None] * 3
        yield {
            "arm": arm,
            "seed": seed,
            "response_id": sample.response_id,
            "sample": number,
            "step": k,
            "start": spans[k - 1].start if k else None,
            "end": spans[k - 1].end if k else None,
            "belief": row.tolist(),
            "expected": float(means[k]),
            "error": float(errors[k]),
            "change": float(gains[k - 1]) if k else None,
            **dict(zip(("grounding_scheme", "grounding_answer", "grounding_prefix"), grounding, strict=True)),
        }


def selected(steps: pa.Table, wrong: Iterable[Key], plan: Revising) -> pa.Table:
    """All rows of `steps` of a seed's sampled rollouts, with residual (Eq. 4) and fate.

    steps: each rollout's rows together, boundaries in order. wrong: the rollouts that do not state the gold mark; the
    steps of the others get no fate.
    """
    firsts = np.flatnonzero(steps["step"].to_numpy() == 0)
    ends = np.append(firsts[1:], steps.num_rows)
    grounding = np.column_stack([_column(steps, f"grounding_{name}") for name in ("scheme", "answer", "prefix")])
    changes, known = _column(steps, "change"), set(wrong)
    for rows, values in zip(
        _inside(firsts, ends), residual([grounding[rows, 2] for rows in _inside(firsts, ends)]), strict=True
    ):
        grounding[rows, 2] = values
    is_step = np.ones(steps.num_rows, bool)
    is_step[firsts] = False
    is_weak = weak(grounding, thresholds(grounding[is_step], plan.weak_below))
    fates: list[str | None] = [None] * steps.num_rows
    keys = zip(steps["response_id"].take(firsts).to_pylist(), steps["sample"].take(firsts).to_pylist(), strict=True)
    for key, rows in zip(keys, _inside(firsts, ends), strict=True):
        if key in known:
            fates[rows] = candidates(changes[rows], is_weak[rows], plan.candidates, plan.near_tie).fates
    residuals = pa.array(grounding[:, 2], pa.float64(), mask=~is_step)
    found = {"prefix_residual": residuals, "fate": pa.array(fates, pa.string())}
    for name, values in found.items():
        steps = steps.set_column(steps.column_names.index(name), steps.schema.field(name), values)
    return steps


def separated(steps: pa.Table, texts: Mapping[Key, str], synthesis: str, seed: int) -> list[dict[str, Any]]:
    """Rows of `separations` of a seed. steps: as `selected` leaves them; texts: of the rollouts; synthesis: pattern of
    the steps that put others together."""
    steps = steps.filter(pc.greater(steps["step"], 0))
    signals: dict[Signal, Floats] = {
        "answer": _column(steps, "grounding_answer"),
        "scheme": _column(steps, "grounding_scheme"),
        "prefix": _column(steps, "grounding_prefix"),
        "prefix_residual": _column(steps, "prefix_residual"),
    }
    rows = steps.select(["response_id", "sample", "start", "end"]).to_pylist()
    labels: list[Label] = [
        "synthesis"
        if begins(synthesis, texts[row["response_id"], row["sample"]][row["start"] : row["end"]], "edit.synthesis")
        else "grounding"
        for row in rows
    ]
    names = [f"{row['response_id']} {row['sample']}" for row in rows]
    return [{"seed": seed, **one._asdict()} for one in separations(labels, signals, names)]


def chosen(steps: Iterable[Record]) -> dict[Key, list[Candidate]]:
    """Rollout → its steps to mend, the most harmful first. steps: rows of `steps`, boundaries in order."""
    ranked: dict[Key, list[tuple[float, Candidate]]] = {}
    before = 0.0
    for row in steps:
        if row["fate"] == "chosen":
            words = diagnosis(row["change"], before, row["expected"])
            of = ranked.setdefault((row["response_id"], row["sample"]), [])
            of.append((row["change"], Candidate(row["step"] - 1, words)))
        before = row["expected"]
    return {key: [one for _, one in sorted(of, key=lambda ranked: ranked[0])] for key, of in ranked.items()}


def revised(
    arm: Arm,
    attempts: Sequence[FailedRollout],
    found: Mapping[Key, Sequence[Candidate]],
    prompts: Prompts,
    write: Write,
    plan: Revising,
    *,
    max_tokens: int,
    seed: int,
) -> list[Revision]:
    """The revisions of wrong rollouts that an arm's pool is made of. found: what the signals chose, see `chosen`."""
    more: dict[str, Any] = {"max_tokens": max_tokens, "seed": seed}
    if arm == "int_sft":
        return intervene(attempts, prompts, write, plan, **more)
    if arm == "no_signals":
        replies = ask(attempts, prompts, write, plan, **more)
        steps = [named(reply, len(cut(one.text))) for one, reply in zip(attempts, replies, strict=True)]
        ranked: list[Sequence[Candidate]] = [[Candidate(step) for step in of] for of in steps]
        more["seed"] += 1
    else:
        ranked = [found.get((one.sample.response_id, one.number), ()) for one in attempts]
    without = {"with_checklist": arm != "no_checklist", "local": arm != "no_locality"}
    return revise(attempts, ranked, prompts, write, plan, **more, **without)


def revision_row(arm: Arm, seed: int, one: Revision) -> dict[str, Any]:
    """A row of `revisions`."""
    return {
        "arm": arm,
        "seed": seed,
        "response_id": one.attempt.sample.response_id,
        "sample": one.attempt.number,
        "rank": one.rank,
        "step": None if one.step is None else one.step + 1,
        "steps": len(cut(one.attempt.text)),
        "checklist": one.checklist,
        "sub_steps": [] if one.refused else list(one.sub_steps),
        "refused": one.refused,
        "reply": one.reply,
        "begun": one.begun or None,
        "marks": list(one.marks),
        "kept": one.repaired is not None,
        "repaired": one.repaired,
    }


def revision_of(row: Record, attempt: FailedRollout) -> Revision:
    """The revision that a row of `revisions` tells of."""
    return Revision(
        attempt,
        row["rank"],
        None if row["step"] is None else row["step"] - 1,
        row["checklist"],
        tuple(row["sub_steps"]),
        row["refused"],
        row["reply"],
        row["begun"] or "",
        tuple(row["marks"]),
        row["repaired"],
    )


def pooled(arm: Arm, revisions: Sequence[Revision], attempts: Sequence[FailedRollout], share: float, seed: int) -> Pool:
    """The pool of an arm; InputError where it is empty. attempts: all rollouts of the seed."""
    mended = (interventions if arm == "int_sft" else repaired)(revisions)
    lost = told(revisions, sum(map(is_wrong, attempts)))
    # InT learns its interventions and nothing else.
    return pool(mended, [] if arm == "int_sft" else natural(attempts), share, seed, lost=lost)


def demonstration_row(arm: Arm, seed: int, one: Demonstration) -> dict[str, Any]:
    """A row of `demonstrations`."""
    return {"arm": arm, "seed": seed, **one._asdict()}


def curve_rows(arm: Arm, seed: int, tuned: Tuned) -> Iterator[dict[str, Any]]:
    """What training logged, as rows of `learning`; times are no result."""
    for step, metric, value in tuned.history:
        if metric != "seconds":
            yield {"arm": arm, "seed": seed, "part": "train", "metric": metric, "step": step, "value": value}


def learning_row(metric: Record, step: int) -> dict[str, Any]:
    """A row of `arm_metrics` as a point of the learning curve."""
    return {name: metric[name] for name in ("arm", "seed", "part", "metric", "value")} | {"step": step}


def _column(table: pa.Table, name: str) -> Floats:
    """A column with NaN for null."""
    values: Floats = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return values


def _inside(firsts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> list[slice]:
    """The rows of each rollout's steps, boundary 0 left out."""
    return [slice(int(first) + 1, int(end)) for first, end in zip(firsts, ends, strict=True)]
