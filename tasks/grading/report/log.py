"""How far the judge of a log can be trusted: the first section of such a run's report, and its headline."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import (
    Content,
    Facts,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    long_list,
    unknown_notes,
)
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.display.verdict import ReleaseVerdict, ScaleBounds
from rubricflow.tasks.core.stats.promise import exact_interval
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import Figures

_HEADER = (
    "Criterion",
    Named("answers", "n"),
    "judge with people",
    "people with each other",
    "words alone",
    "credits where people do",
    "credits where people do not",
)
_LONGEST = 300


def headline(found: ReleaseVerdict) -> str:
    """How many of the judge's verdicts hold without a person."""
    alone, answers = found.released, say.plural(found.answers, "verdict")
    if not alone:
        return f"None of {answers} of this judge can be relied on without a person."
    return f"{say.count(alone)} of {answers} of this judge can be relied on without a person; the others not yet."


def trust_section(log: Row, scores: pd.DataFrame, scales: dict[str, ScaleBounds], figures: Figures) -> Section:
    """log: as `LoggedJudge`; scores: the score frame of the labelled answers; scales: item → (min, max, step)."""
    question = "Trust: how far does this judge go with people?"
    facts = [*_facts(log)]
    remarks: list[Part] = [Text(say.sentence(say.visible(remark)), "note") for remark in log["remarks"]]
    about: list[Part] = [Fold("What the log tells of the judge", [Facts(facts)]), *remarks]
    labelled = scores.dropna(subset=["target", "raw"])
    if labelled.empty:
        return Section("trust", question, "No label says", unknown="no labelled answer has a verdict", parts=about)
    whole = figures.machine("qwk_item_mean" if labelled["item_id"].nunique() > 1 else "qwk", "raw")
    rows: list[tuple[Content, ...]] = []
    estimates = []
    for item, part in labelled.groupby("item_id", sort=False):
        hit, false = credit_rates(part, scales[str(item)])
        agreement, people, words = (
            figures.machine("qwk", "raw", "item", str(item)),
            figures.people("qwk", "item", str(item)),
            figures.any("text_qwk", "item", str(item)),
        )
        estimates += [agreement, people, words, hit, false]
        rows.append(
            (
                say.name(str(item)),
                len(part),
                Figure(agreement, by="m"),
                Figure(people, by="h"),
                Figure(words),
                Figure(hit, "share"),
                Figure(false, "share"),
            )
        )
    title = f"Agreement with people {_shown(whole)}, on {say.plural(len(labelled), 'labelled verdict')}"
    lead = (
        "Agreement is quadratically weighted kappa: 1 is full agreement, 0 chance. Words alone is what a model of the "
        "answers' words reaches that never saw a verdict. A verdict, or a person, credits from the middle of the scale "
        "on; behind every figure stands its 95% interval. The last column is false credit."
    )
    table = long_list(Grid(_HEADER, rows), "criteria", "metrics", more="more criteria")
    return Section("trust", question, title, parts=[Text(lead), *table, *unknown_notes(estimates), *about])


def credit_rates(part: pd.DataFrame, scale: ScaleBounds) -> tuple[Estimate, Estimate]:
    """Of what people credit the share that the judge credits, and of what they do not credit that share (false credit),
    each with its exact binomial interval: every answer counts once. part: columns target and raw."""
    middle = (scale[0] + scale[1]) / 2 - 1e-9
    by_people, by_judge = part["target"] >= middle, part["raw"] >= middle
    rates = []
    for asked, why in ((by_people, "people credit no answer"), (~by_people, "people credit every answer")):
        n, hits = int(asked.sum()), int((asked & by_judge).sum())
        low, high = exact_interval(hits, n) if n else (None, None)
        rates.append(Estimate(hits / n, low, high, n=n) if n else Estimate(None, note=why))
    return rates[0], rates[1]


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "is not known"
    ends = f" ({say.interval(estimate, 'number')})" if estimate.low is not None else ""
    return f"{say.number(estimate.value)}{ends}"


def _facts(log: Row) -> Iterator[tuple[str, str]]:
    yield "Tool", f"{log['tool']} {log['version'] or ''}".strip()
    yield "Files", ", ".join(say.visible(name) for name in log["files"])
    for name, fact in log["told"].items():
        yield say.visible(name), say.cut(say.visible(fact), _LONGEST)
    yield "Digest", f"{log['digest'][:12]}: the calibration holds for this judge and is refused for another"
