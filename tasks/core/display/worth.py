"""What judges, juries and cascades are worth: the cost of judging an answer, agreement with people, and
errors among what would go out. All of a study on the same marked answers, whose marks no score has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.protocols import COMBINE
from rubricflow.tasks.core.contracts.tables.calibration import COST_UNITS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, line_chart
from rubricflow.tasks.core.display.page import Drawing, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Row, Rows, Table, count
from rubricflow.tasks.core.stats.arrays import defined
from rubricflow.tasks.core.stats.bootstrap import bootstrap, pair_terms, statistics_of_totals
from rubricflow.tasks.core.stats.promise import exact_interval, missed_by_constant, promise
from rubricflow.tasks.core.stats.verdict import Estimate

QUERIES = {
    "label_risks": "SELECT * FROM label_risks ORDER BY rater_id, response_id",
    "jurors": """
        SELECT g.rater_id, g.response_id, l.item_id, l.cluster, l.lowest, l.highest, l.step, l.human,
            avg(g.score) AS score
        FROM gradings AS g JOIN (SELECT DISTINCT ON (response_id) * FROM label_risks) AS l USING (response_id)
        WHERE g.rater_id IN (SELECT rater_id FROM attempts) AND g.rater_id NOT IN (SELECT rater_id FROM label_risks)
            AND g.score IS NOT NULL
        GROUP BY ALL ORDER BY g.rater_id, g.response_id""",
    "cost_of_rater": """
        SELECT rater_id, count(DISTINCT response_id) AS answers, sum(usd) AS usd,
            count(*) FILTER (usd IS NULL AND prompt_tokens + completion_tokens IS NOT NULL) AS unpriced,
            sum(prompt_tokens + completion_tokens)::DOUBLE AS tokens,
            count(*) FILTER (prompt_tokens + completion_tokens IS NULL AND usd IS NULL) AS uncounted
        FROM costs GROUP BY ALL ORDER BY ALL""",
    "cascade_limits": "SELECT * FROM cascade_limits ORDER BY scope, step",
    "lines": """
        SELECT DISTINCT ON (rater_b) rater_b AS name, value FROM metrics
        WHERE metric IN ('standing_qwk_item_mean', 'standing_qwk') AND rater_b IN ('people', 'text_only')
            AND slice = 'all' AND value IS NOT NULL ORDER BY rater_b, metric DESC""",
}
"""Over a connection with a view per table of a run."""
UNIT = (0.0, 1.0, 1.0)
"""Scores as shares of their scale; what is asked of them needs no steps."""
LINES = {"people": "people with each other", "text_only": "words alone"}


class Worth(NamedTuple):
    """One judge, jury or cascade.

    cost: of judging an answer, None where it is not known; agreement: QWK with people; error: share wrong of the
    released, by its own promise; released, n: marked answers; calibrated: whether scores were fitted to marks.
    """

    name: str
    cost: float | None
    agreement: Estimate
    error: Estimate
    released: int
    n: int
    calibrated: bool
    uncounted: int = 0
    """Calls, such as those cut off by their deadline, of which nobody says what they took: they are not in the cost."""


def worths(found: Mapping[str, pd.DataFrame], release: Row) -> tuple[list[Worth], str]:
    """All that judged a run's marked answers, cheapest first, and in what unit their costs are.

    found: query → its rows; release: settings, of which `risk`, `confidence`, `tolerance` and `by`.
    """
    limits, risks = found["cascade_limits"], found["label_risks"]
    calls = found["cost_of_rater"]
    costs, unit = rater_costs([*map(str, risks["rater_id"].unique())], calls, limits)
    lacking = {} if calls.empty else dict(zip(calls["rater_id"], calls["uncounted"], strict=True))
    together = "cascade-" if len(limits) else "jury:"
    lacking |= {rater: sum(lacking.values()) for rater in risks["rater_id"].unique() if rater.startswith(together)}
    judged = []
    for rater, rows in risks.groupby("rater_id", sort=False):
        name = str(rater)
        whole = str(rater).startswith("cascade-")
        if whole:
            released = int(limits["stopped"].sum())
            wrong = int(limits["wrong"].sum())
        else:
            released, wrong = _let_out(rows, release)
        error = Estimate(None)
        if released:
            error = Estimate(wrong / released, *exact_interval(wrong, released), n=released)
        steps = limits.loc[limits["rater_id"] == name, "step"]
        label = "the cascade" if whole else f"step {steps.iloc[0]}: {name}" if len(steps) else name
        judged.append(
            Worth(label, costs.get(name), _agreement(rows), error, released, len(rows), True, lacking.get(name, 0))
        )
    for rater, rows in found["jurors"].groupby("rater_id", sort=False):
        agreement = _agreement(rows)
        missing = lacking.get(str(rater), 0)
        judged.append(Worth(str(rater), costs.get(str(rater)), agreement, Estimate(None), 0, len(rows), False, missing))
    return sorted(judged, key=lambda one: (one.cost is None, one.cost or 0.0)), unit


def rater_costs(raters: Sequence[str], calls: pd.DataFrame, limits: pd.DataFrame) -> tuple[dict[str, float], str]:
    """Rater → what judging an answer costs it, and in what: US dollars where all are known, else tokens, else nothing.

    Calls that nobody counts are left out. A jury costs what all with calls do; a cascade each of its steps, as often as
    marked answers reach it.
    """
    if len(limits):
        costs = {str(rater): float(cost) for rater, cost in zip(limits["rater_id"], limits["cost"], strict=True)}
        before = limits.groupby("scope")["stopped"].cumsum() - limits["stopped"]
        asked = limits["most_risk"].notna() | (limits["step"] == 1)
        n = limits.loc[limits["step"] == 1, "n"].sum()
        whole = float((limits["cost"] * (limits["n"] - before) * asked).sum()) / max(n, 1)
        costs |= {rater: whole for rater in raters if rater.startswith("cascade-")}
        return costs, str(limits["unit"].iloc[0])
    # A call that was cut off says nothing of what it took: its judge costs at least what the others took.
    units = ("usd", "tokens") if len(calls) and not calls["unpriced"].any() else ("tokens",)
    unit = next((name for name in units if len(calls) and calls[name].notna().all()), None)
    if unit is None:
        return {}, "answers"
    own = {str(row["rater_id"]): float(row[unit]) / row["answers"] for row in calls.to_dict("records")}
    return own | {rater: sum(own.values()) for rater in raters if rater.startswith("jury:")}, unit


def _let_out(rows: pd.DataFrame, release: Row) -> tuple[int, int]:
    """Marked answers that the promise of a judge alone lets out, and those of them that are wrong."""
    released = wrong = 0
    scopes = [rows] if release["by"] == "set" else [own for _, own in rows.groupby("item_id")]
    for scope in scopes:
        own = scope[scope["open"] & ~scope["refused"].isin(["asks_nothing", "question_means"])]
        if not len(own):
            continue
        steps = ((own["human"] - own["lowest"]) / own["step"]).to_numpy()
        tops = ((own["highest"] - own["lowest"]) / own["step"]).round().to_numpy()
        constant = np.empty(len(own))
        for _, places in own.reset_index().groupby("item_id").groups.items():
            at = places.to_numpy()
            constant[at] = missed_by_constant(steps[at], tops[at][0], release["tolerance"]).mean()
        parts = own["risk"].to_numpy(), own["wrong"].to_numpy()
        made = promise(*parts, release["risk"], release["confidence"], own["cluster"].to_numpy(str), constant)
        released, wrong = released + made.released, wrong + made.wrong
    return released, wrong


def _agreement(rows: pd.DataFrame) -> Estimate:
    """QWK of the scores with people's, each as a share of its scale, so that scales may differ."""
    span = rows["highest"] - rows["lowest"]
    human, machine = (((rows[name] - rows["lowest"]) / span).clip(0, 1).to_numpy(float) for name in ("human", "score"))
    if len(rows) < 2:
        return Estimate(None)
    value = statistics_of_totals(pair_terms(human, machine, UNIT).sum(axis=0, keepdims=True))["qwk_continuous"][0]
    found = bootstrap(human, machine, rows["cluster"].to_numpy(str), UNIT, draws=1000)["qwk_continuous"]
    return Estimate(defined(value), found.low, found.high, clusters=found.clusters, n=len(rows))


def worth_section(found: Mapping[str, pd.DataFrame], release: Row, minutes: float | None = None) -> Section | None:
    """What each judge, jury and cascade of a run costs and is worth; None where there is one judge alone.

    found: as in `worths`; minutes: that a person takes for an answer, None where nobody says.
    """
    judged, unit = worths(found, release)
    lines = {LINES[row["name"]]: float(row["value"]) for row in found["lines"].to_dict("records")}
    return section_of(judged, unit, lines, release, minutes) if len(judged) > 1 else None


def compared(runs: Mapping[str, tuple[Mapping[str, pd.DataFrame], Row]]) -> Section | None:
    """The same of several runs side by side, by what they are called: of each what its judges cost and are worth by its
    own settings of release; None where nothing is marked. Costs in different units are left out."""
    judged = []
    units = set[str]()
    for name, (found, release) in runs.items():
        own, unit = worths(found, release)
        judged += [one._replace(name=f"{name} {one.name}") for one in own]
        units |= {unit} if any(one.cost is not None for one in own) else set()
    if not judged:
        return None
    if len(units) > 1:
        judged = [one._replace(cost=None) for one in judged]
    lines = {
        f"{name}: {LINES[row['name']]}": float(row["value"])
        for name, (found, _) in runs.items()
        for row in found["lines"].to_dict("records")
    }
    release = next(iter(runs.values()))[1]
    return section_of(judged, units.pop() if len(units) == 1 else "answers", lines, release, None)


def section_of(
    judged: Sequence[Worth], unit: str, lines: Mapping[str, float], release: Row, minutes: float | None
) -> Section:
    """The section. lines: what agreement is compared with → its value."""
    priced = [one for one in judged if one.cost is not None]
    times = 1
    while priced and times < 10**9 and max(one.cost or 0.0 for one in priced) * times < 1:
        times *= 1000
    what = COST_UNITS[unit].partition(",")[0]
    across = f"{what} for {'an answer' if times == 1 else f'{times:,} answers'}"
    header: tuple[str, ...] = (
        "",
        "marked answers",
        across,
        "QWK with people",
        "may go out",
        "wrong of these",
        "to people",
    )
    header += ("people's minutes for 100 answers",) if minutes else ()
    return Section(
        "worth",
        "Worth: what does it cost, and what is it worth?",
        f"What {say.plural(len(judged), 'judge')} cost, and how far they can be trusted",
        lead="On the marked answers, by scores that have not seen the answer's mark. What may go out keeps the "
        f"promise: at most {say.rate(release['risk'])} wrong. Numbers in brackets are 95% intervals.",
        drawings=tuple(_drawings(priced, times, across, lines)) if len(priced) > 1 else (),
        tables=(
            Table("worth", "Judges, juries and cascades", header, tuple(_cells(one, times, minutes) for one in judged)),
        ),
        notes=tuple(_notes(judged)),
    )


def _notes(judged: Sequence[Worth]) -> Iterator[str]:
    if not all(one.calibrated for one in judged):
        yield "Jurors alone are shown before calibration."
    for one in judged:
        if one.uncounted and one.cost is not None:
            calls = say.plural(one.uncounted, "call")
            yield f"{say.name(one.name)} costs more than shown: nobody counts what {calls} took, such as those cut off."


def _drawings(priced: Sequence[Worth], times: int, across: str, lines: Mapping[str, float]) -> Iterator[Drawing]:
    ends = [0.0, max(one.cost or 0.0 for one in priced) * times]
    kinds = {
        "Agreement with people (QWK)": [(one, one.agreement) for one in priced],
        "Share wrong of what may go out": [(one, one.error) for one in priced],
    }
    for title, estimates in kinds.items():
        series = []
        for one, estimate in estimates:
            if estimate.value is not None:
                point = ChartPoint((one.cost or 0.0) * times, estimate.value, estimate.low, estimate.high)
                series.append(ChartLine(one.name.partition(": ")[0], (point,)))
        if title.startswith("Agreement"):
            series += [ChartLine(name, tuple(ChartPoint(end, value) for end in ends)) for name, value in lines.items()]
        if series:
            up = "QWK" if title.startswith("Agreement") else "share wrong"  # a phone is narrow
            chart = line_chart(title, series, across, up, within=(0.0,), from_zero=True)
            yield Drawing(f"{title} by cost", chart)


def _cells(one: Worth, times: int, minutes: float | None) -> Cells:
    out = one.released / one.n if one.n and one.calibrated else None
    kept = None if out is None else 1 - out
    paid = None if one.cost is None else one.cost * times
    cost = "–" if paid is None else f"{paid:,.0f}" if paid >= 100 else say.number(paid, 2 if paid < 10 else 1)
    agreement, error = (
        Cell(estimate.value, estimate.low, estimate.high, digits=3, ends="interval", clusters=estimate.clusters)
        for estimate in (one.agreement, one.error)
    )
    out_of, left_of = ("–" if share is None else say.share(share) for share in (out, kept))
    cells: Cells = (say.name(one.name), count(one.n), cost, agreement, out_of, error, left_of)
    return (*cells, Cell(None if kept is None else 100 * kept * minutes, digits=0)) if minutes else cells


SAME = 0.9
"""Correlation of their errors from which two jurors say the same."""
MISSING = 0.05
"""Share of responses without a score from which a juror is told."""


def jury_sentences(rules: Rows, jurors: Rows) -> list[str]:
    """Of rows of `jury_rules` and `jurors`, the chosen rule first."""
    rule = next(row for row in rules if row["chosen"])
    who = ", ".join(f"{row['juror']}{_weight(row)}" for row in jurors)
    said = [f"{COMBINE[rule['rule']]} ({who}): {rule['reason']}{_figures(rule)}"]
    unscored = [f"{row['juror']} {row['unscored']:,}" for row in jurors if row["unscored"]]
    if unscored:
        said.append(f"responses that a juror gave no score: {', '.join(unscored)}")
    told = set[frozenset[str]]()
    for row in jurors:
        pair = frozenset({row["juror"], row["alike"]})
        if (row["alike_errors"] or 0) < SAME or row["without"] is None or pair in told:
            continue
        told.add(pair)
        first = f"{row['juror']} and {row['alike']} say nearly the same"
        saved = (
            "" if row["share_of_tokens"] is None else f" and saves {say.share(row['share_of_tokens'])} of the tokens"
        )
        change = f"{row['without']:+.3f} ± {row['without_se'] or 0:.3f}"
        said.append(
            f"{first} (their errors correlate {say.number(row['alike_errors'])}): leaving out "
            f"{row['juror']} changes agreement by {change}{saved}"
        )
    return said


def _weight(row: Row) -> str:
    return "" if row["weight"] is None else f" {say.number(row['weight'])}"


def _figures(rule: Row) -> str:
    """Agreement inside folds of n labels, and the single juror that agrees best; '' where nothing is known."""
    if rule["agreement"] is None:
        return ""
    figure = f"; correlation with people {say.number(rule['agreement'])} inside folds of {rule['n']:,} labels"
    if rule["ahead"] is None or rule["rule"] == "best":
        return figure
    gap = f"{rule['ahead']:+.3f} ± {rule['ahead_se'] or 0:.3f}"
    return f"{figure}, {gap} against the juror that agrees best, chosen inside them too"
