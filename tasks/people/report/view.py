"""A study's annotation as the content of its report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rubricflow.tasks.core.contracts.tables.people import AGREEMENT_METRICS, CONSTRUCTION_RULES, PHASES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Table
from rubricflow.tasks.people.report import people
from rubricflow.tasks.people.report.figures import (
    ALL,
    ALPHA,
    KAPPA,
    MOST,
    AgreementFigures,
    AnnotationView,
    pair_title,
    sentence,
    table,
)
from rubricflow.tasks.people.report.people import spans


def page(view: AnnotationView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: AnnotationView) -> Page:
    """What the page shows."""
    agreement = AgreementFigures(view.agreements, view.names)
    sections = (
        _agreement(agreement),
        _labels(view),
        _queue(view),
        _progress(view),
        _inventory(view),
        _provenance(view),
    )
    return Page(
        kind="Annotation report",
        study=say.name(view.study),
        title=sentence(agreement),
        lead=f"{say.plural(len(view.names), 'concept')}. {people.settled_takeaway(view.labels)}.",
        keys=tuple(_keys(agreement)),
        sections=tuple(section for section in sections if section is not None),
    )


def _keys(agreement: AgreementFigures) -> Iterator[Key]:
    for raters, phase in agreement.pairs[:1]:
        for metric, words in ((ALPHA, "Krippendorff's alpha"), (KAPPA, "Kappa, quadratic"), ("exact", "Equal levels")):
            cell = agreement.cell(raters, phase, ALL, metric)
            if cell.value is not None:
                below = _ends(cell), f"{agreement.labels(raters, phase, ALL)} labels"
                yield Key(f"{words}, {pair_title(raters, phase)}", say.number(cell.value), below)


def _ends(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return ""
    return f"95% interval {say.number(cell.low)} to {say.number(cell.high)}{cell.mark}"


def _agreement(agreement: AgreementFigures) -> Section | None:
    if not agreement.pairs:
        return None
    return Section(
        "agreement",
        "Agreement: do raters of concepts say the same?",
        _weakest(agreement),
        "Krippendorff's alpha for ordered levels, with the 95% interval over responses: 1 is perfect, 0 what chance "
        "would give. Final labels hold those on which the annotators agree and nobody was asked, so that each agrees "
        "with them more easily than with the other one.",
        drawings=tuple(_alphas(agreement)),
        tables=tuple(table(agreement, *pair) for pair in agreement.pairs),
        notes=(*agreement.notes(), *agreement.cautions()),
    )


def _alphas(agreement: AgreementFigures) -> Iterator[Drawing]:
    """The alpha of each concept between the first pairs of raters, all on one axis."""
    estimates = {pair: agreement.estimates(*pair, ALPHA) for pair in agreement.pairs}
    ends: list[float] = []
    for estimate in chain.from_iterable(concepts.values() for concepts in estimates.values()):
        ends += [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    for raters, phase in agreement.pairs[:MOST]:
        if concepts := estimates[raters, phase]:
            title = pair_title(raters, phase)
            yield Drawing(title, spans(f"Alpha, {title}", phase, concepts, ends))


def _weakest(agreement: AgreementFigures) -> str:
    """The concept on which the first raters agree least."""
    raters, phase = agreement.pairs[0]
    alphas: dict[str, float] = {}
    for name, words in agreement.concepts.items():
        alpha = agreement.cell(raters, phase, name, ALPHA).value
        if name != ALL and alpha is not None:
            alphas[words] = alpha
    if not alphas:
        return f"{AGREEMENT_METRICS[ALPHA].capitalize()} is undefined for every concept"
    least = min(alphas, key=lambda words: alphas[words])
    return f"{pair_title(raters, phase)}, agree least on {least}: alpha {say.number(alphas[least])}"


def _labels(view: AnnotationView) -> Section:
    corrected = people.corrected_table(view.labels, people.audited(view.queue))
    return Section(
        "labels",
        "Labels: what settled them?",
        people.settled_takeaway(view.labels),
        tables=(people.settled_table(view.labels), corrected),
    )


def _queue(view: AnnotationView) -> Section:
    return Section(
        "queue",
        "Queue: what are people asked about?",
        people.queue_takeaway(view.queue, view.votes),
        tables=(people.reason_table(view.queue), people.case_table(view.queue, view.votes)),
    )


def _progress(view: AnnotationView) -> Section | None:
    progress = people.progress_table(view.votes)
    if not progress.rows:
        return None
    return Section(
        "people",
        "People: who has done what?",
        f"{say.plural(len(progress.rows), 'person', 'persons')} voted",
        tables=(progress,),
    )


def _inventory(view: AnnotationView) -> Section | None:
    checks = view.constructions.to_pylist()
    if not checks:
        return None
    broken = sum(row["outcome"] == "broken" for row in checks)
    decided = sum(row["outcome"] != "unknown" for row in checks)
    rows: list[Cells] = []
    for row in sorted(checks, key=lambda row: ("broken", "unknown", "kept").index(row["outcome"])):
        named = view.names.get(row["subject"], row["subject"])
        numbers = Cell(row["value"], digits=2), Cell(row["limit"], digits=2)
        words = say.name(named), CONSTRUCTION_RULES[row["rule"]], PHASES[row["phase"]], row["outcome"]
        rows.append((*words, *numbers, say.visible(row["detail"])))
    header = ("Of", "rule", "by", "outcome", "value", "limit", "in words")
    return Section(
        "inventory",
        "Inventory: is it built as it should be?",
        f"{say.count(broken)} of {say.plural(decided, 'check')} that could be made are not kept",
        tables=(Table("constructions", "Checks", header, tuple(rows)),),
    )


def _provenance(view: AnnotationView) -> Section:
    facts = (("run", view.run_id), *((say.visible(name), say.count(many)) for name, many in view.counts.items()))
    return Section("made", "How it was made", "What this rests on", facts=facts)
