"""A run's trained arms as the content of their report: pure, tables in, sections and their takeaways out.

What the arms rest on: their training and its cost, one by one, and the settings of all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.edit import ARMS, GRID, Arm
from rubricflow.tasks.core.contracts.tables.edit import TESTED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.methods.report.edit import cases, charts, faithful, figures
from rubricflow.tasks.methods.report.edit.figures import ABLATIONS, Arms, EditView, Gaps, SeedFigure

HOW = (
    "Mean over seeds with its 95% interval over responses, resampled within their question; ± is one standard "
    "deviation over seeds. QWK is the mean over questions. Base, decoded greedily, is the same for every seed."
)


def page(view: EditView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: EditView) -> Page:
    """What the page shows."""
    arms, gaps = Arms(view.metrics), Gaps(view.differences)
    sections = [
        _arms(arms),
        _differences(gaps),
        _grid(arms),
        _ablations(arms),
        _curves(view),
        _beliefs(view),
        _selection(view),
        _grounding(view),
        _divergence(arms),
        _rules(view),
        section(view),
    ]
    seeds, policy = say.plural(len(view.settings.seeds), "seed"), say.name(view.settings.policy)
    return Page(
        kind="Edit report",
        study=say.name(view.study),
        title=figures.sentence(arms),
        lead=f"{say.plural(len(arms.names), 'arm')}, {seeds}, policy {policy}. {figures.takeaway(gaps)}",
        keys=tuple(_keys(arms)),
        sections=tuple(section for section in sections if section is not None),
    )


def _keys(arms: Arms) -> Iterator[Key]:
    """QWK of the last phase trained and of Base."""
    shown = [arm for arm in figures.PHASES if arm in arms.names]
    for part in ("unseen", "seen"):
        for arm in dict.fromkeys([*shown[:1], *shown[-1:]]):
            figure = arms.figure(arm, part, "qwk")
            if figure.value is not None:
                yield Key(f"QWK, {part}, {ARMS[arm]}", say.number(figure.value), tuple(_below(figure)))


def _below(figure: SeedFigure) -> Iterator[str]:
    if figure.low is not None and figure.high is not None:
        yield f"95% interval {say.number(figure.low)} to {say.number(figure.high)}{figure.mark}"
    if figure.se is not None:
        yield f"± {say.number(figure.se)} over seeds"


def _arms(arms: Arms) -> Section | None:
    if not arms.names:
        return None
    ranked = {part: arms.ranked(part) for part in TESTED}
    best = [f"{ARMS[names[0]]} on {TESTED[part]}" for part, names in ranked.items() if names]
    return Section(
        "arms",
        "Arms: who marks best?",
        f"Highest mean QWK: {', '.join(best)}" if best else "No arm has a QWK",
        f"{HOW} Unmarked: the grading states no mark by itself. Where it did once it was asked for it, that mark "
        "counts; a response without any is wrong in accuracy and within 1, and left out of QWK and MAE.",
        drawings=tuple(_panels(arms, arms.names)),
        tables=tuple(figures.summary_table(arms, part) for part in TESTED),
    )


def _panels(arms: Arms, names: tuple[Arm, ...]) -> Iterator[Drawing]:
    for part in TESTED:
        if drawn := figures.panel(arms, part, names):
            yield Drawing(drawn.title, bar_chart(drawn))


def _differences(gaps: Gaps) -> Section | None:
    if not gaps.pairs:
        return None
    return Section(
        "differences",
        "Differences: which are more than chance?",
        figures.title(gaps),
        "Paired over responses, seed by seed. Clear: the interval leaves out 0 and the difference is more than the "
        "seeds' standard deviation. No correction for the number of comparisons.",
        tables=(*(figures.table(gaps, part) for part in TESTED), figures.orders(gaps)),
    )


def _grid(arms: Arms) -> Section | None:
    if len([arm for arm in GRID if arm in arms.names]) < 4:
        return None
    return Section(
        "grid",
        "Grid: RL on Base or on Edit-SFT?",
        figures.listed(arms, GRID),
        "RL directly on Base and on what Edit-SFT made of it (Table 3).",
        drawings=tuple(_panels(arms, GRID)),
        small=tuple(figures.grid(arms, part) for part in TESTED),
    )


def _ablations(arms: Arms) -> Section | None:
    if not set(ABLATIONS[1:]) & set(arms.names):
        return None
    return Section(
        "ablations",
        "Ablations: what does each part of Edit-SFT add?",
        figures.listed(arms, ABLATIONS),
        "Edit-SFT without its internal signals, its checklist or its locality constraint (Table 4).",
        drawings=tuple(_panels(arms, ABLATIONS)),
    )


def _curves(view: EditView) -> Section | None:
    drawn = tuple(charts.drawings(view))
    if not drawn:
        return None
    return Section(
        "curves",
        "Curves: what does RL learn?",
        charts.takeaway(view),
        "Means over seeds; QWK begins with that of the start. Nothing is chosen by the test split.",
        drawings=drawn,
    )


def _beliefs(view: EditView) -> Section | None:
    drawn = tuple(cases.drawings(view))
    if not drawn:
        return None
    return Section(
        "beliefs",
        "Beliefs: where does reasoning leave the scheme?",
        "Wrong rollouts, what the policy would have marked after each step, and what was put in a step's place",
        "Expected mark of the belief probe (Eq. 1). Δε: by how many marks a step brings the belief closer to the gold "
        "mark (Eq. 2). Grounding: by how many nats a step is less likely without its source (Eqs. 3-4).",
        drawings=drawn,
        tables=tuple(cases.tables(view)),
    )


def _selection(view: EditView) -> Section | None:
    tables = (cases.fate_table(view), cases.revision_table(view), cases.pool_table(view))
    if not any(table.rows for table in tables):
        return None
    return Section(
        "selection",
        "Selection: what became of wrong rollouts?",
        cases.takeaway(view),
        "Rollouts of the base policy on the training responses; a rollout without a mark counts as wrong.",
        drawings=(*cases.phase_drawings(view), *cases.position_drawings(view)),
        tables=tables,
        notes=tuple(cases.refusal_notes(view)),
    )


def _grounding(view: EditView) -> Section | None:
    drawn = tuple(cases.grounding_drawings(view))
    if not drawn:
        return None
    weak = say.share(view.settings.revising.weak_below)
    return Section(
        "grounding",
        "Grounding: what do steps rest on?",
        "Support of the steps by mark scheme, answer and earlier steps",
        f"Bar: middle half, line: middle four fifths, upright: median. Dashed: the limit under which {weak} of all "
        "steps lie; a step is weak if it is under it in all three.",
        drawings=drawn,
        tables=tuple(cases.separation_tables(view)),
    )


def _divergence(arms: Arms) -> Section | None:
    tables = tuple(divergence(arms, part) for part in TESTED)
    if not any(table.rows for table in tables):
        return None
    return Section(
        "divergence",
        "Divergence: does the frozen probe still read the policy?",
        "How far the belief of each arm of RL has moved from the policy that it started from",
        "Means over step boundaries, in nats: KL(arm ‖ start), and JSD, also by third of the chain.",
        tables=tables,
    )


def _rules(view: EditView) -> Section | None:
    tables = tuple(faithful.tables(view.faithfulness))
    if not tables:
        return None
    return Section(
        "rules",
        "Rules: do marks follow an edited scheme?",
        faithful.takeaway(view.faithfulness),
        "A1 adds 2 marks to every level, A2 doubles them, B1 adds 1 to the lowest creditable and 2 to those above; "
        "×: every point is worth so many times as much. A mark that code sums follows an edit of points whatever the "
        "grader read, so those graders stand apart.",
        tables=tables,
        notes=tuple(faithful.notes(view.faithfulness)),
    )


PROBE = {"kl": "KL", "jsd": "JSD", "jsd_early": "early", "jsd_mid": "middle", "jsd_late": "late"}
"""What `arm_metrics` calls probe_…, in nats; JSD also by third of the chain."""


def section(view: EditView) -> Section:
    """Who was trained how, and how long it took."""
    rows: list[Cells] = []
    for row in view.policies.to_pylist():
        start = ARMS[row["start"]] if row["start"] else "–"
        numbers = (count(row[name]) for name in ("parameters", "updates", "demonstrations"))
        note = say.visible(row["note"] or "")
        rows.append((ARMS[row["arm"]], str(row["seed"]), start, *numbers, Cell(row["seconds"], digits=1), note))
    header = ("Arm", "seed", "starts from", "numbers trained", "updates", "texts", "seconds", "note")
    return Section(
        "made",
        "How it was made",
        "What the arms rest on and what they cost",
        facts=tuple(_facts(view)),
        tables=(Table("policies", "Training", header, tuple(rows)), _written(view.rollouts)),
    )


def divergence(arms: Arms, part: str) -> Table:
    """Table 7: how far each arm of RL has moved from the frozen policy that its belief is read from."""
    rows: list[Cells] = []
    for arm in arms.names:
        cells = [arms.figure(arm, part, f"probe_{name}", digits=4) for name in PROBE]
        if any(cell.value is not None for cell in cells):
            rows.append((ARMS[arm], *cells))
    return Table(f"divergence-{part}", f"{part.capitalize()} questions", ("Arm", *PROBE.values()), tuple(rows))


def _written(rollouts: pa.Table) -> Table:
    """What writing rollouts took, by arm and split."""
    groups = rollouts.select(["arm", "part", "steps", "seconds"]).group_by(["arm", "part"], use_threads=False)
    sums = groups.aggregate([("steps", "mean"), ("seconds", "sum"), ("steps", "count")]).to_pylist()
    rows: list[Cells] = []
    for arm in ARMS:
        for row in sums:
            if row["arm"] == arm:
                costs = Cell(row["steps_mean"], digits=1), Cell(row["seconds_sum"], digits=1)
                rows.append((ARMS[arm], row["part"], count(row["steps_count"]), *costs))
    return Table("rollouts", "Rollouts", ("Arm", "split", "rollouts", "mean steps", "seconds"), tuple(rows))


def _facts(view: EditView) -> Iterator[tuple[str, str]]:
    settings = view.settings
    revising, tuning, learning = settings.revising, settings.fine_tuning, settings.reinforcement
    yield "run", view.run_id
    yield "policy", f"{say.name(settings.policy)}, {settings.prompts} prompts, at most {settings.max_tokens} tokens"
    yield "seeds", ", ".join(map(str, settings.seeds))
    yield "adapter", f"LoRA, rank {settings.adapter.rank}, alpha {settings.adapter.alpha}"
    yield (
        "revising",
        f"{revising.rollouts} rollouts, k = {revising.candidates}, weak under quantile {say.level(revising.weak_below)}"
        f", {revising.continuations} continuations, at most {say.share(revising.natural)} natural",
    )
    yield (
        "fine-tuning",
        f"{tuning.epochs} epochs, rate {tuning.learning_rate:g}, batch {tuning.batch_size}",
    )
    yield (
        "RL",
        f"{learning.steps} updates of {learning.responses} responses × {learning.group} rollouts, rate "
        f"{learning.learning_rate:g}, KL weight {learning.divergence:g}, tolerance β {learning.tolerance:g} marks, "
        f"shaping γ {learning.shaping:g}",
    )
