"""What the graphs are like: the statistics of GEAR's Tables 3 and 14, who made them, and what was left out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean, median

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.graph import RELATIONS
from tasks.contracts.tables.graph import DROPPED
from tasks.display import say
from tasks.display.table import Cell, Table, count
from tasks.report.reward.boxes import Row

PUBLISHED: Mapping[str, float] = {
    "rubrics": 5000,
    "criteria per rubric": 11.48,
    "dependencies per rubric": 10.92,
    "criteria and dependencies per rubric": 22.40,
    "rubrics with a dependency, %": 91.84,
    "invalid proposals per rubric": 0.42,
}
"""GEAR, Tables 3 and 14: HealthBench."""
AUTHORED = "authored"


def statistics(graphs: list[Row]) -> Table:
    """The statistics of these rows of `graphs`, beside the published ones."""
    if not graphs:
        return Table("statistics", "The graphs", ("Statistic", "here", "published"), ())
    found = {
        "rubrics": float(len(graphs)),
        "criteria per rubric": fmean(row["criteria"] for row in graphs),
        "dependencies per rubric": fmean(row["kept"] for row in graphs),
        "criteria and dependencies per rubric": fmean(row["criteria"] + row["kept"] for row in graphs),
        "rubrics with a dependency, %": 100 * fmean(row["kept"] > 0 for row in graphs),
        "invalid proposals per rubric": fmean(row["invalid"] for row in graphs),
        "pairs that the roles allow, per rubric": fmean(row["candidates"] for row in graphs),
        "pairs without an answer, per rubric": fmean(row["failed"] for row in graphs),
        "criteria without a given role, per rubric": fmean(row["roles_missing"] for row in graphs),
        "longest path, mean": fmean(row["depth"] for row in graphs),
        "longest path, median": median(row["depth"] for row in graphs),
        "longest path, longest": float(max(row["depth"] for row in graphs)),
    }
    rows = tuple((name, _cell(name, value), _cell(name, PUBLISHED.get(name))) for name, value in found.items())
    note = "published: HealthBench, by its authors' annotator; paths count dependencies"
    return Table("statistics", "The graphs", ("Statistic", "here", "published"), rows, (note,))


def _cell(name: str, value: float | None) -> Cell:
    whole = name == "rubrics" or name.endswith("longest")
    return Cell(value, digits=0 if whole else 2)


def kinds(nodes: pa.Table, edges: pa.Table) -> tuple[Table, Table]:
    """How many criteria have each role, and how many dependencies are of each kind."""
    kept = edges.filter(edges["kept"])
    return (
        _shares("roles", "Roles", "Role", nodes["role"], "criteria", {}),
        _shares("relations", "Dependencies", "Kind", kept["relation"], "dependencies", dict(RELATIONS.items())),
    )


def dropped(edges: pa.Table) -> Table:
    """Why proposed edges are not in the graphs."""
    return _shares("dropped", "Proposed and not kept", "Why", edges["dropped"].drop_null(), "edges", DROPPED)


def makers(graphs: list[Row]) -> Table:
    """Who made how many graphs."""
    counted = Counter((row["annotator"], row["profile"]) for row in graphs)
    rows = tuple((say.name(who), say.name(profile), count(n)) for (who, profile), n in counted.most_common())
    return Table("makers", "Who made them", ("Annotator", "profile", "graphs"), rows)


def notable(graphs: list[Row], leaked: Mapping[str, float]) -> dict[str, str]:
    """Rubrics worth looking at, with why. leaked: rubric → what flat aggregation paid for unlicensed criteria."""
    by_size = sorted((row for row in graphs if row["kept"]), key=lambda row: (-row["kept"], row["rubric_id"]))
    if not by_size:
        return {}
    chosen = {by_size[0]["rubric_id"]: "the most dependencies"}
    middle = by_size[len(by_size) // 2]["rubric_id"]
    chosen.setdefault(middle, "the median number of dependencies")
    worst = min(leaked, key=lambda rubric: (-leaked[rubric], rubric), default=None)
    if worst is not None:
        chosen[worst] = f"{chosen[worst]}, and the most false credit" if worst in chosen else "the most false credit"
    return chosen


def _shares(id_: str, title: str, head: str, values: pa.ChunkedArray, noun: str, words: Mapping[str, str]) -> Table:
    """A closed set of values with their counts and shares, the most frequent first."""
    counted = sorted(((one["counts"], one["values"]) for one in pc.value_counts(values).to_pylist()), reverse=True)
    every = sum(n for n, _ in counted)
    rows = tuple((words.get(value, value), count(n), Cell(100 * n / every, digits=1)) for n, value in counted)
    return Table(id_, title, (head, noun, "%"), rows)
