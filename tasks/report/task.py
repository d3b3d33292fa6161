"""What every report's door does last: says where things are, and leaves the same in the Prefect UI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from tasks.display.printed import show
from tasks.display.table import Table, as_records
from tasks.store.warehouse import Run


def tell(run: Run, kind: str, table: Table, where: Mapping[str, object], page: Path | None = None) -> None:
    """Print a table and where everything is; leave both, and a link to the page, as artifacts whose keys begin with
    `kind`."""
    facts = {"run": run.run_id, **where, **({"report": page} if page else {})}
    if page:
        create_link_artifact(page.resolve().as_uri(), link_text="report", key=f"{kind}-report", description=run.run_id)
    create_table_artifact(as_records(table), key=f"{kind}-{table.id}")
    create_markdown_artifact("\n".join(f"- {name}: `{value}`" for name, value in facts.items()), key=f"{kind}-summary")
    show([table])
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
