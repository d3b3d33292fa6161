"""The last step of every report's stage: print where things are, and leave the same in the Prefect UI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rubricflow.tasks.core.display.table import Table, as_records, show
from rubricflow.tasks.core.monitor.artifacts import leave_table, leave_text
from rubricflow.tasks.core.store.warehouse import Run


def write_page(run: Run, name: str, page: str) -> Path:
    """Write a report into the run's folder; returns where it is."""
    path = run.folder / name
    run.warehouse.write(path, page.encode())
    return path


def publish(run: Run, kind: str, sentence: str, table: Table, where: Mapping[str, object], page: Path | None) -> str:
    """Print a sentence, a table and where the page is; leave them as artifacts of the study; returns the sentence.

    kind: what the keys of the artifacts begin with; where: further places and facts, for the artifact alone.
    """
    facts = {"run": run.run_id, **where, **({"report": page} if page else {})}
    facts = {name: run.warehouse.shown(value) for name, value in facts.items()}
    lines = [f"# {sentence}", "", *(f"- {name}: `{value}`" for name, value in facts.items())]
    leave_table(run.run_id, f"{kind}-{table.id}", as_records(table))
    leave_text(run.run_id, f"{kind}-summary", "\n".join(lines))
    print(f"{sentence}.")
    show([table])
    for name in ("run", "report") if page else facts:
        print(f"{name}: {facts[name]}")
    return sentence
