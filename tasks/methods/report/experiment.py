"""An experiment's tables and figures as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart, legend, share_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Page, Section
from rubricflow.tasks.core.display.table import Cell, LevelShares, Table

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
    # The table with names and notes that hide nothing: they are an experiment file's own words.
    rows = tuple(tuple(cell if isinstance(cell, Cell) else say.visible(cell) for cell in row) for row in table.rows)
    header, notes = (tuple(map(say.visible, texts)) for texts in (table.header, table.notes))
    shown = table._replace(title=say.visible(table.title), header=header, rows=rows, notes=notes)
    drawings = []
    for figure in table.figures:
        title = say.visible(figure.title)
        if isinstance(figure, LevelShares):
            arms = {say.visible(arm): shares for arm, shares in figure.arms.items()}
            shares = figure._replace(title=title, arms=arms)
            drawings.append(Drawing(title, share_chart(shares), legend(shares)))
        elif figure.bars:
            bars = tuple(bar._replace(label=say.visible(bar.label)) for bar in figure.bars)
            drawings.append(Drawing(title, bar_chart(figure._replace(title=title, bars=bars))))
        else:
            drawings.append(Drawing(title, Markup('<p class="missing">Nothing to draw.</p>')))
    return Section(table.id, "", shown.title, drawings=drawings, tables=(shown,))
