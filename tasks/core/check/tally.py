"""What the checkpoint of a stage found, in numbers."""

from __future__ import annotations

from typing import NamedTuple

from rubricflow.tasks.core.contracts.tables.checks import Checks, Quarantine
from rubricflow.tasks.core.store.warehouse import Run


class Tally(NamedTuple):
    """Rows that were refused, and expectations that warn."""

    quarantined: int
    warnings: int

    def __str__(self) -> str:
        return f"{self.quarantined:,} quarantined, {self.warnings:,} warning{'' if self.warnings == 1 else 's'}"


def tally(run: Run, stage: str) -> Tally:
    """The numbers of a stage's checkpoint; zeros where it was not checked yet."""
    checkpoint = f"check-{stage}"
    if not run.shards(checkpoint):
        return Tally(0, 0)
    quarantined = sum(part.rows for part in run.parts(Quarantine, checkpoint).values())
    checks = run.read(run.ref(Checks, checkpoint), ["severity", "outcome"]).to_pylist()
    return Tally(quarantined, sum(row["severity"] == "warning" and row["outcome"] != "passed" for row in checks))
