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
from tasks.edit.comparison import difference_rows, metric_rows, probe_rows, spaced
from tasks.edit.faithfulness import faithfulness, rule_tests
from tasks.edit.phases import Record, grading_row, learning_row, rolled
from tasks.edit.policy import Policy
from tasks.edit.rollout import Sample, read_mark
from tasks.edit.shards import STAGE, Tables, in_chunks, of_arm, rows_of
from tasks.edit.workspace import Workspace, written


def measure(workspace: Workspace, arm: Arm, seed: int) -> None:
    """Everything that is measured of an arm; nothing of one that was not trained."""
    adapters = workspace.adapters(arm, seed)
    if adapters is None:
        return
    policy = cache(lambda: workspace.policy_with(adapters))
    label, test = f"seed {seed}: {arm}:", workspace.samples.test

    def greedy(shard: str, samples: Sequence[Sample]) -> Tables:
        return _greedy(workspace, arm, seed, policy(), shard, samples)

    def rules(_: str, samples: Sequence[Sample]) -> Tables:
        return {RuleTests: _rule_tests(workspace, arm, seed, policy, samples)}

    in_chunks(workspace.run, f"greedy-{arm}-{seed}", test, greedy, f"{label} test responses")
    if workspace.plan.faithfulness:
        in_chunks(workspace.run, f"rules-{arm}-{seed}", test, rules, f"{label} rule tests of responses")
    start, shard = STARTS.get(arm, "base"), f"probe-{arm}-{seed}"
    if start != "base" and not workspace.run.done(STAGE, shard):
        workspace.run.commit(STAGE, shard, {ArmMetrics: list(_probed(workspace, arm, start, seed, policy()))})


def worth(workspace: Workspace, draws: int, seed: int) -> Tables:
    """What all arms are worth, and the last points of their learning curves. draws, seed: of the bootstrap."""
    graded: dict[tuple[Arm, int], list[Record]] = {}
    for row in rows_of(workspace.run, Rollouts, pc.field("part") != "train"):
        graded.setdefault((row["arm"], row["seed"]), []).append(row)
    metrics = list(metric_rows(graded, draws, seed))
    policies = rows_of(workspace.run, Policies)
    updates = {(row["arm"], row["seed"]): row["updates"] for row in policies if row["arm"] in STARTS}
    last_points = []
    for row in metrics:
        step = updates.get((row["arm"], row["seed"]))
        if step is not None:
            last_points.append(learning_row(row, step))
    return {
        ArmMetrics: metrics,
        ArmDifferences: list(difference_rows(graded, draws, seed)),
        RuleFaithfulness: faithfulness(rows_of(workspace.run, RuleTests), draws, seed),
        Learning: last_points,
    }


def _greedy(workspace: Workspace, arm: Arm, seed: int, policy: Policy, shard: str, samples: Sequence[Sample]) -> Tables:
    rows = written(workspace, shard, arm, seed, policy, samples)
    ids = {item: bundle.bundle_id for item, bundle in workspace.samples.bundles.items()}
    return {Rollouts: rows, Gradings: [grading_row(row, ids[row["item_id"]]) for row in rows]}


def _rule_tests(
    workspace: Workspace, arm: Arm, seed: int, policy: Callable[[], Policy], samples: Sequence[Sample]
) -> list[dict[str, Any]]:
    """The arm's marks under edited schemes; a case that its greedy rollout already marks is not asked for again."""
    marks = {row["response_id"]: row["mark"] for row in rows_of(workspace.run, Rollouts, of_arm(arm, seed, samples))}
    greedy = {sample: marks[sample.response_id] for sample in samples}

    def mark_of(tests: Sequence[Sample]) -> list[int | None]:
        new = [sample for sample in tests if sample not in greedy]
        marks_by_sample = greedy | _marks(workspace, policy(), new)
        return [marks_by_sample[sample] for sample in tests]

    return rule_tests(samples, workspace.samples.bundles, mark_of, f"{arm}-{seed}")


def _marks(workspace: Workspace, policy: Policy, samples: Sequence[Sample]) -> dict[Sample, int | None]:
    """The marks of greedy rollouts."""
    longest = workspace.plan.max_tokens
    attempts = rolled(policy.write, workspace.prompts, samples, 1, temperature=0.0, max_tokens=longest, seed=0)
    return {attempt.sample: read_mark(attempt.text, attempt.sample.top).mark for attempt in attempts}


def _probed(workspace: Workspace, arm: Arm, start: Arm, seed: int, policy: Policy) -> Iterator[dict[str, Any]]:
    """How far the arm's beliefs moved from its start's, on the start's greedy rollouts."""
    samples = {sample.response_id: sample for sample in workspace.samples.test}
    before = workspace.policy_with(workspace.adapters(start, seed) or [])
    rows = rows_of(workspace.run, Rollouts, of_arm(start, seed, workspace.samples.test))
    for part in TESTED:
        rollouts = [(samples[row["response_id"]], row["text"]) for row in spaced(rows, part)]
        if rollouts:
            reached = beliefs(policy, workspace.prompts, rollouts)
            initial = beliefs(before, workspace.prompts, rollouts)
            yield from probe_rows(arm, seed, part, reached, initial)
