"""What the arms rest on: their training and its cost, one by one, and the settings of all."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.contracts.settings.edit import ARMS
from tasks.display import say
from tasks.display.section import Section
from tasks.display.table import Cell, Cells, Table, count
from tasks.report.edit.figures import Arms
from tasks.report.edit.inputs import EditView

PROBE = {"kl": "KL", "jsd": "JSD", "jsd_early": "early", "jsd_mid": "middle", "jsd_late": "late"}
"""What `arm_metrics` calls probe_…, in nats; JSD also by third of the chain."""


def section(view: EditView) -> Section:
    """Who was trained how, and how long it took."""
    return Section(
        "made",
        "How it was made",
        "What the arms rest on and what they cost",
        facts=tuple(_facts(view)),
        tables=(_trained(view.policies), _written(view.rollouts)),
    )


def divergence(arms: Arms, part: str) -> Table:
    """Table 7: how far each arm of RL has moved from the frozen policy that its belief is read from."""
    rows: list[Cells] = []
    for arm in arms.names:
        cells = [arms.figure(arm, part, f"probe_{name}", digits=4) for name in PROBE]
        if any(cell.value is not None for cell in cells):
            rows.append((ARMS[arm], *cells))
    return Table(f"divergence-{part}", f"{part.capitalize()} questions", ("Arm", *PROBE.values()), tuple(rows))


def _trained(policies: pa.Table) -> Table:
    rows: list[Cells] = []
    for row in policies.to_pylist():
        start = ARMS[row["start"]] if row["start"] else "–"
        numbers = (count(row[name]) for name in ("parameters", "updates", "demonstrations"))
        note = say.visible(row["note"] or "")
        rows.append((ARMS[row["arm"]], str(row["seed"]), start, *numbers, Cell(row["seconds"], digits=1), note))
    header = ("Arm", "seed", "starts from", "numbers trained", "updates", "texts", "seconds", "note")
    return Table("policies", "Training", header, tuple(rows))


def _written(rollouts: pa.Table) -> Table:
    """What writing rollouts took, by arm and split."""
    groups = rollouts.select(["arm", "part", "steps", "seconds"]).group_by(["arm", "part"], use_threads=False)
    sums = groups.aggregate([("steps", "mean"), ("seconds", "sum"), ("steps", "count")]).to_pylist()
    rows: list[Cells] = []
    for arm in ARMS:
        for row in sums:
            if row["arm"] == arm:
                costs = Cell(row["steps_mean"], digits=1), Cell(row["seconds_sum"], digits=1)
                rows.append((ARMS[arm], row["part"], count(row["steps_count"]), *costs))
    return Table("rollouts", "Rollouts", ("Arm", "split", "rollouts", "mean steps", "seconds"), tuple(rows))


def _facts(view: EditView) -> Iterator[tuple[str, str]]:
    settings = view.settings
    revising, tuning, learning = settings.revising, settings.fine_tuning, settings.reinforcement
    yield "run", view.run_id
    yield "policy", f"{say.name(settings.policy)}, {settings.prompts} prompts, at most {settings.max_tokens} tokens"
    yield "seeds", ", ".join(map(str, settings.seeds))
    yield "adapter", f"LoRA, rank {settings.adapter.rank}, alpha {settings.adapter.alpha}"
    yield (
        "revising",
        f"{revising.rollouts} rollouts, k = {revising.candidates}, weak under quantile {say.level(revising.weak_below)}"
        f", {revising.continuations} continuations, at most {say.share(revising.natural)} natural",
    )
    yield (
        "fine-tuning",
        f"{tuning.epochs} epochs, rate {tuning.learning_rate:g}, batch {tuning.batch_size}",
    )
    yield (
        "RL",
        f"{learning.steps} updates of {learning.responses} responses × {learning.group} rollouts, rate "
        f"{learning.learning_rate:g}, KL weight {learning.divergence:g}, tolerance β {learning.tolerance:g} marks, "
        f"shaping γ {learning.shaping:g}",
    )
