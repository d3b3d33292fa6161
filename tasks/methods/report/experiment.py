"""An experiment's tables and figures as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart, legend, share_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Page, Section
from rubricflow.tasks.core.display.table import LevelShares, Table

SIMULATED = (
    "The rater of this experiment is simulated: it knows the human scores and errs as it is told to. The tables show "
    "that the pipeline measures what it should; they say nothing about any model."
)


def page(name: str, contrast: str, tables: Sequence[Table], runs: Mapping[str, str], simulated: bool) -> str:
    """The tables and figures as a whole HTML document that needs no other file.

    contrast: what the experiment was run to find out, in one sentence; '' where it sets no arm against another.
    """
    facts = tuple((say.visible(arm), run) for arm, run in runs.items())
    content = Page(
        kind="Experiment",
        study=name,
        title=say.visible(contrast) or f"{len(tables)} tables over {len(runs)} runs",
        sections=(*map(_section, tables), Section("runs", "", "Runs", facts=facts)),
        missing=SIMULATED if simulated else "",
    )
    return rendered(content)


def _section(table: Table) -> Section:
    # Names and notes are an experiment file's own words.
    shown: Table = _visible(table)
    drawings = []
    for figure in shown.figures:
        if isinstance(figure, LevelShares):
            drawings.append(Drawing(figure.title, share_chart(figure), legend(figure)))
        elif figure.bars:
            drawings.append(Drawing(figure.title, bar_chart(figure)))
        else:
            drawings.append(Drawing(figure.title, Markup('<p class="missing">Nothing to draw.</p>')))
    return Section(shown.id, "", shown.title, drawings=drawings, tables=(shown,))


def _visible(value: Any) -> Any:
    """Tables, cells and figures with texts that hide nothing."""
    if isinstance(value, str):
        return say.visible(value)
    if isinstance(value, dict):
        return {say.visible(key): _visible(content) for key, content in value.items()}
    if not isinstance(value, tuple | list):
        return value
    parts = [_visible(part) for part in value]
    kind: Any = type(value)
    return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
