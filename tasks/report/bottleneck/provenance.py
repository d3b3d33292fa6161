"""What the graders rest on: their training, one by one, and the settings of all."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from tasks.display import say
from tasks.display.section import Section
from tasks.display.table import Cell, Cells, Table, count
from tasks.report.bottleneck.figures import grader_name
from tasks.report.bottleneck.inputs import BottleneckView
from tasks.report.bottleneck.traces import exported


def section(view: BottleneckView) -> Section:
    """Who was trained how."""
    rows: list[Cells] = []
    for row in view.models.filter(pc.equal(view.models["setting"], "")).to_pylist():
        epochs = f"{row['epochs_1']} and {row['epochs_2']}" if row["epochs_2"] else f"{row['epochs_1']}"
        temperature = Cell(row["grade_temperature"], digits=2)
        numbers = count(row["parameters"]), epochs, Cell(row["validation"]), temperature, Cell(row["seconds"], digits=1)
        rows.append((grader_name(row["method"]), str(row["seed"]), *numbers))
    header = ("Grader", "seed", "numbers trained", "epochs", "validation macro-F1", "temperature", "seconds")
    return Section(
        "made",
        "How it was made",
        "What the graders rest on",
        facts=tuple(_facts(view)),
        tables=(Table("models", "Graders", header, tuple(rows)),),
    )


def _facts(view: BottleneckView) -> Iterator[tuple[str, str]]:
    settings, training = view.settings, view.settings.training
    yield "run", view.run_id
    if len(view.models):
        backbones = sorted(set(view.models["backbone"].to_pylist()))
        yield "text encoder", f"{', '.join(map(say.name, backbones))}, {settings.encoder}"
    if best := exported(view.models):
        yield "exported", f"{grader_name(best['method'])}, seed {best['seed']}, {(best['digest'] or '')[:12]}"
    yield "concept labels", say.name(settings.labels)
    yield "grades", "every score of the scale" if settings.bands is None else f"{settings.bands} equal bands"
    yield "seeds", ", ".join(map(str, settings.seeds))
    weights = ("concept_weight", "ranking_weight", "task_weight", "denoising_weight", "sparsity_weight")
    yield (
        "weights of the losses",
        ", ".join(f"{say.worded(name)} {say.level(getattr(training, name))}" for name in weights),
    )
    yield "batch, epochs, patience", f"{training.batch_size}, at most {training.epochs}, {training.patience}"
