"""How far the judge of a log can be trusted: the first section of such a run's report, and its headline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.tables.calibration import Refusal
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import (
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
from rubricflow.tasks.core.display.verdict import ReleaseVerdict
from rubricflow.tasks.core.stats.promise import exact_interval, labels_for_promise
from rubricflow.tasks.core.stats.scores import steps_off
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
_TERMS = {"question": "criterion", "questions": "criteria", "student": "case", "students": "cases"}
_TERMS |= {"to question": "by criterion", "to a question": "by a criterion"}
_TERMS |= {"author": "case", "authors": "cases", "response": "answer", "responses": "answers", "marked": "labelled"}
"""What a study of answers calls a thing → what the study of a log calls it."""
_ASIDE_OR_TERM = re.compile(
    rf"\u2068[^\u2069]*\u2069|`[^`]*`|\b(?:{'|'.join(sorted(_TERMS, key=len, reverse=True))})\b", re.IGNORECASE
)
"""A name or a command, which stays as it is, or a term."""


def headline(found: ReleaseVerdict) -> str:
    """How many of the judge's verdicts hold without a person."""
    alone = found.released
    answers = say.plural(found.answers, "verdict")
    if not alone:
        return f"None of {answers} of this judge can be relied on without a person."
    return f"{say.count(alone)} of {answers} of this judge can be relied on without a person; the others not yet."


def known(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], figures: Figures, release: Row, wrong: str
) -> tuple[str, str]:
    """What the labels tell now, and how many a promise would take: a sentence each, both '' without any label.

    scores, scales: as in `trust_section`; wrong: what a wrong score is. Answers that go to a person whatever their risk
    count for the first sentence alone.
    """
    labelled = scores.dropna(subset=["target", "calibrated"])
    if labelled.empty:
        return "", ""
    metric = "qwk_item_mean" if labelled["item_id"].nunique() > 1 else "qwk"
    agreement = figures.machine(metric, "raw")
    people = figures.people(metric)
    with_people = (
        f"people with each other {_shown(people)} on {say.count(people.n)}, " if people.value is not None else ""
    )
    off = steps_off(labelled, scales).abs() > release["tolerance"] + 1e-9
    wrong_share = float(off.mean())
    share = Estimate(wrong_share, *exact_interval(int(off.sum()), len(off)), n=len(off))
    ends = f" (95% interval {say.interval(agreement, 'number')})" if agreement.low is not None else ""
    value = f"QWK {say.number(agreement.value)}{ends}" if agreement.value is not None else "a QWK that is not known"
    told = (
        f"On {say.plural(len(labelled), 'labelled verdict')} this judge agrees with people at {value}, {with_people}"
        f"and after calibration {say.share(wrong_share)} ({say.interval(share, 'share')}) of its verdicts are {wrong}."
    )
    by_risk = labelled["route_reason"].isna() | labelled["route_reason"].isin([*get_args(Refusal), "risk"])
    by_risk &= labelled["risk"].notna()
    takes = labels_for_promise(labelled["risk"][by_risk], off[by_risk], release["risk"], release["confidence"])
    promise = f"a promise of at most {say.rate(release['risk'])} wrong at {say.rate(release['confidence'])} confidence"
    if takes is None:
        return told, (
            f"More labels alone would probably not allow {promise}: even the surest verdicts are wrong too "
            "often, or too few to tell."
        )
    needed, coverage = takes
    each = " of each criterion" if release["by"] == "item" and labelled["item_id"].nunique() > 1 else ""
    more = "" if each else f", {say.count(max(0, needed - len(labelled)))} more than now"
    takes_words = f"{promise} would probably take about {say.count(needed)} labels{each}{more}"
    return told, f"{say.sentence(takes_words)}, for {say.share(coverage)} of the verdicts."


def in_terms_of_logs(text: str) -> str:
    """Words of our own as the study of a log has them: criteria, cases and labels; names in isolates stay."""

    def term(found: re.Match[str]) -> str:
        word = found.group()
        other = _TERMS.get(word.lower(), word)
        return other.capitalize() if word[0].isupper() and other != word else other

    return text if isinstance(text, Markup) else _ASIDE_OR_TERM.sub(term, text)


def section_of_log(section: Section) -> Section:
    """A section in terms of logs; what the log or a rubric says in it stays."""
    return replace(
        section,
        question=in_terms_of_logs(section.question),
        title=in_terms_of_logs(section.title),
        lead=in_terms_of_logs(section.lead),
        unknown=in_terms_of_logs(section.unknown),
        parts=_parts_of_log(section.parts),
    )


def _parts_of_log(parts: Sequence[Part]) -> list[Part]:
    found = list[Part]()
    for part in parts:
        if isinstance(part, Text):
            found.append(part._replace(text=in_terms_of_logs(part.text)))
        elif isinstance(part, Fold):
            found.append(Fold(in_terms_of_logs(part.summary), _parts_of_log(part.parts)))
        elif isinstance(part, Grid):
            rows = [tuple(map(_cell_of_log, row)) for row in part.rows]
            header = tuple(map(_cell_of_log, part.header))
            found.append(replace(part, header=header, rows=rows, caption=in_terms_of_logs(part.caption)))
        elif isinstance(part, Facts):
            facts = [(name, fact if name == "Run" else in_terms_of_logs(fact)) for name, fact in part.facts]
            found.append(Facts(facts))
        else:
            found.append(part)
    return found


def _cell_of_log(cell: Any) -> Any:
    if isinstance(cell, Named):
        return Named(in_terms_of_logs(cell.text), cell.remark)
    return in_terms_of_logs(cell) if isinstance(cell, str) else cell


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
    has_words = bool(figures.values("text_qwk", "item"))
    rows: list[tuple[Content, ...]] = []
    estimates = []
    for item, part in labelled.groupby("item_id", sort=False):
        hit, false = credit_rates(part, scales[str(item)])
        agreement = figures.machine("qwk", "raw", "item", str(item))
        people = figures.people("qwk", "item", str(item))
        words = figures.any("text_qwk", "item", str(item))
        estimates += [agreement, people, *([words] if has_words else []), hit, false]
        beside = [Figure(agreement, by="m"), Figure(people, by="h"), *([Figure(words)] if has_words else [])]
        rows.append((say.name(str(item)), len(part), *beside, Figure(hit, "share"), Figure(false, "share")))
    title = f"Agreement with people {_shown(whole)}, on {say.plural(len(labelled), 'labelled verdict')}"
    lead = (
        "Agreement is quadratically weighted kappa: 1 is full agreement, 0 chance. A verdict, or a person, credits "
        "from the middle of the scale on; behind every figure stands its 95% interval. The last column is false credit."
    )
    if has_words:
        lead += " Words alone is what a model of the answers' words reaches that never saw a verdict."
    header = tuple(name for name in _HEADER if has_words or name != "words alone")
    table = long_list(Grid(header, rows, "stack"), "criteria", "metrics", more="more criteria")
    return Section("trust", question, title, parts=[Text(lead), *table, *unknown_notes(estimates), *about])


def credit_rates(part: pd.DataFrame, scale: ScaleBounds) -> tuple[Estimate, Estimate]:
    """Of what people credit the share that the judge credits, and of what they do not credit that share (false credit),
    each with its exact binomial interval: every answer counts once. part: columns target and raw."""
    middle = (scale[0] + scale[1]) / 2 - 1e-9
    by_people = part["target"] >= middle
    by_judge = part["raw"] >= middle
    rates = []
    for asked, why in ((by_people, "people credit no answer"), (~by_people, "people credit every answer")):
        n = int(asked.sum())
        hits = int((asked & by_judge).sum())
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
