"""A run's trained arms as the content of their report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.methods import STARTS
from rubricflow.tasks.core.contracts.tables.edit import ARMS, TESTED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, bar_chart, line_chart
from rubricflow.tasks.core.display.page import Drawing, Key, Page, Section, rendered, setting_facts
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.methods.report import arm_figures as figures
from rubricflow.tasks.methods.report import cases
from rubricflow.tasks.methods.report.arm_figures import EditView, SeedFigures

HOW = (
    "Mean over seeds with its 95% interval over responses, resampled within their question; ± is one standard "
    "deviation over seeds. QWK is the mean over questions. Base, decoded greedily, is the same for every seed."
)
POINTS = 12
"""Points of a line at most: what training logs more often is averaged over that share of the updates."""
CURVES: Mapping[tuple[str, str], str] = {
    **{(part, "qwk"): f"QWK, {words}" for part, words in TESTED.items()},
    ("train", "reward"): "Reward r (Eq. 7)",
    ("train", "outcome"): "Outcome reward (Eq. 5)",
    ("train", "shaping"): "Shaping (Eq. 6)",
    ("train", "kl"): "KL from the start",
}
"""(part, metric) of `learning` → what is drawn."""


def page(view: EditView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: EditView) -> Page:
    """What the page shows."""
    arms = SeedFigures(view.metrics, "arm", "part", "metric")
    gaps = SeedFigures(view.differences, "arm", "against", "part", "metric")
    there = arms.arms()
    # QWK of the last phase trained and of Base
    phases = [arm for arm in figures.PHASES if arm in there]
    keys = []
    for part in ("unseen", "seen"):
        for arm in dict.fromkeys([*phases[:1], *phases[-1:]]):
            figure = arms(arm, part, "qwk")
            if figure.value is not None:
                spread = "" if figure.se is None else f"± {say.number(figure.se)} over seeds"
                keys.append(Key(f"QWK, {part}, {ARMS[arm]}", say.number(figure.value), (figure.interval, spread)))
    seeds = say.plural(len(view.settings.seeds), "seed")
    policy = say.name(view.settings.policy)
    sections = list(_sections(view, arms, gaps))
    lead = f"{say.plural(len(there), 'arm')}, {seeds}, policy {policy}. {figures.clear_differences(gaps)}"
    shown = [section for section in sections if section.tables or section.small or section.drawings]
    return Page("Edit report", say.name(view.study), figures.sentence(arms), shown, lead=lead, keys=keys)


def _sections(view: EditView, arms: SeedFigures, gaps: SeedFigures) -> Iterator[Section]:
    bars = [Drawing(panel.title, bar_chart(panel)) for panel in figures.panels(arms)]
    yield Section(
        "arms",
        "Arms: who marks best?",
        figures.best(arms),
        f"{HOW} Unmarked: the grading states no mark by itself. Where it did once it was asked for it, that mark "
        "counts; a response without any is wrong in accuracy and within 1, and left out of QWK and MAE.",
        drawings=bars,
        tables=_filled(figures.summary_table(view.metrics, part) for part in TESTED),
    )
    yield Section(
        "differences",
        "Differences: which are more than chance?",
        figures.clear_count(gaps),
        "Paired over responses, seed by seed. Clear: the interval leaves out 0 and the difference is more than the "
        "seeds' standard deviation. No correction for the number of comparisons. The paper has Edit-SFT and Edit-RL "
        "ahead in all of their comparisons (Tables 1-4).",
        tables=_filled(figures.difference_table(gaps, part) for part in TESTED),
    )
    if set(arms.arms()) & {"grpo_on_edit_sft", "edit_rl_on_base"}:
        yield Section(
            "grid",
            "Grid: RL on Base or on Edit-SFT?",
            "What RL adds directly on Base and on what Edit-SFT made of it (Table 3)",
            small=[figures.grid_table(arms, part) for part in TESTED],
        )
    yield Section(
        "curves",
        "Curves: what does RL learn?",
        "QWK on the test split and rewards, update by update",
        "Means over seeds; QWK begins with that of the start. Nothing is chosen by the test split.",
        drawings=list(curves(view)),
    )
    revised = list(cases.revised_cases(view))
    yield Section(
        "beliefs",
        "Beliefs: where does reasoning leave the scheme?",
        "Wrong rollouts, what the policy would have marked after each step, and what was put in a step's place",
        "Expected mark of the belief probe (Eq. 1). Δε: by how many marks a step brings the belief closer to the "
        "gold mark (Eq. 2). Grounding: by how many nats a step is less likely without its source (Eqs. 3-4).",
        drawings=[cases.belief_chart(case) for case in revised],
        tables=[cases.step_table(case) for case in revised],
        folded="Step by step",
    )
    left = cases.phases(view)
    pools = (cases.revision_table(view.revisions), cases.pool_table(view.demonstrations))
    separations = cases.separation_table(view.separations)
    yield Section(
        "selection",
        "Selection: what became of wrong rollouts?",
        cases.takeaway(left),
        "Rollouts of the base policy on the training responses; a rollout without a mark counts as wrong.",
        drawings=list(cases.selection_drawings(view, left)),
        tables=_filled((*pools, separations)),
        notes=list(cases.refusal_notes(view.revisions)),
        folded="Revisions and training pools",
    )
    yield Section(
        "divergence",
        "Divergence: does the frozen probe still read the policy?",
        "How far the belief of each arm of RL has moved from the policy that it started from",
        "Means over step boundaries, in nats: KL(arm ‖ start), and JSD, also by third of the chain.",
        tables=_filled(figures.divergence_table(arms, part) for part in TESTED),
        folded="Divergence by arm",
    )
    yield Section(
        "rules",
        "Rules: do marks follow an edited scheme?",
        figures.rule_takeaway(view.faithfulness),
        "A1 adds 2 marks to every level, A2 doubles them, B1 adds 1 to the lowest creditable and 2 to those above; "
        "×: every point is worth so many times as much. A mark that code sums follows an edit of points whatever "
        "the grader read, so those graders stand apart.",
        tables=list(figures.rule_tables(view.faithfulness)),
        notes=list(figures.rule_notes(view.faithfulness)),
        folded="Every edit by itself",
    )
    yield Section(
        "made",
        "How it was made",
        "What the arms rest on and what they cost",
        facts=[("run", view.run_id), *setting_facts(view.settings.model_dump(mode="json", exclude_none=True))],
        tables=(_training(view.policies),),
        folded="Training and settings",
    )


def _filled(tables: Iterable[Table]) -> list[Table]:
    return [table for table in tables if table.rows]


def curves(view: EditView) -> Iterator[Drawing]:
    """A chart for each of `CURVES` that has points, a line for each arm of RL."""
    points = _points(view)
    for (part, metric), words in CURVES.items():
        lines = []
        for arm in STARTS:
            own = points[(points["part"] == part) & (points["metric"] == metric) & (points["arm"] == arm)]
            if len(own):
                size = -(-len(own) // POINTS)
                means = own[["step", "value"]].groupby(np.arange(len(own)) // size).mean()
                lines.append(ChartLine(ARMS[arm], tuple(ChartPoint(*point) for point in means.to_numpy().tolist())))
        if lines:
            yield Drawing(words, line_chart(words, lines, "updates", words.split(",")[0]))


def _points(view: EditView) -> pd.DataFrame:
    """Means over seeds by arm, part, metric and step; QWK before the first update is that of the arm's start."""
    metrics = view.metrics.to_pandas()
    frames = [view.learning.to_pandas()]
    trained = set(view.policies.filter(pc.field("updates") > 0)["arm"].to_pylist())
    for arm, start in STARTS.items():
        if arm in trained:
            first = metrics[(metrics["arm"] == start) & (metrics["metric"] == "qwk")]
            frames.append(first.assign(arm=arm, step=0))
    keys = ["arm", "part", "metric", "step"]
    every = pd.concat([frame[[*keys, "value"]].dropna() for frame in frames])
    means: pd.DataFrame = every.groupby(keys, as_index=False)["value"].mean()
    return means


def _training(policies: pa.Table) -> Table:
    """Who was trained how, and how long it took."""
    rows = list[Cells]()
    for row in policies.to_pylist():
        start = ARMS[row["start"]] if row["start"] else "–"
        numbers = [count(row[name]) for name in ("parameters", "updates", "demonstrations")]
        note = say.visible(row["note"] or "")
        rows.append((ARMS[row["arm"]], str(row["seed"]), start, *numbers, Cell(row["seconds"], digits=1), note))
    header = ("Arm", "seed", "starts from", "numbers trained", "updates", "texts", "seconds", "note")
    return Table("policies", "Training", header, rows)
