"""The tables of GradeAgentOps (section 3, Tables 4 to 10) over its configurations: raw scores of all responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rubricflow.tasks.core.contracts.settings.experiment import ArmPair, GradeAgentOps
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Table, bar, count, number
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.experiment.arm import (
    ArmAgreement,
    BootstrapPlan,
    ExperimentArm,
    Gains,
    agreement,
    gains,
    on_same_answers,
    per_response,
)
from rubricflow.tasks.grading.evaluate.experiment.cases import cases

SIGNALS = {
    "covered_gold_evidence_invalid": "invalid gold evidence",
    "forced_completeness_from_gold": "forced completeness",
    "short_answer_gate": "short-answer gate",
    "banned_evidence_invalid_dropped": "banned evidence dropped",
    "semantic_exhausted_but_accepted": "semantic exhausted",
}
"""The verifier's signals, as Table 8 calls them."""
PLOTTED = ("covered_gold_evidence_invalid", "forced_completeness_from_gold", "semantic_exhausted_but_accepted")
COMPARED = {"mae": "MAE", "qwk": "QWK", "within_2": "within ±2"}


def tables(
    arms: Mapping[str, ExperimentArm], setting: GradeAgentOps, reference: str, plan: BootstrapPlan
) -> Iterator[Table]:
    """Tables 4 to 11; Table 4 where a second rater is named."""
    baseline = arms[setting.baseline]
    full = arms[setting.full]
    named = {setting.baseline, setting.full}.union(*setting.pairs, *setting.memory)
    shown = [arm for name, arm in arms.items() if name in named]
    if setting.second:
        yield human(baseline, setting.second, reference, plan)
    yield main(shown, reference, plan)
    yield paired(arms, setting.pairs, plan)
    yield by_type(baseline, full, plan)
    yield by_item(baseline, full, plan)
    yield outcomes(shown)
    if setting.memory:
        yield memory(arms, setting.memory, plan)
    yield efficiency(shown)
    yield cases(baseline, full, reference, setting.cases)


def human(arm: ExperimentArm, second: str, reference: str, plan: BootstrapPlan) -> Table:
    """Table 4: how well two people agree, overall and by type of item; errors are reference − second."""
    rows = list[Cells]()
    by_type = ((str(kind), part) for kind, part in arm.scores.groupby("type", sort=True))
    for name, part in (("overall", arm.scores), *by_type):
        agreed = agreement(part, f"human:{second}", f"human:{reference}", arm.scale, plan)
        if agreed.n:
            means = number(agreed.mean_a), number(agreed.mean_b)
            figures = (_figure(agreed, key) for key in ("bias", "mae", "rmse", "qwk", "icc"))
            rows.append((name, count(agreed.n), *means, *figures))
    gaps = (arm.scores[f"human:{reference}"] - arm.scores[f"human:{second}"]).dropna()
    shares = gaps.round(6).value_counts(normalize=True).sort_index()
    bars = tuple(Bar(f"{gap:+g}" if gap else "0", float(share)) for gap, share in shares.items())
    return Table(
        "gao_4",
        f"Table 4: agreement of the people {second} and {reference}",
        ("items", "n", f"mean {second}", f"mean {reference}", "bias", "MAE", "RMSE", "QWK", "ICC(2,1)"),
        tuple(rows),
        (f"bias is {reference} − {second}",),
        (Panel(f"Figure 2: share of responses by difference {reference} − {second}", bars),),
    )


def main(arms: Sequence[ExperimentArm], reference: str, plan: BootstrapPlan) -> Table:
    """Table 5: every configuration against the reference, on the responses that all score; `unscored` is its own."""
    rows = list[Cells]()
    errors = list[Bar]()
    kappas = list[Bar]()
    for arm, shared in zip(arms, on_same_answers([arm.scores for arm in arms], "raw"), strict=True):
        agreed = agreement(shared, "target", "raw", arm.scale, plan)
        unscored = int((arm.scores["target"].notna() & arm.scores["raw"].isna()).sum())
        if not agreed.n:
            rows.append((arm.name, count(0), count(unscored), *[Cell(None)] * 8))
            continue
        keys = ("bias", "mae", "rmse", "qwk", "within_1", "within_2")
        figures = (_figure(agreed, key) for key in keys)
        means = number(agreed.mean_b), number(agreed.mean_a)
        rows.append((arm.name, count(agreed.n), count(unscored), *means, *figures))
        errors += bar(arm.name, agreed["mae"])
        kappas += bar(arm.name, agreed["qwk"])
    best_first = sorted(errors, key=lambda bar: bar.value)
    return Table(
        "gao_5",
        f"Table 5: configurations against {reference}, raw scores",
        (
            "configuration",
            "n",
            "unscored",
            "mean model",
            f"mean {reference}",
            "bias",
            "MAE",
            "RMSE",
            "QWK",
            "within ±1",
            "within ±2",
        ),
        tuple(rows),
        (
            f"bias is model − {reference}; intervals from {plan.draws:,} draws of authors",
            "n: the responses that every configuration scores",
        ),
        (
            Panel("Figure 3: MAE, best first", tuple(best_first)),
            Panel("Figure 3: QWK, best first", tuple(sorted(kappas, key=lambda kappa: -kappa.value))),
        ),
    )


def paired(arms: Mapping[str, ExperimentArm], pairs: Sequence[ArmPair], plan: BootstrapPlan) -> Table:
    """Table 6: gains of one configuration over another on the same responses, whole authors resampled."""
    rows = []
    for pair in pairs:
        gains, n = _gains(arms[pair.base], arms[pair.better], plan)
        for key, name in COMPARED.items():
            gain, p = gains[key]
            rows.append((f"{pair.better} vs. {pair.base}", name, count(n), number(gain, ends="interval"), number(p, 4)))
    return Table(
        "gao_6",
        "Table 6: paired bootstrap over authors",
        ("comparison", "metric", "n", "gain", "p"),
        tuple(rows),
        (f"a positive gain is better; {plan.draws:,} draws, two-sided percentile p, never 0",),
    )


def by_type(baseline: ExperimentArm, full: ExperimentArm, plan: BootstrapPlan) -> Table:
    """Table 7: baseline and full configuration by type of item."""
    rows = list[Cells]()
    for name in sorted(baseline.scores["type"].dropna().unique()):
        row, _, n = _both(_only(baseline, "type", name), _only(full, "type", name), plan)
        rows.append((str(name), count(n), *row))
    header = ["items", "n"]
    for key in ("MAE", "QWK"):
        header += [f"{baseline.name} {key}", f"{full.name} {key}", f"Δ{key}"]
    return Table(
        "gao_7",
        f"Table 7: {baseline.name} and {full.name} by type of item",
        tuple(header),
        tuple(rows),
    )


def by_item(baseline: ExperimentArm, full: ExperimentArm, plan: BootstrapPlan) -> Table:
    """Figure 4: change in error, question by question."""
    rows = []
    bars = list[Bar]()
    for item in sorted(baseline.scores["item_id"].unique()):
        gains, n = _gains(_only(baseline, "item_id", item), _only(full, "item_id", item), plan)
        gain, p = gains["mae"]
        rows.append((str(item), count(n), number(gain, ends="interval"), number(p, 4)))
        bars += bar(str(item), gain)
    return Table(
        "gao_figure_4",
        f"Figure 4: change in error by question, MAE({baseline.name}) − MAE({full.name})",
        ("item", "n", "ΔMAE", "p"),
        tuple(rows),
        (f"positive: {full.name} errs less; p is not corrected for the number of questions",),
        (Panel("ΔMAE by question", tuple(bars)),),
    )


def outcomes(arms: Sequence[ExperimentArm]) -> Table:
    """Table 8: what the verifier found, as shares of the responses; those of calls are of the responses asked about."""
    rows = list[Cells]()
    plotted: dict[str, list[Bar]] = {key: [] for key in PLOTTED}
    for arm in arms:
        calls = per_response(arm.attempts)
        rates = {key: signal_rate(arm, key) for key in SIGNALS}
        accepted, clean = ((calls["repairs"] == 0).mean(), calls["clean"].mean()) if len(calls) else (None, None)
        shares = (accepted, clean, signal_rate(arm, "contract_fail"), *rates.values())
        rows.append((arm.name, *map(number, shares)))
        for key in PLOTTED:
            plotted[key].append(Bar(arm.name, rates[key]))
    return Table(
        "gao_8",
        "Table 8: outcomes of the verifier",
        ("configuration", "Pass@1", "clean at once", "contract fail", *SIGNALS.values()),
        tuple(rows),
        (
            "Pass@1: accepted without a repair, so always 1 where nothing may be repaired",
            "clean at once: no first reply to the response broke a rule, which compares across configurations",
        ),
        tuple(Panel(f"Figure 5: {SIGNALS[key]}", tuple(bars)) for key, bars in plotted.items()),
    )


def memory(arms: Mapping[str, ExperimentArm], pairs: Sequence[ArmPair], plan: BootstrapPlan) -> Table:
    """Table 9: what each memory adds."""
    rows = list[Cells]()
    effects: dict[str, list[Bar]] = {"mae": [], "qwk": []}
    for pair in pairs:
        base = arms[pair.base]
        better = arms[pair.better]
        row, gains, _ = _both(base, better, plan)
        rows.append((f"{pair.base} → {pair.better}", *row))
        for key, bars in effects.items():
            bars += bar(f"{pair.base} → {pair.better}", gains[key][0])
    return Table(
        "gao_9",
        "Table 9: effects of the memories",
        ("comparison", "base MAE", "with MAE", "ΔMAE", "base QWK", "with QWK", "ΔQWK"),
        tuple(rows),
        ("a positive Δ is better",),
        tuple(Panel(f"Figure 6: Δ{COMPARED[key]}", tuple(bars)) for key, bars in effects.items()),
    )


def efficiency(arms: Sequence[ExperimentArm]) -> Table:
    """Table 10: calls and their cost, per response that was asked about."""
    rows = list[Cells]()
    attempts = []
    seconds = []
    for arm in arms:
        calls = per_response(arm.attempts)
        if calls.empty:
            rows.append((arm.name, count(0), *[Cell(None)] * 7))
            continue
        calls_per_response = calls["calls"].mean()
        repairs = (number(calls["repairs"].mean()), number((calls["repairs"] > 0).mean()))
        tokens = (number(calls[column].mean(), 1) for column in ("prompt_tokens", "completion_tokens"))
        timed = calls["seconds"].dropna()
        times = (number(timed.sum(), 1), number(timed.mean())) if len(timed) else (Cell(None, digits=1), Cell(None))
        total = count(int(calls["calls"].sum()))
        rows.append((arm.name, total, number(calls_per_response), *repairs, *tokens, *times))
        attempts.append(Bar(arm.name, float(calls_per_response)))
        if len(timed):
            seconds.append(Bar(arm.name, float(timed.mean())))
    return Table(
        "gao_10",
        "Table 10: calls and their cost",
        (
            "configuration",
            "calls",
            "calls per response",
            "repair rate",
            "responses repaired",
            "prompt tokens",
            "reply tokens",
            "engine seconds",
            "seconds per response",
        ),
        tuple(rows),
        (
            "repair rate: repairs per response, as published; tokens and seconds per response, all its calls",
            "seconds are the engine's as recorded with each reply; requests of one batch overlap, so they are no wall "
            "time. A dash: the backend does not tell",
        ),
        (
            Panel("Figure 7: calls per response", tuple(attempts)),
            Panel("Figure 7: seconds per response", tuple(seconds)),
        ),
    )


def signal_rate(arm: ExperimentArm, key: str) -> float:
    """Share of the responses whose grading carries a signal."""
    return float(arm.gradings["signals"].map(lambda signals: signals.get(key, 0) > 0).mean())


def _figure(agreed: ArmAgreement, key: str) -> Cell:
    return number(agreed[key], ends="interval" if key in ("mae", "qwk") else "none")


def _gains(base: ExperimentArm, better: ExperimentArm, plan: BootstrapPlan) -> tuple[Gains, int]:
    """(statistic → (gain of the better over the base, p), responses compared), raw scores; less of an error is
    better."""
    a, b = (arm.scores.assign(calibrated=arm.scores["raw"]) for arm in (base, better))
    found, n = gains(a, b, base.scale, plan)
    if not n:
        return dict.fromkeys(COMPARED, (Estimate(None), None)), 0
    gain, p = found["mae"]
    value, low, high = (None if end is None else 0.0 - end for end in (gain.value, gain.high, gain.low))
    return found | {"mae": (gain._replace(value=value, low=low, high=high), p)}, n


def _both(base: ExperimentArm, better: ExperimentArm, plan: BootstrapPlan) -> tuple[list[Cell], Gains, int]:
    """(MAE of both and the gain, QWK of both and the gain; the gains; over so many responses that both score)."""
    gains, n = _gains(base, better, plan)
    shared = on_same_answers([base.scores, better.scores], "raw") if n else [base.scores[:0]] * 2
    agreed = [agreement(frame, "target", "raw", base.scale, plan) for frame in shared]
    row = []
    for key in ("mae", "qwk"):
        row += [number(found[key].value) for found in agreed]
        row.append(number(gains[key][0], ends="interval"))
    return row, gains, n


def _only(arm: ExperimentArm, column: str, value: str) -> ExperimentArm:
    """The arm with the responses of one item or type."""
    return arm._replace(scores=arm.scores[arm.scores[column] == value])
