"""A run's trained arms as the content of their report: pure, tables in, sections and their takeaways out.

At the end rule faithfulness: how far marks follow when the mark scheme is edited (section 3.4, Tables 5 and 9).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from statistics import fmean
from typing import Literal

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.edit import GRID
from rubricflow.tasks.core.contracts.tables.edit import ARMS, TESTED, Arm
from rubricflow.tasks.core.contracts.tables.rules import FAMILIES, RULE_EDITS, TOTALS, Family, Totals
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Row, Table, count
from rubricflow.tasks.methods.report.edit import cases, charts, figures
from rubricflow.tasks.methods.report.edit.figures import ABLATIONS, Arms, EditView, Gaps, SeedFigure, pooled

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
    keys = []
    # QWK of the last phase trained and of Base
    shown = [arm for arm in figures.PHASES if arm in arms.names]
    for part in ("unseen", "seen"):
        for arm in dict.fromkeys([*shown[:1], *shown[-1:]]):
            figure = arms.figure(arm, part, "qwk")
            if figure.value is not None:
                spread = "" if figure.se is None else f"± {say.number(figure.se)} over seeds"
                keys.append(Key(f"QWK, {part}, {ARMS[arm]}", say.number(figure.value), (figure.interval, spread)))
    seeds, policy = say.plural(len(view.settings.seeds), "seed"), say.name(view.settings.policy)
    return Page(
        kind="Edit report",
        study=say.name(view.study),
        title=figures.sentence(arms),
        lead=f"{say.plural(len(arms.names), 'arm')}, {seeds}, policy {policy}. {figures.takeaway(gaps)}",
        keys=keys,
        sections=list(_sections(view, arms, gaps)),
    )


def _sections(view: EditView, arms: Arms, gaps: Gaps) -> Iterator[Section]:
    """Those that have something to show."""
    ranked = {part: arms.ranked(part) for part in TESTED}
    best = [f"{ARMS[names[0]]} on {TESTED[part]}" for part, names in ranked.items() if names]
    if arms.names:
        yield Section(
            "arms",
            "Arms: who marks best?",
            f"Highest mean QWK: {', '.join(best)}" if best else "No arm has a QWK",
            f"{HOW} Unmarked: the grading states no mark by itself. Where it did once it was asked for it, that mark "
            "counts; a response without any is wrong in accuracy and within 1, and left out of QWK and MAE.",
            drawings=_panels(arms, arms.names),
            tables=tuple(figures.summary_table(arms, part) for part in TESTED),
        )
    if gaps.pairs:
        yield Section(
            "differences",
            "Differences: which are more than chance?",
            figures.title(gaps),
            "Paired over responses, seed by seed. Clear: the interval leaves out 0 and the difference is more than the "
            "seeds' standard deviation. No correction for the number of comparisons.",
            tables=(*(figures.table(gaps, part) for part in TESTED), figures.orders(gaps)),
        )
    if len(set(GRID) & set(arms.names)) >= 4:
        yield Section(
            "grid",
            "Grid: RL on Base or on Edit-SFT?",
            figures.listed(arms, GRID),
            "RL directly on Base and on what Edit-SFT made of it (Table 3).",
            drawings=_panels(arms, GRID),
            small=tuple(figures.grid(arms, part) for part in TESTED),
        )
    if set(ABLATIONS[1:]) & set(arms.names):
        yield Section(
            "ablations",
            "Ablations: what does each part of Edit-SFT add?",
            figures.listed(arms, ABLATIONS),
            "Edit-SFT without its internal signals, its checklist or its locality constraint (Table 4).",
            drawings=_panels(arms, ABLATIONS),
        )
    if curves := tuple(charts.drawings(view)):
        yield Section(
            "curves",
            "Curves: what does RL learn?",
            charts.takeaway(view),
            "Means over seeds; QWK begins with that of the start. Nothing is chosen by the test split.",
            drawings=curves,
        )
    if beliefs := tuple(cases.drawings(view)):
        yield Section(
            "beliefs",
            "Beliefs: where does reasoning leave the scheme?",
            "Wrong rollouts, what the policy would have marked after each step, and what was put in a step's place",
            "Expected mark of the belief probe (Eq. 1). Δε: by how many marks a step brings the belief closer to the "
            "gold mark (Eq. 2). Grounding: by how many nats a step is less likely without its source (Eqs. 3-4).",
            drawings=beliefs,
            tables=tuple(cases.tables(view)),
        )
    selection = (cases.fate_table(view), cases.revision_table(view), cases.pool_table(view))
    if any(table.rows for table in selection):
        yield Section(
            "selection",
            "Selection: what became of wrong rollouts?",
            cases.takeaway(view),
            "Rollouts of the base policy on the training responses; a rollout without a mark counts as wrong.",
            drawings=(*cases.phase_drawings(view), *cases.position_drawings(view)),
            tables=selection,
            notes=list(cases.refusal_notes(view)),
        )
    if grounding := tuple(cases.grounding_drawings(view)):
        weak = say.share(view.settings.revising.weak_below)
        yield Section(
            "grounding",
            "Grounding: what do steps rest on?",
            "Support of the steps by mark scheme, answer and earlier steps",
            f"Bar: middle half, line: middle four fifths, upright: median. Dashed: the limit under which {weak} of all "
            "steps lie; a step is weak if it is under it in all three.",
            drawings=grounding,
            tables=tuple(cases.separation_tables(view)),
        )
    divergences = tuple(divergence(arms, part) for part in TESTED)
    if any(table.rows for table in divergences):
        yield Section(
            "divergence",
            "Divergence: does the frozen probe still read the policy?",
            "How far the belief of each arm of RL has moved from the policy that it started from",
            "Means over step boundaries, in nats: KL(arm ‖ start), and JSD, also by third of the chain.",
            tables=divergences,
        )
    if rules := tuple(rule_tables(view.faithfulness)):
        yield Section(
            "rules",
            "Rules: do marks follow an edited scheme?",
            rule_takeaway(view.faithfulness),
            "A1 adds 2 marks to every level, A2 doubles them, B1 adds 1 to the lowest creditable and 2 to those above; "
            "×: every point is worth so many times as much. A mark that code sums follows an edit of points whatever "
            "the grader read, so those graders stand apart.",
            tables=rules,
            notes=list(rule_notes(view.faithfulness)),
        )
    yield section(view)


def _panels(arms: Arms, names: tuple[Arm, ...]) -> tuple[Drawing, ...]:
    panels = filter(None, (figures.panel(arms, part, names) for part in TESTED))
    return tuple(Drawing(panel.title, bar_chart(panel)) for panel in panels)


PROBE = {"kl": "KL", "jsd": "JSD", "jsd_early": "early", "jsd_mid": "middle", "jsd_late": "late"}
"""What `arm_metrics` calls probe_…, in nats; JSD also by third of the chain."""


def section(view: EditView) -> Section:
    """Who was trained how, and how long it took."""
    rows = list[Cells]()
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
        facts=list(_facts(view)),
        tables=(Table("policies", "Training", header, rows), _written(view.rollouts)),
    )


def divergence(arms: Arms, part: str) -> Table:
    """Table 7: how far each arm of RL has moved from the frozen policy that its belief is read from."""
    rows = list[Cells]()
    for arm in arms.names:
        cells = [arms.figure(arm, part, f"probe_{name}", digits=4) for name in PROBE]
        if any(cell.value is not None for cell in cells):
            rows.append((ARMS[arm], *cells))
    return Table(f"divergence-{part}", f"{part.capitalize()} questions", ("Arm", *PROBE.values()), rows)


def _written(rollouts: pa.Table) -> Table:
    """What writing rollouts took, by arm and split."""
    groups = rollouts.select(["arm", "part", "steps", "seconds"]).group_by(["arm", "part"], use_threads=False)
    sums = groups.aggregate([("steps", "mean"), ("seconds", "sum"), ("steps", "count")]).to_pylist()
    rows = []
    for row in sorted(sums, key=lambda row: [*ARMS].index(row["arm"])):
        costs = Cell(row["steps_mean"], digits=1), Cell(row["seconds_sum"], digits=1)
        rows.append((ARMS[row["arm"]], row["part"], count(row["steps_count"]), *costs))
    return Table("rollouts", "Rollouts", ("Arm", "split", "rollouts", "mean steps", "seconds"), rows)


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


Measure = Literal["floor_rate", "in_rubric"]
MEASURES: Mapping[Measure, tuple[str, str]] = {
    "floor_rate": ("floor", "floor rate, the share of marks under the edit that are 0"),
    "in_rubric": ("in_rubric", "in-rubric RSR, over marks under the edit that are not 0; 1 follows it"),
}
"""Measure → how the names of its ends begin, and its words."""
Graders = Mapping[str, list[Row]]
"""An arm in words, or another judge's name → its rows, those of an arm of all seeds."""


def rule_tables(faithfulness: pa.Table) -> Iterator[Table]:
    """Every measure by grader and edit, apart by who makes the mark and by kind of scheme."""
    for (totals, maker), (family, schemes) in product(TOTALS.items(), FAMILIES.items()):
        graders = _graders(faithfulness, totals, family)
        measured = {row["edit"] for rows in graders.values() for row in rows}
        edits = [edit for edit in RULE_EDITS if edit in measured]
        for measure, (_, words) in MEASURES.items() if graders else ():
            lines = list[Cells]()
            for grader, rows in graders.items():
                cells = [_rule_figure([row for row in rows if row["edit"] == edit], measure) for edit in edits]
                lines.append((grader, count(max(row["n"] for row in rows)), *cells))
            header = ("Grader", "n", *map(_edit_title, edits))
            title = f"{maker.capitalize()}, {schemes}: {words}"
            yield Table(f"rules-{totals}-{family}-{measure}", title, header, lines)


def rule_takeaway(faithfulness: pa.Table) -> str:
    """Which grader that states its mark is closest to following the edits, by kind of scheme."""
    clauses = []
    for family, schemes in FAMILIES.items():
        graders = _graders(faithfulness, "stated", family)
        ratios = {name: _rule_figure(rows, "in_rubric").value for name, rows in graders.items()}
        defined = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        if defined:
            best = min(defined, key=lambda name: abs(defined[name] - 1))
            clauses.append(f"{best} follows edits of {schemes} best (mean in-rubric RSR {say.number(defined[best])})")
    return "; ".join(clauses) or "No grader that states its mark has an in-rubric RSR"


def rule_notes(faithfulness: pa.Table) -> Iterator[str]:
    """How far edits move the gold marks, and why ratios are missing."""
    changes = defaultdict[str, list[float]](list)
    for row in faithfulness.to_pylist():
        if row["gold_change"] is not None:
            changes[_edit_title(row["edit"])].append(row["gold_change"])
    mean_changes = (f"{edit} {say.number(fmean(values))}" for edit, values in changes.items())
    yield f"Mean change of the gold marks: {', '.join(mean_changes)}."
    missing = (row for row in faithfulness.to_pylist() if row["in_rubric"] is None)
    why = (f"{_grader_name(row['rater_id'])}, {_edit_title(row['edit'])}: {row['in_rubric_note']}" for row in missing)
    yield from dict.fromkeys(map(say.visible, why))


def _edit_title(edit: str) -> str:
    return edit.replace("x", "×")


def _graders(faithfulness: pa.Table, totals: Totals, family: Family) -> Graders:
    """Arms in their order, then other judges by name."""
    graders = defaultdict[str, list[Row]](list)
    for row in faithfulness.to_pylist():
        if (row["totals"], row["family"]) == (totals, family):
            graders[_grader_name(row["rater_id"])].append(row)
    arms = [name for name in ARMS.values() if name in graders]
    return {name: graders[name] for name in (*arms, *sorted(graders.keys() - {*arms}))}


def _grader_name(rater: str) -> str:
    """'edit_rl-0' as its arm in words; another judge's id as a name."""
    arm, _, seed = rater.rpartition("-")
    words = {str(name): words for name, words in ARMS.items()}
    return words[arm] if arm in words and seed.isdigit() else say.name(rater)


def _rule_figure(rows: Iterable[Row], measure: Measure) -> SeedFigure:
    begins, n = MEASURES[measure][0], "in_rubric_n" if measure == "in_rubric" else "n"
    low, high = f"{begins}_low", f"{begins}_high"
    return pooled([{"value": row[measure], "low": row[low], "high": row[high], "n": row[n]} for row in rows])
