"""What the page of two runs says: agreement with people and with each other, where they part, what changed most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Table, count
from rubricflow.tasks.core.stats.bootstrap import is_few
from rubricflow.tasks.core.stats.metrics import METRICS

Figures = Mapping[tuple[float, float, float], Sequence[Mapping[str, Any]]]
"""Scale (min, max, step) → rows as of table `metrics`: people with a, people with b, a with b."""
PAIRS = {("people", "a"): "A with people", ("people", "b"): "B with people", ("a", "b"): "A with B"}
AGREEMENT = {"qwk": "QWK", "qwk_item_mean": "QWK, mean over items", "exact": "same score", "mae": "mean gap, points"}
TITLES = {metric.name: metric.title for metric in METRICS if metric.name in ("qwk", "exact", "within_1", "mae", "bias")}
"""The statistics whose differences stand on the page; the command prints more."""
PARTING = {"exact": "same score", "bias": "B less A, points"}
LEVEL = ""
"""The slice of levels of run A: no group variable is called so."""
MOST = 30
"""Rows of a table of parts, the widest apart first."""


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


class ComparedRun(NamedTuple):
    """A run, its study's name and what judged."""

    run_id: str
    study: str
    backend: str


class ChangedAnswer(NamedTuple):
    """An answer with both scores, as text to show; people's is '' where there is none."""

    response: str
    item: str
    question: str
    text: str
    a: str
    b: str
    change: str
    people: str


def page(
    runs: Sequence[ComparedRun],
    figures: Figures,
    differences: Sequence[AgreementGap],
    changed: Markup,
    unscored: tuple[int, int],
) -> Page:
    """The page. changed: the answers that changed most, '' where none did; unscored: how many a alone scores, and b."""
    pooled = {scale: {pair: _of(rows, pair) for pair in PAIRS} for scale, rows in figures.items()}
    same, n = _same(pooled.values())
    sections = [
        _agreement(figures, pooled, differences),
        _parting(figures),
        Section("answers", "The answers: which changed most", "The answers whose scores changed most", body=changed)
        if changed.strip()
        else Section("answers", "The answers: which changed most", "No answer has another score"),
        _which(runs, unscored),
    ]
    return Page(
        kind="Comparison",
        study=" and ".join(dict.fromkeys(say.name(run.study) for run in runs)),
        title=_sentence(differences, same, n),
        lead=f"A is the run {runs[0].run_id}, B the run {runs[1].run_id}. {_shares(same, n)}",
        keys=tuple(_keys(pooled)),
        sections=tuple(sections),
    )


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


def _shares(same: int, n: int) -> str:
    return f"They give the same score to {same:,} of the {say.plural(n, 'answer')} that both score."


def _same(pooled: Iterable[Mapping[tuple[str, str], Mapping[str, Any]]]) -> tuple[int, int]:
    """Answers with the same score in both, and answers that both score."""
    rows = [found["exact"] for figures in pooled if "exact" in (found := figures["a", "b"])]
    return sum(round(row["value"] * row["n"]) for row in rows), sum(row["n"] for row in rows)


def _of(
    rows: Sequence[Mapping[str, Any]], pair: tuple[str, str], part: str = "all", value: str = "all"
) -> dict[str, Any]:
    """Metric → row, of one pair in one part."""
    return {
        row["metric"]: row
        for row in rows
        if (row["rater_a"], row["rater_b"]) == pair and (row["slice"], row["value_of"]) == (part, value)
    }


def _cell(row: Mapping[str, Any] | None, digits: int = 2) -> Cell:
    if row is None:
        return Cell(None)
    return Cell(row["value"], row["low"], row["high"], digits=digits, ends="interval", clusters=row["clusters"])


def _scale(scale: tuple[float, float, float]) -> str:
    return f"{say.level(scale[0])} to {say.level(scale[1])}"


def _keys(pooled: Mapping[tuple[float, float, float], Mapping[tuple[str, str], Mapping[str, Any]]]) -> Iterator[Key]:
    if len(pooled) > 1:
        return
    for pair, figures in next(iter(pooled.values())).items():
        row = figures.get("qwk")
        if row is None or row["value"] is None:
            continue
        ends = "" if row["low"] is None else f"{say.number(row['low'])} to {say.number(row['high'])}"
        yield Key(PAIRS[pair], f"{say.number(row['value'])} QWK", (ends, say.plural(row["n"], "answer")))


def _agreement(
    figures: Figures,
    pooled: Mapping[tuple[float, float, float], Mapping[tuple[str, str], Mapping[str, Any]]],
    differences: Sequence[AgreementGap],
) -> Section:
    several = len(figures) > 1
    rows: list[Cells] = []
    drawings = []
    for scale, pairs in pooled.items():
        bars = []
        for pair, name in PAIRS.items():
            if not (found := pairs[pair]):
                continue
            n = next(iter(found.values()))["n"]
            names = (name, _scale(scale)) if several else (name,)
            rows.append((*names, count(n), *(_cell(found.get(metric)) for metric in AGREEMENT)))
            if (row := found.get("qwk")) and row["value"] is not None:
                bars.append(Bar(name, row["value"], row["low"], row["high"]))
        title = f"QWK on the scale {_scale(scale)}; lines are 95% intervals"
        if bars:
            drawings.append(Drawing(title, bar_chart(Panel(title, tuple(bars)))))
    scales = ("scale",) if several else ()
    compared = tuple(
        (
            TITLES.get(row.statistic, "Agreement (QWK, mean over items)"),
            *((row.scale,) if several else ()),
            count(row.responses),
            Cell(row.estimate, row.low, row.high, digits=3, ends="interval", clusters=row.clusters),
            Cell(row.p),
        )
        for row in differences
        if row.statistic.partition(",")[0] in TITLES
    )
    missing = "" if differences else "no answer that both runs hold out and score has a score by people"
    return Section(
        "agreement",
        "Agreement: with people, and with each other",
        "How far each run agrees with people, and the two with each other",
        lead="With people on the answers that both runs hold out; with each other on all that both score. "
        "QWK is 1 where all agree, and 0 where they agree as by chance. Numbers in brackets are 95% intervals.",
        missing=missing,
        drawings=tuple(drawings),
        tables=(
            Table("agreement", "Agreement", ("", *scales, "answers", *AGREEMENT.values()), tuple(rows)),
            Table("difference", "Agreement with people, B less A", ("", *scales, "answers", "B less A", "p"), compared),
        ),
        notes=tuple(dict.fromkeys(row.note for row in differences if row.note and not is_few(row.clusters))),
    )


def _parting(figures: Figures) -> Section:
    """Items, levels of A and groups, the widest apart first."""
    several = len(figures) > 1
    parts: dict[str, list[tuple[float, Cells]]] = {}
    for scale, rows in figures.items():
        for part, value in dict.fromkeys((row["slice"], row["value_of"]) for row in rows):
            found = _of(rows, ("a", "b"), part, value)
            if part in ("all", "type") or "bias" not in found:
                continue
            names = (say.name(value), *((_scale(scale),) if several else ()))
            cells = (*names, count(found["bias"]["n"]), *(_cell(found[metric]) for metric in PARTING))
            # Levels stand in their order; of all else the widest apart comes first.
            place = float(value) if part == LEVEL else -abs(found["bias"]["value"] or 0.0)
            parts.setdefault(part, []).append((place, cells))
    tables = []
    for part, rows_of_part in parts.items():
        rows_of_part.sort(key=lambda row: (row[0], str(row[1][0])))
        left = len(rows_of_part) - MOST
        notes = (f"{say.plural(left, 'more row')}, less far apart.",) if left > 0 else ()
        title = {"item": "Question", LEVEL: "Score in run A"}.get(part, f"Group: {say.name(part)}")
        header = (title, *(("scale",) if several else ()), "answers", *PARTING.values())
        tables.append(Table(part, title, header, tuple(cells for _, cells in rows_of_part[:MOST]), notes))
    return Section(
        "parting",
        "Where they part: questions, levels, groups",
        _furthest(tables),
        lead="On all answers that both runs score. “B less A” is the mean change of the score; numbers in brackets are "
        "95% intervals.",
        tables=tuple(tables),
    )


def _furthest(tables: Sequence[Table]) -> str:
    items = next((table for table in tables if table.id == "item"), None)
    first = items.rows[0] if items else None
    if first is None or not isinstance(change := first[-1], Cell) or not change.value:
        return "The runs part nowhere on average"
    up = "higher" if change.value > 0 else "lower"
    where = f"on {first[0]} " if items and len(items.rows) > 1 else ""
    return f"The runs are furthest apart {where}where B is {say.number(abs(change.value))} points {up} on average"


def _which(runs: Sequence[ComparedRun], unscored: tuple[int, int]) -> Section:
    facts = []
    for letter, run, alone in zip("AB", runs, unscored, strict=True):
        facts.append((letter, f"run {run.run_id} of study {say.name(run.study)}, judged by {run.backend}"))
        if alone:
            facts.append((f"scored by {letter} alone", say.plural(alone, "answer")))
    return Section("runs", "", "The two runs", facts=tuple(facts))
