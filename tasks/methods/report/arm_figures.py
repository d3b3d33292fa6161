"""Trained arms side by side: figures over seeds with their intervals, as tables and as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.methods import Edit
from rubricflow.tasks.core.contracts.tables.edit import ARMS, FAMILIES, RULE_EDITS, TESTED, TOTALS, Tested
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Table, count

METRICS = {"qwk": "QWK", "accuracy": "accuracy", "within_1": "within 1", "mae": "MAE", "unmarked": "unmarked"}
HEADER = ("arm", "split", "seeds", *METRICS.values(), "n")
"""Columns of `summary_rows`."""
COMPARED = ("qwk", "accuracy", "within_1", "mae")
"""Metrics of `arm_differences` that are shown."""
PHASES = ("edit_rl", "edit_sft", "base")
"""Phases of Edit, the last first."""
GRID = {
    "no RL": ("base", "edit_sft"),
    "GRPO": ("grpo", "grpo_on_edit_sft"),
    "Edit-RL": ("edit_rl_on_base", "edit_rl"),
}
"""Table 3: what RL adds, on Base and on Edit-SFT."""
PROBE = {"kl": "KL", "jsd": "JSD", "jsd_early": "early", "jsd_mid": "middle", "jsd_late": "late"}
"""What `arm_metrics` calls probe_…, in nats; JSD also by third of the chain (Table 7)."""
FLOOR = "floor rate, the share of marks under the edit that are 0"
IN_RUBRIC = "in-rubric RSR, over marks under the edit that are not 0; 1 follows it"
RULE_MEASURES = {
    "floor_rate": ("floor_low", "floor_high", "n", FLOOR),
    "in_rubric": ("in_rubric_low", "in_rubric_high", "in_rubric_n", IN_RUBRIC),
}
"""Column of `rule_faithfulness` → those of its interval and of the responses behind it, and its words."""
Key = tuple[int, str, int]
"""A sampled rollout of the base policy: seed, response_id, sample."""


@dataclass(frozen=True)
class EditView:
    """What the report is made from: Arrow tables with the columns of tasks/core/contracts/tables/edit.py and
    tables/rules.py."""

    study: str
    run_id: str
    settings: Edit
    metrics: pa.Table
    """Table `arm_metrics`."""
    differences: pa.Table
    """Table `arm_differences`."""
    learning: pa.Table
    policies: pa.Table
    rollouts: pa.Table
    """Without its texts."""
    steps: pa.Table
    separations: pa.Table
    """Empty where the study does not tell kinds of steps apart."""
    revisions: pa.Table
    demonstrations: pa.Table
    faithfulness: pa.Table
    """Table `rule_faithfulness`; empty where the arms were not tested."""
    texts: Mapping[Key, str]
    """Rollout → its text, at least of those that `cases.needs_texts` names."""


class SeedFigure(Cell):
    """A mean over seeds with its 95% interval over responses, and the standard deviation over seeds behind it."""

    __slots__ = ()

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.se is None else f"{text} ± {say.number(self.se, self.digits)}"

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero and the seeds vary less than the value is large."""
        if self.value is None or self.low is None or self.high is None:
            return False
        return (self.low > 0 or self.high < 0) and abs(self.value) > (self.se or 0.0)


class SeedFigures:
    """The rows of a table with a row for each seed, pooled over seeds by the columns `keys`."""

    def __init__(self, table: pa.Table, *keys: str) -> None:
        rows = table.to_pandas()
        self._keys = list(rows[list(keys)].drop_duplicates().itertuples(index=False, name=None))
        self._figures = pooled(rows, keys)

    def __call__(self, *key: str, digits: int = 2) -> SeedFigure:
        """The figure of these keys, without a value where there is none."""
        return self._figures.get(key, SeedFigure(None))._replace(digits=digits)

    def arms(self) -> list[str]:
        """The values of the first key, in the order of their first rows."""
        return list(dict.fromkeys(key[0] for key in self._keys))

    def pairs(self) -> list[tuple[str, str]]:
        """The values of the first two keys."""
        return list(dict.fromkeys(key[:2] for key in self._keys))


def pooled(rows: pd.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], SeedFigure]:
    """Keys → the rows of all seeds as one figure: means of values and of the intervals' ends, the values' deviation."""
    groups = rows.dropna(subset=["value"]).groupby(list(keys), sort=False)
    means = groups[["value", "low", "high"]].mean(skipna=False)
    figures = means.assign(sd=groups["value"].std(), n=groups["n"].min()).astype(object)
    found: Iterable[tuple[Any, ...]] = figures.where(figures.notna(), None).reset_index().itertuples(False, None)
    return {tuple(key): SeedFigure(value, low, high, sd, 2, "interval", n) for *key, value, low, high, sd, n in found}


def in_order(arms: Iterable[str]) -> list[str]:
    """These arms in the order of the contract."""
    there = set(arms)
    return [arm for arm in ARMS if arm in there]


def summary_table(metrics: pa.Table, part: Tested) -> Table:
    """Every arm with every figure on one part of the test split, and why figures are missing."""
    figures, frame = SeedFigures(metrics, "arm", "part", "metric"), metrics.to_pandas()
    frame = frame[(frame["part"] == part) & frame["metric"].isin(list(METRICS))]
    rows = list[Cells]()
    for arm in in_order(frame["arm"]):
        own = frame[frame["arm"] == arm]
        cells = [figures(arm, part, metric) for metric in METRICS]
        rows.append((ARMS[arm], count(own["seed"].nunique()), *cells, count(int(own["n"].max()))))
    notes = []
    for (metric, note), noted in frame.groupby(["metric", "note"], sort=False):
        arms = in_order(noted["arm"])
        whose = "all arms" if len(arms) == len(rows) else ", ".join(ARMS[arm] for arm in arms)
        notes.append(f"{METRICS[metric]}, {whose}: {say.visible(note)}")
    return Table(part, TESTED[part].capitalize(), ("Arm", *HEADER[2:]), rows, notes)


def summary_rows(metrics: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per arm and part of the test split; '–' stands for a figure not known."""
    rows = []
    for part in TESTED:
        rows += [(str(row[0]), part, *map(str, row[1:])) for row in summary_table(metrics, part).rows]
    return rows


def panels(figures: SeedFigures) -> Iterator[Panel]:
    """Bars of the arms by QWK, with their intervals, for each part where one has it."""
    for part in TESTED:
        shown = {arm: figures(arm, part, "qwk") for arm in in_order(figures.arms())}
        bars = [
            Bar(ARMS[arm], cell.value, cell.low, cell.high) for arm, cell in shown.items() if cell.value is not None
        ]
        if bars:
            yield Panel(f"QWK, {TESTED[part]}", bars)


def best(figures: SeedFigures) -> str:
    """The arm with the highest mean QWK on each part."""
    clauses = []
    for part in TESTED:
        means = {arm: figures(arm, part, "qwk").value for arm in in_order(figures.arms())}
        known = {arm: mean for arm, mean in means.items() if mean is not None}
        if known:
            clauses.append(f"{ARMS[max(known, key=lambda arm: known[arm])]} on {TESTED[part]}")
    return f"Highest mean QWK: {', '.join(clauses)}" if clauses else "No arm has a QWK"


def sentence(figures: SeedFigures) -> str:
    """The takeaway of the whole report: macro QWK of the last phase trained next to Base, on unseen questions first."""
    arms = figures.arms()
    last_phase = next((arm for arm in PHASES if arm in arms), "base")
    clauses = []
    for part in ("unseen", "seen"):
        value, base = (figures(arm, part, "qwk").value for arm in (last_phase, "base"))
        if value is not None:
            baseline = f", Base {say.number(base)}" if last_phase != "base" and base is not None else ""
            clauses.append(f"{say.number(value)} on {TESTED[part]}{baseline}")
    if not clauses:
        return "No arm has a QWK on the test split"
    return f"{ARMS[last_phase]} marks with QWK {'; '.join(clauses)}"


def difference_table(gaps: SeedFigures, part: Tested) -> Table:
    """Every pair that was compared, with the verdict on its QWK."""
    rows = list[Cells]()
    for arm, against in gaps.pairs():
        qwk = gaps(arm, against, part, "qwk")
        if qwk.value is not None:
            verdict = "not clear"
            if qwk.is_clear:
                verdict = "clearly ahead" if qwk.value > 0 else "clearly behind"
            cells = [gaps(arm, against, part, metric) for metric in COMPARED]
            rows.append((f"{ARMS[arm]} less {ARMS[against]}", *cells, verdict))
    header = ("Arms", *(METRICS[metric] for metric in COMPARED), "QWK says")
    return Table(f"differences-{part}", TESTED[part].capitalize(), header, rows)


def clear_differences(gaps: SeedFigures) -> str:
    """Which differences in QWK are clear, in a sentence for each part where arms were compared."""
    sentences = []
    for part, words in TESTED.items():
        compared = {pair: gaps(*pair, part, "qwk") for pair in gaps.pairs()}
        values = {pair: gap.value for pair, gap in compared.items() if gap.is_clear and gap.value is not None}
        ahead = []
        for (arm, against), value in values.items():
            better, other = (arm, against) if value > 0 else (against, arm)
            ahead.append(f"{ARMS[better]} over {ARMS[other]} (+{say.number(abs(value))})")
        known = sum(gap.value is not None for gap in compared.values())
        if known:
            sentences.append(f"On {words}, clear in QWK: {', '.join(ahead) or 'none'}, of {known} compared.")
    return " ".join(sentences)


def clear_count(gaps: SeedFigures) -> str:
    """How many differences in QWK are clear."""
    every = [gaps(*pair, part, "qwk") for part, pair in product(TESTED, gaps.pairs())]
    known = sum(gap.value is not None for gap in every)
    return f"{sum(gap.is_clear for gap in every)} of {say.plural(known, 'difference')} in QWK are clear"


def grid_table(figures: SeedFigures, part: Tested) -> Table:
    """Table 3."""
    rows = list[Cells]()
    for words, pair in GRID.items():
        rows.append((words, *(figures(arm, part, "qwk") for arm in pair)))
    return Table(f"grid-{part}", f"QWK, {TESTED[part]}", ("RL", "on Base", "on Edit-SFT"), rows)


def divergence_table(figures: SeedFigures, part: Tested) -> Table:
    """Table 7: how far each arm of RL has moved from the frozen policy that its belief is read from."""
    rows = list[Cells]()
    for arm in in_order(figures.arms()):
        cells = [figures(arm, part, f"probe_{name}", digits=4) for name in PROBE]
        if any(cell.value is not None for cell in cells):
            rows.append((ARMS[arm], *cells))
    return Table(f"divergence-{part}", f"{part.capitalize()} questions", ("Arm", *PROBE.values()), rows)


def rule_tables(faithfulness: pa.Table) -> Iterator[Table]:
    """Tables 5 and 9: every measure by grader and edit, apart by who makes the mark and by kind of scheme."""
    frame = faithfulness.to_pandas()
    frame["grader"] = frame["rater_id"].map(_grader_name)
    for (totals, maker), (family, schemes) in product(TOTALS.items(), FAMILIES.items()):
        tested = frame[(frame["totals"] == totals) & (frame["family"] == family)]
        edits = [edit for edit in RULE_EDITS if (tested["edit"] == edit).any()]
        for measure, (*_, words) in RULE_MEASURES.items() if edits else ():
            figures = rule_figures(tested, measure, "grader", "edit")
            rows = list[Cells]()
            for grader, n in _graders(tested).items():
                cells = [figures.get((grader, edit), SeedFigure(None)) for edit in edits]
                rows.append((grader, count(n), *cells))
            header = ("Grader", "n", *map(_edit_title, edits))
            title = f"{maker.capitalize()}, {schemes}: {words}"
            yield Table(f"rules-{totals}-{family}-{measure}", title, header, rows)


def rule_takeaway(faithfulness: pa.Table) -> str:
    """Which grader that states its mark is closest to following the edits, by kind of scheme."""
    frame, clauses = faithfulness.to_pandas(), []
    frame["grader"] = frame["rater_id"].map(_grader_name)
    for family, schemes in FAMILIES.items():
        stated = frame[(frame["totals"] == "stated") & (frame["family"] == family)]
        figures = rule_figures(stated, "in_rubric", "grader")
        ratios = {name: figures[(name,)].value or 0.0 for name in _graders(stated) if (name,) in figures}
        if ratios:
            closest = min(ratios, key=lambda grader: abs(ratios[grader] - 1))
            ratio = say.number(ratios[closest])
            clauses.append(f"{closest} follows edits of {schemes} best (mean in-rubric RSR {ratio})")
    return "; ".join(clauses) or "No grader that states its mark has an in-rubric RSR"


def rule_notes(faithfulness: pa.Table) -> Iterator[str]:
    """How far edits move the gold marks, and why ratios are missing."""
    frame = faithfulness.to_pandas()
    changes = frame.groupby("edit", sort=False)["gold_change"].mean().dropna()
    words = ", ".join(f"{_edit_title(edit)} {say.number(change)}" for edit, change in changes.items())
    yield f"Mean change of the gold marks: {words}."
    missing = frame[frame["in_rubric"].isna()].drop_duplicates(["rater_id", "edit"])
    for rater, edit, note in missing[["rater_id", "edit", "in_rubric_note"]].itertuples(index=False):
        yield say.visible(f"{_grader_name(rater)}, {_edit_title(edit)}: {note}")


def rule_figures(rows: pd.DataFrame, measure: str, *keys: str) -> dict[tuple[str, ...], SeedFigure]:
    """A measure of `RULE_MEASURES` by rows of `rule_faithfulness`."""
    low, high, n, _ = RULE_MEASURES[measure]
    columns = rows[[*keys, measure, low, high, n]]
    return pooled(columns.set_axis([*keys, "value", "low", "high", "n"], axis=1), keys)


def _graders(faithfulness: pd.DataFrame) -> dict[str, int]:
    """Names of graders with their most responses: arms in their order, then other judges."""
    most = faithfulness.groupby("grader")["n"].max()
    return {name: most[name] for name in dict.fromkeys([*ARMS.values(), *most.index]) if name in most.index}


def _grader_name(rater: str) -> str:
    """'edit_rl-0' as its arm in words; another judge's id as a name."""
    arm, _, seed = rater.rpartition("-")
    words = dict[str, str](ARMS)
    return words[arm] if arm in words and seed.isdigit() else say.name(rater)


def _edit_title(edit: str) -> str:
    return edit.replace("x", "×")
