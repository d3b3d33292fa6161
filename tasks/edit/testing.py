"""An arm on the test split: greedy, under edited schemes, and what it believes beside its start; and what all arms are
worth by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow.compute as pc

from tasks.contracts.settings.edit import STARTS, Arm
from tasks.contracts.tables.arms import ArmDifferences, ArmMetrics, Learning, Policies
from tasks.contracts.tables.edit import TESTED, Rollouts
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.rules import RuleFaithfulness, RuleTests
from tasks.edit.belief import beliefs
from tasks.edit.compared import difference_rows, metric_rows, probe_rows, spaced
from tasks.edit.faithful import faithfulness, rule_tests
from tasks.edit.phases import Record, grading_row, learning_row, rolled
from tasks.edit.policy import Policy
from tasks.edit.rollout import Sample, read_mark
from tasks.edit.shards import STAGE, Tables, by, in_chunks, rows_of
from tasks.edit.work import Work, written


def measure(work: Work, arm: Arm, seed: int) -> None:
    """Everything that is measured of an arm; nothing of one that was not trained."""
    adapters = work.adapters(arm, seed)
    if adapters is None:
        return
    policy = cache(lambda: work.policy_with(adapters))
    what, test = f"seed {seed}: {arm}:", work.cases.test

    def greedy(shard: str, samples: Sequence[Sample]) -> Tables:
        return _greedy(work, arm, seed, policy(), shard, samples)

    def rules(_: str, samples: Sequence[Sample]) -> Tables:
        return {RuleTests: _rule_tests(work, arm, seed, policy, samples)}

    in_chunks(work.run, f"greedy-{arm}-{seed}", test, greedy, f"{what} test responses")
    if work.plan.faithfulness:
        in_chunks(work.run, f"rules-{arm}-{seed}", test, rules, f"{what} rule tests of responses")
    start, shard = STARTS.get(arm, "base"), f"probe-{arm}-{seed}"
    if start != "base" and not work.run.done(STAGE, shard):
        work.run.commit(STAGE, shard, {ArmMetrics: list(_probed(work, arm, start, seed, policy()))})


def worth(work: Work, draws: int, luck: int) -> Tables:
    """What all arms are worth, and the last points of their learning curves. draws, luck: of the bootstrap, their
    number and their seed."""
    graded: dict[tuple[Arm, int], list[Record]] = {}
    for row in rows_of(work.run, Rollouts, pc.field("part") != "train"):
        graded.setdefault((row["arm"], row["seed"]), []).append(row)
    metrics = list(metric_rows(graded, draws, luck))
    policies = rows_of(work.run, Policies)
    updates = {(row["arm"], row["seed"]): row["updates"] for row in policies if row["arm"] in STARTS}
    last = ((row, updates.get((row["arm"], row["seed"]))) for row in metrics)
    return {
        ArmMetrics: metrics,
        ArmDifferences: list(difference_rows(graded, draws, luck)),
        RuleFaithfulness: faithfulness(rows_of(work.run, RuleTests), draws, luck),
        Learning: [learning_row(row, step) for row, step in last if step is not None],
    }


def _greedy(work: Work, arm: Arm, seed: int, policy: Policy, shard: str, samples: Sequence[Sample]) -> Tables:
    rows = written(work, shard, arm, seed, policy, samples)
    ids = {item: bundle.bundle_id for item, bundle in work.cases.bundles.items()}
    return {Rollouts: rows, Gradings: [grading_row(row, ids[row["item_id"]]) for row in rows]}


def _rule_tests(
    work: Work, arm: Arm, seed: int, policy: Callable[[], Policy], samples: Sequence[Sample]
) -> list[dict[str, Any]]:
    """The arm's marks under edited schemes; a case that its greedy rollout already marks is not asked for again."""
    marks = {row["response_id"]: row["mark"] for row in rows_of(work.run, Rollouts, by(arm, seed, samples))}
    known = {sample: marks[sample.response_id] for sample in samples}

    def mark_of(asked: Sequence[Sample]) -> list[int | None]:
        new = [sample for sample in asked if sample not in known]
        both = known | _marks(work, policy(), new)
        return [both[sample] for sample in asked]

    return rule_tests(samples, work.cases.bundles, mark_of, f"{arm}-{seed}")


def _marks(work: Work, policy: Policy, samples: Sequence[Sample]) -> dict[Sample, int | None]:
    """The marks of greedy rollouts."""
    more: dict[str, Any] = {"temperature": 0.0, "max_tokens": work.plan.max_tokens, "seed": 0}
    attempts = rolled(policy.write, work.prompts, samples, 1, **more)
    return {attempt.sample: read_mark(attempt.text, attempt.sample.top).mark for attempt in attempts}


def _probed(work: Work, arm: Arm, start: Arm, seed: int, policy: Policy) -> Iterator[dict[str, Any]]:
    """How far the arm's beliefs moved from its start's, on the start's greedy rollouts."""
    samples = {sample.response_id: sample for sample in work.cases.test}
    before = work.policy_with(work.adapters(start, seed) or [])
    rows = rows_of(work.run, Rollouts, by(start, seed, work.cases.test))
    for part in TESTED:
        read = [(samples[row["response_id"]], row["text"]) for row in spaced(rows, part)]
        if read:
            now, then = (beliefs(of, work.prompts, read) for of in (policy, before))
            yield from probe_rows(arm, seed, part, now, then)
