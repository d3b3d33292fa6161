"""All the tables that an experiment asks for, and its main contrast in one sentence: what it was run to find out;
and both as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.contracts.settings.experiment import (
    Ablation,
    CalibrationSize,
    Experiment,
    Perturbation,
    Rulers,
    Stability,
    backed,
    induced,
    presented,
)
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart, legend, share_chart
from rubricflow.tasks.core.display.page import Drawing, Page, Section, rendered
from rubricflow.tasks.core.display.table import (
    SIMULATED,
    Bar,
    Cell,
    Cells,
    LevelShares,
    Panel,
    Table,
    bar,
    count,
    labelled,
    number,
)
from rubricflow.tasks.core.stats.agreement import level_count, to_levels
from rubricflow.tasks.core.stats.bootstrap import is_few
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.agree import compare
from rubricflow.tasks.grading.evaluate.experiment import cases, gradeagentops
from rubricflow.tasks.grading.evaluate.experiment.arm import (
    ArmAgreement,
    BootstrapPlan,
    ExperimentArm,
    agreement,
    gains,
    on_same_answers,
    per_response,
)

FIGURES = {
    "decision_accuracy": "accuracy",
    "decision_confidence": "confidence",
    "decision_ece": "ECE",
    "decision_ece_by_chance": "ECE by chance",
    "decision_brier": "Brier",
    "decision_rps": "RPS",
}
"""Metric of a run and its heading."""


def tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> list[Table]:
    """The tables in the order of the papers; they say so where any rater is simulated.

    arms: those of the file and those that tables add; reference: the human score compared with, as a rater id.
    """
    setting = experiment.tables
    found = list[Table]()
    plan = BootstrapPlan(experiment.draws, experiment.seed)
    if setting.gradeagentops:
        found += gradeagentops.tables(arms, setting.gradeagentops, reference, plan)
    if setting.orders:
        found += cases.tables(arms, setting.orders, plan)
    if setting.rulers:
        found += rulers_tables(arms, setting.rulers, plan)
    if setting.calibration_size:
        found.append(calibration_size(arms, setting.calibration_size, plan))
    if setting.perturbation:
        found.append(perturbation(arms, setting.perturbation, plan))
    if setting.ablation:
        found.append(ablation(arms, setting.ablation, plan))
    if setting.stability:
        found.append(stability(arms, setting.stability, plan))
    if setting.decisions:
        found.append(decisions([arms[name] for name in setting.decisions.arms]))
    return [labelled(table) for table in found] if any(arm.simulated for arm in arms.values()) else found


def decisions(arms: Sequence[ExperimentArm]) -> Table:
    """Accuracy, confidence and calibration error of the likeliest level against people's marks."""
    rows = list[Cells]()
    for arm in arms:
        metrics = arm.metrics[arm.metrics["metric"].isin(FIGURES)].set_index("metric")
        n = int(metrics["n"].max()) if len(metrics) else 0
        cells = []
        for metric in FIGURES:
            if metric not in metrics.index:
                cells.append(Cell(None))
                continue
            ends = metrics.loc[[metric], ["value", "low", "high", "clusters"]].to_numpy(dtype=float)[0].tolist()
            value, low, high, clusters = (None if math.isnan(end) else end for end in ends)
            estimate = Estimate(value, low, high, clusters=None if clusters is None else int(clusters))
            cells.append(number(estimate, ends="interval"))
        rows.append((arm.name, count(n), *cells))
    return Table(
        "decisions",
        "Probabilities of single decisions against people's marks",
        ("configuration", "decisions", *FIGURES.values()),
        tuple(rows),
        (
            "held-out responses; ECE by chance: what a perfectly calibrated judge would show with as many decisions",
            "a dash: the judge gives no probabilities, or decides on other levels than people marked",
        ),
    )


def main_contrast(arms: Mapping[str, ExperimentArm], experiment: Experiment, plan: BootstrapPlan) -> str:
    """One sentence about the studied arm and the best other one: QWK of both on the same responses, the difference
    with its 95% interval, and n; '' for an experiment that sets no arm against another.

    The studied arm: the full configuration of GradeAgentOps (raw scores), the last method of Rulers on its first
    backbone or the full arm of an ablation (calibrated scores of held-out responses).
    """
    every = _contrasted(arms, experiment)
    if not every:
        return ""
    frames = dict(zip(every, on_same_answers([*every.values()], "calibrated"), strict=True))
    studied, *others = frames
    scale = arms[studied].scale
    kappas = {
        name: agreement(frame, "target", "calibrated", scale, plan)["qwk"].value for name, frame in frames.items()
    }
    comparable = {name: kappas[name] or 0.0 for name in others if kappas[name] is not None and len(frames[studied])}
    if not comparable:
        return f"{studied} shares no scored responses with another arm: there is nothing to compare."
    best = max(comparable, key=comparable.__getitem__)
    gaps, n, resampled = compare(frames[best], frames[studied], scale, plan.draws, plan.seed)
    gap = gaps["qwk"].estimate
    low = gaps["qwk"].low
    high = gaps["qwk"].high
    own = kappas[studied]
    clusters = gaps["qwk"].clusters
    counted = say.plural(n, "response")
    if resampled != "response":
        counted += f" of {say.plural(clusters or 0, resampled)}"
    simulated = SIMULATED if any(arms[name].simulated for name in frames) else ""
    if own is None or gap is None or low is None or high is None:
        return f"The agreement of {studied} with people cannot be computed: {counted}.{simulated}"
    other = best if len(others) == 1 else f"{best}, the best of {len(others)} others"
    verdict = f"{studied} is not shown to agree better or worse with people than {other}"
    if low > 0 or high < 0:
        verdict = f"{studied} agrees {'better' if low > 0 else 'less'} with people than {other}"
    figures = f"QWK {say.number(own)} beside {say.number(comparable[best])}"
    sure = f"{say.signed(gap)}, 95% interval {say.signed(low)} to {say.signed(high)}"
    caution = ", too few to be sure of the interval" if is_few(clusters) else ""
    return f"{verdict}: {figures}, a difference of {sure} ({counted}{caution}).{simulated}"


def _contrasted(arms: Mapping[str, ExperimentArm], experiment: Experiment) -> dict[str, pd.DataFrame]:
    """The score frames that the experiment sets against each other, the studied arm's first; `calibrated` is what is
    compared."""
    tables = experiment.tables
    if tables.gradeagentops:
        names = [tables.gradeagentops.full, tables.gradeagentops.baseline]
        return {name: arms[name].scores.assign(calibrated=arms[name].scores["raw"]) for name in names}
    if tables.rulers and len(tables.rulers.methods) > 1:
        backbone = next(iter(tables.rulers.backbones), None)
        *others, studied = (backed(name, backbone) if backbone else name for name in tables.rulers.methods)
        return {name: arms[name].held_out for name in (studied, *others)}
    if tables.ablation:
        return {name: arms[name].held_out for name in (tables.ablation.full, *tables.ablation.others.values())}
    return {}


# The tables of Rulers: calibrated scores of the held-out responses, by method and backbone, calibration size,
# presentation of the rubric, ablation and induction.

SE_ALONE = "QWK ± bootstrap standard error, whole authors resampled; held-out responses that all arms score"
SE_NOTE = f"{SE_ALONE}, mapped as each study says"
STANDARD = "standard"


def rulers_tables(arms: Mapping[str, ExperimentArm], setting: Rulers, plan: BootstrapPlan) -> Iterator[Table]:
    """Table 2 with Figure 2, and Table 8: all methods on each backbone, as given where the file names none."""
    methods = setting.methods
    labels = list(setting.backbones) or [""]
    every = [arms[backed(name, label) if label else name] for label, name in product(labels, methods)]
    shared = _alike(every)
    kappas = list[Cells]()
    tokens = list[Cells]()
    figures = list[Panel | LevelShares]()
    bars = []
    for start, label in enumerate(labels):
        of_label = slice(start * len(methods), (start + 1) * len(methods))
        alike = shared[of_label]
        place = f" on {label}" if label else ""
        name_of = label or "as given"
        agreements = [_held_out(arm, plan) for arm in alike]
        kappas.append((name_of, *map(_kappa, agreements)))
        figures.append(Panel(f"QWK{place}", _bars(methods, agreements)))
        low, high, step = alike[0].scale
        levels = tuple(f"{low + step * level:g}" for level in range(level_count(low, high, step)))
        people = _levels(max(alike, key=lambda arm: len(arm.scores)), "target")
        machines = {name: _levels(arm, "calibrated") for name, arm in zip(methods, alike, strict=True)}
        figures.append(LevelShares(f"Figure 2: held-out scores{place}", levels, people, machines))
        means = []
        for name, arm in zip(methods, every[of_label], strict=True):
            calls = per_response(arm.attempts)
            known = (calls["prompt_tokens"] + calls["completion_tokens"]).dropna()
            means.append(float(known.mean()) if len(known) else None)
            bars += [Bar(f"{name} {label}".strip(), float(known.mean()))] if len(known) else []
        tokens.append((name_of, *(number(mean, 1) for mean in means)))
    header = ("backbone", *methods)
    yield Table("rulers_2", "Table 2: QWK by method and backbone", header, tuple(kappas), (SE_NOTE,), tuple(figures))
    yield Table(
        "rulers_8",
        "Table 8: tokens per response",
        header,
        tuple(tokens),
        ("prompts and replies of all calls about a response; a dash: the backend does not tell",),
        (Panel("Tokens per response", tuple(bars)),),
    )


def _alike(arms: Sequence[ExperimentArm]) -> list[ExperimentArm]:
    """The arms of a table with the held-out responses that all of them score."""
    shared = on_same_answers([arm.held_out for arm in arms], "calibrated")
    return [arm._replace(scores=rows) for arm, rows in zip(arms, shared, strict=True)]


def calibration_size(arms: Mapping[str, ExperimentArm], setting: CalibrationSize, plan: BootstrapPlan) -> Table:
    """Tables 3 and 11: the same held-out responses, phase III fitted to more and more labels."""
    rows = list[Cells]()
    missing = []
    frames = {}
    for name in setting.arms:
        uncalibrated = arms[name].held_out
        frames[name, 0] = uncalibrated.assign(calibrated=uncalibrated["raw"])
        for size in setting.sizes:
            frame = arms[name].resized[size]
            if frame is None:
                missing.append(f"{name} has no {size} labelled responses in its calibration split")
            else:
                frames[name, size] = frame[frame["split"] == "test"]
    shared = dict(zip(frames, on_same_answers([*frames.values()], "calibrated"), strict=True))
    for name in setting.arms:
        of_arm = {size: frame for (arm, size), frame in shared.items() if arm == name}
        agreed = {
            size: agreement(frame, "target", "calibrated", arms[name].scale, plan) for size, frame in of_arm.items()
        }
        kappas = (_kappa(agreed[size]) if size in agreed else Cell(None) for size in setting.sizes)
        rows.append((name, count(agreed[0].n), _kappa(agreed[0]), *kappas))
    return Table(
        "rulers_11",
        "Table 11: calibration control, QWK by number of labels",
        ("method", "n", "no calibration", *(f"N = {size}" for size in setting.sizes)),
        tuple(rows),
        (
            SE_ALONE,
            "every method is mapped by phase III (ridge and map of distributions), whatever its study says",
            *missing,
        ),
    )


def perturbation(arms: Mapping[str, ExperimentArm], setting: Perturbation, plan: BootstrapPlan) -> Table:
    """Figure 3: QWK under each presentation, and the largest shift from the standard one."""
    variants = [STANDARD, *(variant for variant in setting.variants if variant != STANDARD)]
    words = [say.worded(variant) for variant in variants]
    rows = list[Cells]()
    panels = []
    every = _alike([arms[presented(name, variant)] for name in setting.arms for variant in variants])
    for place, name in enumerate(setting.arms):
        agreements = [_held_out(arm, plan) for arm in every[place * len(variants) :][: len(variants)]]
        standard, *others = (agreed["qwk"].value for agreed in agreements)
        shifts = [abs(value - standard) for value in others if value is not None and standard is not None]
        rows.append((name, *map(_kappa, agreements), number(max(shifts, default=None))))
        panels.append(Panel(f"QWK of {name} by presentation", _bars(words, agreements)))
    return Table(
        "rulers_figure_3",
        "Figure 3: QWK by presentation of the rubric",
        ("method", *words, "largest shift"),
        tuple(rows),
        (SE_NOTE, "largest shift: largest absolute difference from the standard presentation"),
        tuple(panels),
    )


def _bars(labels: Iterable[str], agreements: Sequence[ArmAgreement]) -> tuple[Bar, ...]:
    bars = list[Bar]()
    for label, agreed in zip(labels, agreements, strict=True):
        bars += bar(label, agreed["qwk"])
    return tuple(bars)


def ablation(arms: Mapping[str, ExperimentArm], setting: Ablation, plan: BootstrapPlan) -> Table:
    """Table 4: the full arm, and what changes without a part of it, paired over the same responses."""
    full, *others = _alike([arms[name] for name in (setting.full, *setting.others.values())])
    agreed = _held_out(full, plan)
    rows: list[Cells] = [(setting.full, count(agreed.n), _kappa(agreed), Cell(None), Cell(None))]
    bars = list(bar(setting.full, agreed["qwk"]))
    for label, other in zip(setting.others, others, strict=True):
        agreed = _held_out(other, plan)
        found = gains(full.held_out, other.held_out, full.scale, plan)[0]
        change, p = found.get("qwk", (Estimate(None), None))
        rows.append((label, count(agreed.n), _kappa(agreed), number(change, ends="interval"), number(p, 4)))
        bars += bar(label, agreed["qwk"])
    return Table(
        "rulers_4",
        f"Table 4: ablations of {setting.full}",
        ("setting", "n", "QWK", f"change from {setting.full}", "p"),
        tuple(rows),
        (SE_NOTE, "change: paired over the same responses, with its 95% interval"),
        (Panel("QWK by setting", tuple(bars)),),
    )


def stability(arms: Mapping[str, ExperimentArm], setting: Stability, plan: BootstrapPlan) -> Table:
    """Table 9: QWK of bundles induced independently, their mean and sample standard deviation."""
    bundles = _alike([arms[induced(setting.arm, seed)] for seed in setting.seeds])
    agreements = [_held_out(arm, plan) for arm in bundles]
    values = pd.Series([agreed["qwk"].value for agreed in agreements], dtype=float).dropna()
    mean = float(values.mean()) if len(values) else None
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Table(
        "rulers_9",
        f"Table 9: QWK of {setting.arm} over {len(agreements)} induced bundles",
        ("method", *(f"run {seed}" for seed in setting.seeds), "mean", "SD"),
        ((setting.arm, *map(_kappa, agreements), number(mean), number(sd)),),
        (SE_NOTE, "SD: sample standard deviation over the runs"),
    )


def _levels(arm: ExperimentArm, column: str) -> tuple[float, ...]:
    low, high, step = arm.scale
    scores = arm.held_out[column].dropna().to_numpy(float)
    counts = np.bincount(to_levels(scores, low, high, step), minlength=round((high - low) / step) + 1)
    return tuple(float(share) for share in counts / max(len(scores), 1))


def _held_out(arm: ExperimentArm, plan: BootstrapPlan) -> ArmAgreement:
    return agreement(arm.held_out, "target", "calibrated", arm.scale, plan)


def _kappa(agreed: ArmAgreement) -> Cell:
    return number(agreed["qwk"], ends="se")


SIMULATED_RATER = (
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
        missing=SIMULATED_RATER if simulated else "",
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
