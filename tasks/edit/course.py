"""The course of a run: what is proved before hours go into it, and what every arm then goes through."""

from __future__ import annotations

from tasks.contracts.settings.edit import TUNED
from tasks.edit.checklist import room
from tasks.edit.material import gather, revise_for
from tasks.edit.rule_edits import edits
from tasks.edit.testing import measure
from tasks.edit.training import train_arm
from tasks.edit.tuning import fits
from tasks.edit.work import Work


def prove(work: Work) -> None:
    """Refuse at once what would fail after hours: InputError for a prompt that is longer than the policy reads, or a
    scheme that rule faithfulness cannot edit."""
    plan, cases = work.plan, work.cases
    revises = any(arm in TUNED for arm in plan.wanted())
    for sample in (*cases.train, *cases.test):
        # The longest prompt is the reviser's: it holds a rollout and a checklist.
        more = 2 * plan.max_tokens + room(sample.scheme, plan.max_tokens) if revises else plan.max_tokens
        tokens = len(work.policy.prompt_ids(work.prompts.grade(sample))) + more
        fits(work.policy, tokens, f"response '{sample.response_id}' with its rollouts")
    if plan.faithfulness:
        for item_id in dict.fromkeys(sample.item_id for sample in cases.test):
            edits(cases.bundles[item_id])
    left = f", {cases.unlabelled:,} without a target score left out" if cases.unlabelled else ""
    print(f"edit: {len(cases.train):,} responses to train on{left}, {len(cases.test):,} to test on")


def go_through(work: Work, seed: int) -> None:
    """Train and measure every arm with a seed, each after its own start. Base is the same for all seeds but the
    sampling."""
    gather(work, seed)
    for arm in work.plan.wanted():
        if arm in TUNED:
            revise_for(work, arm, seed)
        if arm != "base" or seed == work.plan.seeds[0]:
            train_arm(work, arm, seed)
            measure(work, arm, seed)
