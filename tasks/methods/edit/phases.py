"""The phases of Edit, values in and rows out: rollouts, signals, selection, revisions, pools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import TUNED, Revising
from rubricflow.tasks.core.contracts.tables.edit import Arm, Origin, Part, Signal
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.text.patterns import begins
from rubricflow.tasks.methods.edit.belief import (
    Label,
    Support,
    Write,
    change,
    closed,
    error,
    expected,
    residual,
    separations,
)
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.revise import (
    Candidate,
    FailedRollout,
    Key,
    Reviser,
    Revision,
    diagnosis,
    fates,
    read_proposal,
    thresholds,
)
from rubricflow.tasks.methods.edit.rollout import Sample, cut, read_mark, up_to_mark


class Demonstration(NamedTuple):
    """A text to train on; its prompt is the grading prompt of the response."""

    response_id: str
    sample: int
    """The rollout that it is or was made from."""
    origin: Origin
    completion: str
    ends: bool
    """Whether the text is whole, so that the policy also learns to stop after it."""


Pool = tuple[list[Demonstration], str | None]
"""A pool, ordered by response and rollout, and what to know about it: that nothing was mended."""
SIGNALLED = tuple(arm for arm in TUNED if arm not in ("int_sft", "no_signals"))
"""Arms whose pool rests on the signals."""
GROUNDING = ("grounding_scheme", "grounding_answer", "grounding_prefix")
"""Columns of what a step rests on, in the order of `Support`."""
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
    attempts = list(product(samples, range(count)))
    prompt_texts = [prompts.grade(sample) for sample, _ in attempts]
    texts = write(prompt_texts, temperature=temperature, max_tokens=max_tokens, seed=seed) if prompt_texts else []
    replies = closed(write, prompt_texts, texts)
    return [FailedRollout(*attempt, *reply) for attempt, reply in zip(attempts, replies, strict=True)]


def rollout_row(arm: Arm, seed: int, part: Part, attempt: FailedRollout, seconds: float) -> Record:
    """A row of `rollouts`."""
    sample, number, text, is_closed = attempt
    mark, reason = read_mark(text, sample.top)
    unmarked = "closed" if is_closed and reason is None else reason
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
        "unmarked": unmarked,
        "gold": sample.gold,
        "top": sample.top,
        "seconds": seconds,
    }


def grading_row(rollout: Fields, bundle_id: str) -> Record:
    """A greedy rollout, as a row of `rollouts`, as a row of `gradings`."""
    mark = rollout["mark"]
    score = None if mark is None else float(mark)
    rater_kind = "llm" if rollout["arm"] == "base" else "trained"
    return {
        "response_id": rollout["response_id"],
        "item_id": rollout["item_id"],
        "rater_id": f"{rollout['arm']}-{rollout['seed']}",
        "rater_kind": rater_kind,
        "sample": 0,
        "bundle_id": bundle_id,
        "score": score,
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
) -> Iterator[Record]:
    """Rows of `steps` of one rollout, T + 1, without what only all rollouts of the seed tell: residual and fate.

    belief: (T + 1, M + 1). support: of the T steps; None where it was not measured.
    """
    sample, number, text, _ = attempt
    assert sample.gold is not None  # a training sample has one
    means = expected(belief)
    errors = error(belief, sample.gold)
    gains, spans = change(errors), cut(text)
    rollout = {"arm": arm, "seed": seed, "response_id": sample.response_id, "sample": number}
    for k, row in enumerate(belief):
        boundary = {"step": k, "belief": row.tolist(), "expected": float(means[k]), "error": float(errors[k])}
        step = dict.fromkeys(("start", "end", "change", *GROUNDING))
        if k:
            step |= {**spans[k - 1]._asdict(), "change": float(gains[k - 1])}
        if k and support:
            step |= {name: float(values[k - 1]) for name, values in zip(GROUNDING, support, strict=True)}
        yield rollout | boundary | step


def selected(steps: pa.Table, wrong: Iterable[Key], plan: Revising) -> pa.Table:
    """All rows of `steps` of a seed's sampled rollouts, with residual (Eq. 4) and fate.

    steps: each rollout's rows together, boundaries in order. wrong: the rollouts that do not state the gold mark; the
    steps of the others get no fate.
    """
    is_step = steps["step"].to_numpy() > 0
    firsts = np.flatnonzero(~is_step)
    # The rows of each rollout's steps, boundary 0 left out
    ends = np.append(firsts[1:], steps.num_rows)
    rollouts = [slice(first + 1, end) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
    grounding = np.column_stack([_column(steps, name) for name in GROUNDING])
    prefixes = residual([grounding[rows, 2] for rows in rollouts])
    grounding[is_step, 2] = np.concatenate([np.empty(0), *prefixes])
    is_weak = np.all(grounding < thresholds(grounding[is_step], plan.weak_below), axis=1)
    changes, wrong_keys = _column(steps, "change"), set(wrong)
    column: list[str | None] = [None] * steps.num_rows
    keys = steps.select(["response_id", "sample"]).take(firsts).to_pylist()
    for key, rows in zip(keys, rollouts, strict=True):
        if (key["response_id"], key["sample"]) in wrong_keys:
            column[rows] = fates(changes[rows], is_weak[rows], plan.candidates, plan.near_tie)
    residuals = pa.array(grounding[:, 2], pa.float64(), mask=~is_step)
    for name, values in (("prefix_residual", residuals), ("fate", pa.array(column, pa.string()))):
        steps = steps.set_column(steps.column_names.index(name), steps.schema.field(name), values)
    return steps


def separated(steps: pa.Table, texts: Mapping[Key, str], synthesis: str, seed: int) -> list[Record]:
    """Rows of `separations` of a seed. steps: as `selected` leaves them; texts: of the rollouts; synthesis: pattern of
    the steps that put others together."""
    steps = steps.filter(pc.greater(steps["step"], 0))
    grounding: tuple[Signal, ...] = ("answer", "scheme", "prefix")
    signals: dict[Signal, Floats] = {name: _column(steps, f"grounding_{name}") for name in grounding}
    signals["prefix_residual"] = _column(steps, "prefix_residual")
    labels = list[Label]()
    names = list[str]()
    for row in steps.select(["response_id", "sample", "start", "end"]).to_pylist():
        text = texts[row["response_id"], row["sample"]][row["start"] : row["end"]]
        labels.append("synthesis" if begins(synthesis, text, "edit.synthesis") else "grounding")
        names.append(f"{row['response_id']} {row['sample']}")
    return [{"seed": seed, **separation} for separation in separations(labels, signals, names)]


def steps_to_mend(steps: Iterable[Fields]) -> dict[Key, list[Candidate]]:
    """Rollout → its steps to mend, the most harmful first. steps: rows of `steps`, boundaries in order."""
    ranked: dict[Key, list[tuple[float, Candidate]]] = {}
    before = 0.0
    for row in steps:
        if row["fate"] == "chosen":
            candidate = Candidate(row["step"] - 1, diagnosis(row["change"], before, row["expected"]))
            ranked.setdefault((row["response_id"], row["sample"]), []).append((row["change"], candidate))
        before = row["expected"]
    return {key: [step for _, step in sorted(found, key=itemgetter(0))] for key, found in ranked.items()}


def revised(
    arm: Arm,
    attempts: Sequence[FailedRollout],
    chosen_steps: Mapping[Key, Sequence[Candidate]],
    reviser: Reviser,
) -> list[Revision]:
    """The revisions of wrong rollouts that an arm's pool is made of. chosen_steps: what the signals chose, see
    `steps_to_mend`."""
    if arm == "int_sft":
        return reviser.intervene(attempts)
    ranked: list[Sequence[Candidate]] = []
    if arm == "no_signals":
        for attempt, reply in zip(attempts, reviser.name_steps(attempts), strict=True):
            step, _, _ = read_proposal(reply, len(cut(attempt.text)))
            ranked.append([] if step is None else [Candidate(step)])
        reviser = reviser._replace(seed=reviser.seed + 1)
    else:
        ranked = [chosen_steps.get(attempt.key, ()) for attempt in attempts]
    return reviser.revise(attempts, ranked, with_checklist=arm != "no_checklist", local=arm != "no_locality")


def revision_row(arm: Arm, seed: int, revision: Revision) -> Record:
    """A row of `revisions`."""
    attempt = revision.attempt
    return {
        "arm": arm,
        "seed": seed,
        "response_id": attempt.sample.response_id,
        "sample": attempt.number,
        "step": None if revision.step is None else revision.step + 1,
        "steps": len(cut(attempt.text)),
        "sub_steps": [] if revision.refused else list(revision.sub_steps),
        "begun": revision.begun or None,
        "marks": list(revision.marks),
        "kept": revision.repaired is not None,
        "rank": revision.rank,
        "checklist": revision.checklist,
        "refused": revision.refused,
        "reply": revision.reply,
        "repaired": revision.repaired,
    }


def learning_row(metric: Fields, step: int) -> Record:
    """A row of `arm_metrics` as a point of the learning curve."""
    return {name: metric[name] for name in ("arm", "seed", "part", "metric", "value")} | {"step": step}


def _column(table: pa.Table, name: str) -> Floats:
    """A column with NaN for null."""
    values: Floats = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return values


# The pool of an arm's supervised fine-tuning: rollouts mended, and rollouts that were right by themselves (section
# 2.2).


def pooled(arm: Arm, revisions: Sequence[Fields], attempts: Sequence[FailedRollout], share: float, seed: int) -> Pool:
    """The pool of an arm; InputError where it is empty. revisions: rows of `revisions`; attempts: all rollouts of the
    seed.

    InT learns its interventions and nothing else: the kept attempts up to and with the intervention, without what
    followed, so that they do not end.
    """
    lost = summary(revisions, sum(map(is_wrong, attempts)))
    if arm == "int_sft":
        interventions = [
            Demonstration(row["response_id"], row["sample"], "intervention", row["begun"], False)
            for row in revisions
            if row["kept"]
        ]
        return pool(interventions, [], share, seed, lost=lost)
    natural = [
        Demonstration(*attempt.key, "natural", up_to_mark(attempt.text, attempt.sample.top), True)
        for attempt in attempts
        if not is_wrong(attempt)
    ]
    return pool(repaired(revisions), natural, share, seed, lost=lost)


def repaired(revisions: Sequence[Fields]) -> list[Demonstration]:
    """The mended rollouts, one for each attempt: that of the best-ranked candidate that was kept. revisions: rows of
    the table."""
    best: dict[Key, str] = {}
    for row in sorted(revisions, key=itemgetter("rank")):
        if row["repaired"] is not None:
            best.setdefault((row["response_id"], row["sample"]), row["repaired"])
    return [Demonstration(*key, "repaired", text, True) for key, text in sorted(best.items())]


def pool(
    mended: Sequence[Demonstration], natural: Sequence[Demonstration], share: float, seed: int, *, lost: str
) -> Pool:
    """The demonstrations that an arm is trained on.

    mended: repaired rollouts or interventions, all of which are in. natural: a seeded choice of these makes up at most
    `share`, in [0, 1], of the pool; where nothing is mended, all of them are the pool, and its note says so. The same
    text of the same response is in once. lost: why no more was mended, as `summary` puts it. InputError for an empty
    pool.
    """
    distinct: dict[tuple[str, str], Demonstration] = {}
    for row in [*sorted(mended), *sorted(natural)]:
        distinct.setdefault((row.response_id, row.completion), row)
    others = [row for row in distinct.values() if row.origin == "natural"]
    mended = [row for row in distinct.values() if row.origin != "natural"]
    if not mended and not (others and share):
        raise InputError(
            f"the pool is empty: {lost}; {len(others)} rollouts were right by themselves", field="edit.revising"
        )
    if mended and share < 1:
        # n / (n + mended) ≤ share, with slack for the division's rounding
        count = math.floor(len(mended) * share / (1 - share) + 1e-9)
        chosen = np.random.default_rng(seed).permutation(len(others))[:count]
        others = [others[number] for number in chosen]
    note = None if mended else f"nothing was mended, the pool is naturally correct rollouts alone: {lost}"
    return sorted([*mended, *others]), note


def summary(revisions: Sequence[Fields], wrong: int) -> str:
    """Where the wrong rollouts went, in words: how many there were, had a candidate, were refused, and why, or kept.

    revisions: rows of the table; wrong: rollouts without the gold mark.
    """
    if not wrong:
        return "no rollout was wrong"
    if not revisions:
        return f"none of {wrong} wrong rollouts had a step to mend"
    refused = Counter(row["refused"] for row in revisions if row["refused"])
    reasons = ", ".join(f"{reason} {count}" for reason, count in refused.most_common()) or "none"
    kept = sum(row["kept"] for row in revisions)
    revised = f"{len(revisions)} revisions, {refused.total()} refused ({reasons})"
    return f"{wrong} wrong rollouts, {revised}, {kept} reached the gold mark"
