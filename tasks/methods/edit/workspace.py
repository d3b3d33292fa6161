"""What the phases of one run share: the plan, the samples, the policies, and rollouts as rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.methods import STARTS, Edit
from rubricflow.tasks.core.contracts.tables.edit import Arm, Rollouts
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backend import KeyOf
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import looking, open_replies
from rubricflow.tasks.core.llm.request import Message, Request
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run, Tables
from rubricflow.tasks.methods.edit.belief import Write
from rubricflow.tasks.methods.edit.phases import rolled, rollout_row
from rubricflow.tasks.methods.edit.policy import Policy, Prompts
from rubricflow.tasks.methods.edit.revise import FailedRollout
from rubricflow.tasks.methods.edit.rollout import GradingSamples, Sample

STAGE = "edit"
CHUNK = 128
"""Responses that are worked on together; after a kill at most so many of one phase are worked on again."""
Fill = Callable[[str, Sequence[Sample]], Tables]
"""Name of a shard and its samples → its tables."""


_EVERY_S, _SILENT_S = 5.0, 30.0
"""Seconds between two lines about a phase, where it goes on and where nothing is reached."""


class TrainingProgress:
    """Says a line now and then (plain text, so that it reads in any log)."""

    def __init__(self, label: str, total: int, done: int | None = None) -> None:
        """done: what an earlier session did, which does not count for the speed; None for what is reached first."""
        self._label, self._total, self._before = label, total, done
        self._done = done or 0
        self._start = self._last = time.monotonic()

    def reached(self, done: int) -> None:
        """So many are done now; a line if the last one is long enough ago, or nothing is left."""
        if self._before is None:
            self._before, self._start = done, time.monotonic()
        self._done = done
        self.look(0.0 if done >= self._total else _EVERY_S)

    def look(self, after: float = _SILENT_S) -> None:
        """The line, where the last one is so many seconds ago."""
        now = time.monotonic()
        if now - self._last < after:
            return
        self._last = now
        rate = (self._done - (self._before or 0)) / max(now - self._start, 1e-9)
        left = f", {(self._total - self._done) / rate / 60:.0f} min left" if rate else ""
        print(f"edit: {self._label} {self._done:,} of {self._total:,}, {rate:.3g}/s{left}")


@dataclass(frozen=True)
class Workspace:
    """The trainings of one run."""

    run: Run
    plan: Edit
    base: Path
    """Folder of the study file."""
    samples: GradingSamples
    key_of: KeyOf = os.environ.get

    @cached_property
    def prompts(self) -> Prompts:
        """The study's set of prompts."""
        return Prompts(self.plan.prompts)

    @cached_property
    def policy(self) -> Policy:
        """The policy as it came. Trainings borrow it and give it back as it was."""
        return self._load([])

    @contextmanager
    def reviser(self) -> Iterator[Write | None]:
        """Who revises in the policy's place; None for the policy itself."""
        by = self.plan.revising.by
        if by is None:
            yield None
            return
        with open_replies(self.run.warehouse.replies) as replies:
            backend = open_backend(by, self.base, replies, self.key_of)

            def write(prompts: Sequence[str], **_: Any) -> list[str]:
                """'' where there is no reply, which is then refused as an empty one is."""
                asked = partial(Request, role="revise", subject="a rollout", sampling=by.sampling)
                requests = [asked(messages=(Message("user", prompt),)) for prompt in prompts]
                found = ask(requests, backend, replies, lambda _, reply: Checked(reply.text, ()))
                return [outcome.value or "" for outcome in found]

            yield write

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
) -> list[Record]:
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


# The shards of the stage: what a phase reads of those before it, and how it passes over those that are there.


def chunks(name: str, samples: Sequence[Sample]) -> list[tuple[str, Sequence[Sample]]]:
    """Shards of a phase with their samples."""
    starts = range(0, len(samples), CHUNK)
    return [(f"{name}-{number:05d}", samples[start : start + CHUNK]) for number, start in enumerate(starts)]


def in_chunks(run: Run, name: str, samples: Sequence[Sample], fill: Fill, label: str, each: int = 1) -> None:
    """Fill every chunk that is not done. label, each: the line about it, and what a sample counts in it."""
    todo = [(shard, part) for shard, part in chunks(name, samples) if not run.done(STAGE, shard)]
    done = len(samples) - sum(len(part) for _, part in todo)
    progress = TrainingProgress(label, len(samples) * each, done * each)
    with looking(progress.look), asking_together() as piece:
        for shard, part in todo:
            with piece():
                run.commit(STAGE, shard, fill(shard, part))
                done += len(part)
                progress.reached(done * each)


def sampling_seed(shard: str) -> int:
    """The seed of a shard's sampling: by its name, so that it is the same whatever was done before it."""
    return int(digest_of([STAGE, shard])[:8], 16)


def table_of(run: Run, row: type[Row], where: pc.Expression | None = None) -> pa.Table:
    """Rows of this stage, shard by shard."""
    return run.table(row, STAGE, where=where)


def rows_of(run: Run, row: type[Row], where: pc.Expression | None = None) -> list[Fields]:
    """`table_of` as records."""
    return list(table_of(run, row, where).to_pylist())


def of_arm(arm: Arm, seed: int, samples: Sequence[Sample] | None = None) -> pc.Expression:
    """Rows of an arm and a seed, on these samples where they are given."""
    condition = (pc.field("arm") == arm) & (pc.field("seed") == seed)
    if samples is None:
        return condition
    return condition & pc.field("response_id").isin([sample.response_id for sample in samples])
