"""A study's annotation as the content of its report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.contracts.tables.people import AGREEMENT_METRICS, CONSTRUCTION_RULES, PHASES
from tasks.display import say
from tasks.display.page import rendered
from tasks.display.section import Drawing, Key, Page, Section
from tasks.display.table import Cell, Cells, Table
from tasks.report.annotation import people
from tasks.report.annotation.charts import spans
from tasks.report.annotation.figures import ALL, ALPHA, KAPPA, MOST, AgreementFigures, sentence, table, titled
from tasks.report.annotation.inputs import AnnotationView


def page(view: AnnotationView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: AnnotationView) -> Page:
    """What the page shows."""
    agreement = AgreementFigures(view.agreements, view.names)
    sections = (_agreement(agreement), _labels(view), _queue(view), _progress(view), _built(view), _made(view))
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
                yield Key(f"{words}, {titled(raters, phase)}", say.number(cell.value), below)


def _ends(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return ""
    return f"95% interval {say.number(cell.low)} to {say.number(cell.high)}{cell.mark}"


def _agreement(agreement: AgreementFigures) -> Section | None:
    shown = [(*pair, agreement.estimates(*pair, ALPHA)) for pair in agreement.pairs]
    ends = [
        end
        for *_, found in shown
        for one in found.values()
        for end in (one.value, one.low, one.high)
        if end is not None
    ]
    if not agreement.pairs:
        return None
    return Section(
        "agreement",
        "Agreement: do raters of concepts say the same?",
        _weakest(agreement),
        "Krippendorff's alpha for ordered levels, with the 95% interval over responses: 1 is perfect, 0 what chance "
        "would give. Final labels hold those on which the annotators agree and nobody was asked, so that each agrees "
        "with them more easily than with the other one.",
        drawings=tuple(
            Drawing(titled(raters, phase), spans(f"Alpha, {titled(raters, phase)}", phase, found, ends))
            for raters, phase, found in shown[:MOST]
            if found
        ),
        tables=tuple(table(agreement, *pair) for pair in agreement.pairs),
        notes=(*agreement.notes(), *agreement.cautions()),
    )


def _weakest(agreement: AgreementFigures) -> str:
    """The concept on which the first raters agree least."""
    raters, phase = agreement.pairs[0]
    of = {
        words: cell.value
        for name, words in agreement.concepts.items()
        if name != ALL and (cell := agreement.cell(raters, phase, name, ALPHA)).value is not None
    }
    if not of:
        return f"{AGREEMENT_METRICS[ALPHA].capitalize()} is undefined for every concept"
    least = min(of, key=lambda words: of[words] or 0.0)
    return f"{titled(raters, phase)}, agree least on {least}: alpha {say.number(of[least] or 0.0)}"


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
    made = people.progress_table(view.votes)
    if not made.rows:
        return None
    return Section(
        "people",
        "People: who has done what?",
        f"{say.plural(len(made.rows), 'person', 'persons')} voted",
        tables=(made,),
    )


def _built(view: AnnotationView) -> Section | None:
    found = view.constructions.to_pylist()
    if not found:
        return None
    broken = sum(row["outcome"] == "broken" for row in found)
    known = sum(row["outcome"] != "unknown" for row in found)
    rows: list[Cells] = []
    for row in sorted(found, key=lambda row: ("broken", "unknown", "kept").index(row["outcome"])):
        named = view.names.get(row["subject"], row["subject"])
        numbers = Cell(row["value"], digits=2), Cell(row["limit"], digits=2)
        words = say.name(named), CONSTRUCTION_RULES[row["rule"]], PHASES[row["phase"]], row["outcome"]
        rows.append((*words, *numbers, say.visible(row["detail"])))
    return Section(
        "inventory",
        "Inventory: is it built as it should be?",
        f"{say.count(broken)} of {say.plural(known, 'check')} that could be made are not kept",
        tables=(
            Table(
                "constructions", "Checks", ("Of", "rule", "by", "outcome", "value", "limit", "in words"), tuple(rows)
            ),
        ),
    )


def _made(view: AnnotationView) -> Section:
    facts = (("run", view.run_id), *((say.visible(name), say.count(many)) for name, many in view.counts.items()))
    return Section("made", "How it was made", "What this rests on", facts=facts)
