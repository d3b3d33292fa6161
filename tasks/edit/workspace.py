"""What the phases of one run share: the plan, the samples, the policies, and rollouts as rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.contracts.errors import BackendError
from tasks.contracts.extras import install
from tasks.contracts.settings.edit import STARTS, Arm, Edit
from tasks.contracts.tables.edit import Rollouts
from tasks.edit.phases import rolled, rollout_row
from tasks.edit.policy import Policy
from tasks.edit.prompt import Prompts
from tasks.edit.revise import FailedRollout
from tasks.edit.rollout import Sample
from tasks.edit.samples import GradingSamples
from tasks.edit.shards import of_arm, rows_of, sampling_seed
from tasks.store.warehouse import Run


@dataclass(frozen=True)
class Workspace:
    """The trainings of one run."""

    run: Run
    plan: Edit
    base: Path
    """Folder of the study file."""
    samples: GradingSamples

    @cached_property
    def prompts(self) -> Prompts:
        """The study's set of prompts."""
        return Prompts(self.plan.prompts)

    @cached_property
    def policy(self) -> Policy:
        """The policy as it came. Trainings borrow it and give it back as it was."""
        return self._load([])

    def policy_with(self, adapters: Sequence[Path]) -> Policy:
        """The policy with the adapters of an arm."""
        return self._load(adapters) if adapters else self.policy

    def folder(self, arm: Arm, seed: int) -> Path:
        """Where an arm is trained."""
        return self.run.folder / "edit" / f"{arm}-{seed}"

    def adapters(self, arm: Arm, seed: int) -> list[Path] | None:
        """The adapters that make up an arm, in order; None for one that was not trained."""
        if arm == "base":
            return []
        before = self.adapters(STARTS.get(arm, "base"), seed)
        folder = self.folder(arm, seed)
        if not (folder / "done.json").exists():  # another machine may have trained it
            self.run.warehouse.fetch_folder(folder)
        return [*before, folder / "adapter"] if before is not None and (folder / "done.json").exists() else None

    def _load(self, adapters: Sequence[Path]) -> Policy:
        folder = self.base / self.plan.policy
        if find_spec("trl") is None or find_spec("peft") is None:
            raise BackendError(f"training a policy needs the extras: {install('embedded', 'train')}")
        rounds = self.plan.arithmetic == "bfloat16"
        loaded = Policy.load(folder if folder.is_dir() else self.plan.policy, adapters, rounds)
        # Its name tells trainings apart, and says nothing of where it lies.
        return replace(loaded, name="/".join([self.plan.policy, *(path.parent.name for path in adapters)]))


def written(
    workspace: Workspace,
    shard: str,
    arm: Arm,
    seed: int,
    policy: Policy,
    samples: Sequence[Sample],
    count: int = 1,
    temperature: float = 0.0,
) -> list[dict[str, Any]]:
    """Rollouts newly written, as rows: several of each sample, or the greedy one."""
    start = time.monotonic()
    attempts = rolled(
        policy.write,
        workspace.prompts,
        samples,
        count,
        temperature=temperature,
        max_tokens=workspace.plan.max_tokens,
        seed=sampling_seed(shard),
    )
    seconds = (time.monotonic() - start) / len(attempts)
    part = workspace.samples.part
    return [rollout_row(arm, seed, part[attempt.sample.response_id], attempt, seconds) for attempt in attempts]


def attempts_of(workspace: Workspace, seed: int, samples: Sequence[Sample]) -> list[FailedRollout]:
    """The base policy's rollouts of training samples."""
    sample_of = {sample.response_id: sample for sample in samples}
    attempts = []
    for row in rows_of(workspace.run, Rollouts, of_arm("base", seed, samples)):
        is_closed = row["unmarked"] == "closed"
        attempts.append(FailedRollout(sample_of[row["response_id"]], row["sample"], row["text"], is_closed))
    return attempts
