"""Two runs on one page: agreement with people and with each other, where they part, and the answers that changed most.

In: rows of figures, differences and changed answers, as evaluate's `compare` makes them. Out: the page, in the folder
of the second run. `write_compared` is the entry point, `page` the content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import Drawing, Page, Section, filled, rendered
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Table, count
from rubricflow.tasks.core.stats.bootstrap import is_few
from rubricflow.tasks.core.stats.metrics import METRICS
from rubricflow.tasks.core.store.warehouse import Run

Row = Mapping[str, Any]
Figures = Mapping[tuple[float, float, float], Sequence[Row]]
"""Scale (min, max, step) → rows as of table `metrics`: people with a, people with b, a with b."""
TEMPLATE = Path(__file__).with_name("changed.html.j2")
LONGEST = 3000
"""Characters of an answer that are shown."""
MOST = 30
"""Rows of a table of parts, the widest apart first."""
PAIRS = {("people", "a"): "A with people", ("people", "b"): "B with people", ("a", "b"): "A with B"}
AGREEMENT = {"qwk": "QWK", "qwk_item_mean": "QWK, mean over items", "exact": "same score", "mae": "mean gap, points"}
TITLES = {metric.name: metric.title for metric in METRICS if metric.name in ("qwk", "exact", "within_1", "mae", "bias")}
"""The statistics whose differences stand on the page; the command prints more."""
LEVEL = ""
"""The slice of levels of run A: no group variable is called so."""


class AgreementGap(NamedTuple):
    """One statistic of agreement with people, b less a, with its 95% interval and p; `responses` were compared,
    `clusters` of what is `resampled` drawn."""

    scale: str
    statistic: str
    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    responses: int
    resampled: str
    clusters: int
    note: str | None


def write_compared(
    runs: tuple[Run, Run],
    studies: tuple[Study, Study],
    figures: Figures,
    differences: Sequence[AgreementGap],
    changed: pd.DataFrame,
    unscored: tuple[int, int],
    worth: Section | None,
) -> tuple[str, Path]:
    """Write `compared-with-<a>.html` into the folder of run b; returns its sentence and where it is.

    figures: scale → rows as of `metrics`, of raters people, a and b. changed: rows of the score frame with the scores
    `a` and `b`, in the order shown. unscored: answers that run a alone scores, and run b alone. worth: what
    their judges cost and are worth, None where nothing is marked.
    """
    a, b = runs
    wanted = pa.array(changed["response_id"], pa.string())
    rows = a.read(a.ref(Responses, "ingest"), ["response_id", "text"], ds.field("response_id").isin(wanted))
    texts = {row["response_id"]: row["text"] for row in rows.to_pylist()}
    items = a.read(a.ref(Items, "ingest"), ["item_id", "question"]).to_pylist()
    questions = {row["item_id"]: row["question"] for row in items}
    answers = [
        shown_answer(row, questions[row["item_id"]], texts[row["response_id"]]) for row in changed.to_dict("records")
    ]
    named = [
        f"run {run.run_id} of study {say.name(study.name)}, judged by {study.judge.backend}"
        for run, study in zip(runs, studies, strict=True)
    ]
    names = " and ".join(dict.fromkeys(say.name(study.name) for study in studies))
    shown = page(names, named, figures, differences, answers, unscored, worth)
    path = b.folder / f"compared-with-{a.run_id}.html"
    b.warehouse.write(path, rendered(shown, ".case > div { grid-column: 1 / -1; }").encode())
    return shown.title, path


def shown_answer(row: Mapping[Any, Any], question: str, text: str) -> dict[str, str]:
    """An answer with both scores, as text to show; people's is '' where there is none."""
    return {
        "response": say.name(row["response_id"]),
        "question": say.visible(question),
        "text": say.cut(say.visible(text), LONGEST),
        "a": say.level(row["a"]),
        "b": say.level(row["b"]),
        "people": "" if pd.isna(row["target"]) else say.level(row["target"]),
    }


def page(
    study: str,
    runs: Sequence[str],
    figures: Figures,
    differences: Sequence[AgreementGap],
    answers: Sequence[Mapping[str, str]],
    unscored: tuple[int, int],
    worth: Section | None = None,
) -> Page:
    """The page. study: what is compared; runs: each in words; answers: those that changed most, as `shown_answer` makes
    them; unscored: how many a alone scores, and b."""
    pooled = {scale: {pair: _of(rows, pair) for pair in PAIRS} for scale, rows in figures.items()}
    exact = [found["a", "b"]["exact"] for found in pooled.values() if "exact" in found["a", "b"]]
    same = sum(round(row["value"] * row["n"]) for row in exact)
    n = sum(row["n"] for row in exact)
    facts = [*zip("AB", runs, strict=True)]
    facts += [
        (f"scored by {letter} alone", say.plural(alone, "answer"))
        for letter, alone in zip("AB", unscored, strict=True)
        if alone
    ]
    most_changed = "The answers whose scores changed most" if answers else "No answer has another score"
    return Page(
        kind="Comparison",
        study=study,
        title=_sentence(differences, same, n),
        lead=f"They give the same score to {same:,} of the {say.plural(n, 'answer')} that both score.",
        sections=(
            _agreement(pooled, differences),
            *((worth,) if worth else ()),
            _parting(figures),
            Section("answers", "The answers: which changed most", most_changed, body=filled(TEMPLATE, answers=answers)),
            Section("runs", "", "The two runs", facts=facts),
        ),
    )


Pooled = Mapping[tuple[str, str], Mapping[str, Row]]
"""Pair of raters → metric → its row over all answers on one scale."""


def _of(rows: Sequence[Row], pair: tuple[str, str], part: str = "all", value: str = "all") -> dict[str, Row]:
    """Metric → row, of one pair in one part."""
    wanted = (*pair, part, value)
    keys = ("rater_a", "rater_b", "slice", "value_of")
    return {row["metric"]: row for row in rows if tuple(row[key] for key in keys) == wanted}


def _sentence(differences: Sequence[AgreementGap], same: int, n: int) -> str:
    """What came of it, without a full stop."""
    if same == n:
        return f"Both runs give the same score to all {say.plural(n, 'answer')}"
    qwk = [row for row in differences if row.statistic == "qwk" and row.estimate is not None]
    if not qwk:
        return f"The runs give the same score to {same:,} of {say.plural(n, 'answer')}"
    clear = [row for row in qwk if row.low is not None and row.high is not None and row.low * row.high > 0]
    row = max(clear or qwk, key=lambda row: (row.responses, abs(row.estimate or 0.0)))
    on = f" on the scale {row.scale}" if len(qwk) > 1 else ""
    ends = "" if row.low is None or row.high is None else f" ({say.signed(row.low)} to {say.signed(row.high)})"
    gap = f"{say.signed(row.estimate or 0.0)} QWK{ends} on {say.plural(row.responses, 'answer')}"
    if not clear:
        return f"Which run agrees better with people cannot be told{on}: B less A is {gap}"
    return f"Run {'B' if (row.estimate or 0.0) > 0 else 'A'} agrees better with people{on}: B less A is {gap}"


def _cell(row: Row | None) -> Cell:
    if row is None:
        return Cell(None)
    return Cell(row["value"], row["low"], row["high"], digits=2, ends="interval", clusters=row["clusters"])


def _scale(scale: tuple[float, float, float]) -> str:
    return f"{say.level(scale[0])} to {say.level(scale[1])}"


def _agreement(pooled: Mapping[tuple[float, float, float], Pooled], differences: Sequence[AgreementGap]) -> Section:
    several = len(pooled) > 1
    scales = ("scale",) if several else ()
    rows = list[Cells]()
    compared = list[Cells]()
    drawings = []
    for scale, pairs in pooled.items():
        bars = []
        for pair, found in pairs.items():
            if not found:
                continue
            names = (PAIRS[pair], _scale(scale))[: 1 + several]
            n = next(iter(found.values()))["n"]
            rows.append((*names, count(n), *(_cell(found.get(metric)) for metric in AGREEMENT)))
            if (row := found.get("qwk")) and row["value"] is not None:
                bars.append(Bar(PAIRS[pair], row["value"], row["low"], row["high"]))
        title = f"QWK on the scale {_scale(scale)}; lines are 95% intervals"
        drawings += [Drawing(title, bar_chart(Panel(title, tuple(bars))))] if bars else []
    for gap in differences:
        if gap.statistic.partition(",")[0] in TITLES:
            names = (TITLES.get(gap.statistic, "Agreement (QWK, mean over items)"), gap.scale)[: 1 + several]
            cell = Cell(gap.estimate, gap.low, gap.high, digits=3, ends="interval", clusters=gap.clusters)
            compared.append((*names, count(gap.responses), cell, Cell(gap.p)))
    gap_header = ("", *scales, "answers", "B less A", "p")
    return Section(
        "agreement",
        "Agreement: with people, and with each other",
        "How far each run agrees with people, and the two with each other",
        lead="With people on the answers that both runs hold out; with each other on all that both score. "
        "QWK is 1 where all agree, and 0 where they agree as by chance. Numbers in brackets are 95% intervals.",
        missing="" if differences else "no answer that both runs hold out and score has a score by people",
        drawings=tuple(drawings),
        tables=(
            Table("agreement", "Agreement", ("", *scales, "answers", *AGREEMENT.values()), tuple(rows)),
            Table("difference", "Agreement with people, B less A", gap_header, tuple(compared)),
        ),
        notes=tuple(dict.fromkeys(row.note for row in differences if row.note and not is_few(row.clusters))),
    )


def _parting(figures: Figures) -> Section:
    """Items, levels of A and groups, the widest apart first."""
    several = len(figures) > 1
    parts: dict[str, list[tuple[float, Cells]]] = defaultdict(list)
    for scale, rows in figures.items():
        for part, value in dict.fromkeys((row["slice"], row["value_of"]) for row in rows):
            found = _of(rows, ("a", "b"), part, value)
            if part in ("all", "type") or "bias" not in found:
                continue
            bias = found["bias"]
            names = (say.name(value), _scale(scale))[: 1 + several]
            # Levels stand in their order; of all else the widest apart comes first.
            place = float(value) if part == LEVEL else -abs(bias["value"] or 0.0)
            parts[part].append((place, (*names, count(bias["n"]), _cell(found["exact"]), _cell(bias))))
    tables = []
    for part, lines in parts.items():
        lines.sort(key=lambda line: (line[0], str(line[1][0])))
        notes = (f"{say.plural(len(lines) - MOST, 'more row')}, less far apart.",) if len(lines) > MOST else ()
        title = {"item": "Question", LEVEL: "Score in run A"}.get(part, f"Group: {say.name(part)}")
        header = (title, *(("scale",) if several else ()), "answers", "same score", "B less A, points")
        tables.append(Table(part, title, header, tuple(cells for _, cells in lines[:MOST]), notes))
    title = "The runs part nowhere on average"
    items = [cells for _, cells in parts.get("item", [])]
    if items and isinstance(change := items[0][-1], Cell) and change.value:
        where = f"on {items[0][0]} " if len(items) > 1 else ""
        gap = f"B is {say.number(abs(change.value))} points {'higher' if change.value > 0 else 'lower'}"
        title = f"The runs are furthest apart {where}where {gap} on average"
    return Section(
        "parting",
        "Where they part: questions, levels, groups",
        title,
        lead="On all answers that both runs score. “B less A” is the mean change of the score; numbers in brackets are "
        "95% intervals.",
        tables=tuple(tables),
    )
