"""What a seed's arms learn from: rollouts of the base policy on the train split, their signals, the steps that these
select, and revisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.settings.edit import TUNED, Arm
from tasks.contracts.tables.edit import Revisions, Rollouts, Separations, Steps
from tasks.edit.belief import beliefs
from tasks.edit.grounding import supports
from tasks.edit.phases import SIGNALLED, chosen, is_wrong, revised, revision_row, selected, separated, step_rows
from tasks.edit.pool import repaired
from tasks.edit.rollout import Sample
from tasks.edit.shards import STAGE, Tables, by, chunks, in_chunks, luck, rows_of, table_of
from tasks.edit.work import Work, attempts_of, written


def gather(work: Work, seed: int) -> None:
    """What is told of the base policy, as far as an arm of the plan learns from it."""
    arms = work.plan.wanted()
    if any(arm in TUNED for arm in arms):
        _rollouts(work, seed)
    if any(arm in SIGNALLED for arm in arms):
        _signals(work, seed)
        _selection(work, seed)


def revise_for(work: Work, arm: Arm, seed: int) -> None:
    """Attempts to mend the wrong rollouts for the arm's pool, and what is believed along those that succeed."""

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        return _revisions(work, arm, seed, shard, samples)

    what = f"seed {seed}: {arm}: revisions of responses"
    in_chunks(work.run, f"revisions-{arm}-{seed}", work.cases.train, fill, what)


def _rollouts(work: Work, seed: int) -> None:
    plan = work.plan.revising

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        return {Rollouts: written(work, shard, "base", seed, work.policy, samples, plan.rollouts, plan.temperature)}

    in_chunks(work.run, f"rollouts-{seed}", work.cases.train, fill, f"seed {seed}: rollouts", plan.rollouts)


def _signals(work: Work, seed: int) -> None:
    """What the base policy believes at every boundary of its rollouts, and what every step rests on."""

    def fill(_: str, samples: Sequence[Sample]) -> Tables:
        attempts = attempts_of(work, seed, samples)
        read = [(attempt.sample, attempt.text) for attempt in attempts]
        believed = beliefs(work.policy, work.prompts, read)
        told = zip(attempts, believed, supports(work.policy, work.prompts, read), strict=True)
        return {Steps: [row for case in told for row in step_rows("base", seed, *case)]}

    count = work.plan.revising.rollouts
    in_chunks(work.run, f"signals-{seed}", work.cases.train, fill, f"seed {seed}: signals of rollouts", count)


def _selection(work: Work, seed: int) -> None:
    """Adds to the signals what only all of them tell. That rests on columns which a shard has with and without it, so a
    kill between two shards does no harm."""
    run, train = work.run, work.cases.train
    if run.done(STAGE, f"selection-{seed}"):
        return
    wrong = [attempt for attempt in attempts_of(work, seed, train) if is_wrong(attempt)]
    keys = [(attempt.sample.response_id, attempt.number) for attempt in wrong]
    whole = selected(table_of(run, Steps, by("base", seed)), keys, work.plan.revising)
    for shard, samples in chunks(f"signals-{seed}", train):
        mine = pc.is_in(whole["response_id"], pa.array([sample.response_id for sample in samples]))
        run.commit(STAGE, shard, {Steps: whole.filter(mine)})
    run.commit(STAGE, f"selection-{seed}", {Separations: _separations(work, seed, whole)})
    fates = {one["values"]: one["counts"] for one in whole["fate"].drop_null().value_counts().to_pylist()}
    told = ", ".join(f"{count:,} {fate}" for fate, count in fates.items()) or "none"
    print(f"edit: seed {seed}: {len(wrong):,} rollouts are wrong; their steps: {told}")


def _separations(work: Work, seed: int, steps: pa.Table) -> list[dict[str, Any]]:
    """How the signals tell kinds of steps apart, where the plan has a pattern for these."""
    if not work.plan.synthesis:
        return []
    rows = rows_of(work.run, Rollouts, by("base", seed))
    texts = {(row["response_id"], row["sample"]): row["text"] for row in rows}
    return separated(steps, texts, work.plan.synthesis, seed)


def _revisions(work: Work, arm: Arm, seed: int, shard: str, samples: Sequence[Sample]) -> Tables:
    attempts = [attempt for attempt in attempts_of(work, seed, samples) if is_wrong(attempt)]
    steps = chosen(rows_of(work.run, Steps, by("base", seed, samples))) if arm in SIGNALLED else {}
    more: dict[str, Any] = {"max_tokens": work.plan.max_tokens, "seed": luck(shard)}
    revisions = revised(arm, attempts, steps, work.prompts, work.policy.write, work.plan.revising, **more)
    wrong = {(attempt.sample.response_id, attempt.number): attempt for attempt in attempts}
    texts = repaired(revisions) if arm != "int_sft" else []
    mended = [wrong[text.response_id, text.sample]._replace(text=text.completion) for text in texts]
    believed = beliefs(work.policy, work.prompts, [(attempt.sample, attempt.text) for attempt in mended])
    return {
        Revisions: [revision_row(arm, seed, revision) for revision in revisions],
        Steps: [row for case in zip(mended, believed, strict=True) for row in step_rows(arm, seed, *case)],
    }
