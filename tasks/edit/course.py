"""The course of a run: what is proved before hours go into it, and what every arm then goes through."""

from __future__ import annotations

from tasks.contracts.settings.edit import TUNED
from tasks.edit.checklist import room
from tasks.edit.material import gather, revise_for
from tasks.edit.rule_edits import edits
from tasks.edit.testing import measure
from tasks.edit.training import train_arm
from tasks.edit.tuning import fits
from tasks.edit.workspace import Workspace


def prove(workspace: Workspace) -> None:
    """Refuse at once what would fail after hours: InputError for a prompt that is longer than the policy reads, or a
    scheme that rule faithfulness cannot edit."""
    plan, samples = workspace.plan, workspace.samples
    revises = any(arm in TUNED for arm in plan.arms_in_order())
    for sample in (*samples.train, *samples.test):
        # The longest prompt is the reviser's: it holds a rollout and a checklist.
        added = 2 * plan.max_tokens + room(sample.scheme, plan.max_tokens) if revises else plan.max_tokens
        tokens = len(workspace.policy.prompt_ids(workspace.prompts.grade(sample))) + added
        fits(workspace.policy, tokens, f"response '{sample.response_id}' with its rollouts")
    if plan.faithfulness:
        for item_id in dict.fromkeys(sample.item_id for sample in samples.test):
            edits(samples.bundles[item_id])
    left_out = f", {samples.unlabelled:,} without a target score left out" if samples.unlabelled else ""
    print(f"edit: {len(samples.train):,} responses to train on{left_out}, {len(samples.test):,} to test on")


def go_through(workspace: Workspace, seed: int) -> None:
    """Train and measure every arm with a seed, each after its own start. Base is the same for all seeds but the
    sampling."""
    gather(workspace, seed)
    for arm in workspace.plan.arms_in_order():
        if arm in TUNED:
            revise_for(workspace, arm, seed)
        if arm != "base" or seed == workspace.plan.seeds[0]:
            train_arm(workspace, arm, seed)
            measure(workspace, arm, seed)
