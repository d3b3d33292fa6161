"""What the judge's quotes are worth, and how far its probabilities of single decisions can be believed."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.quotes import WorthOfQuotes
from rubricflow.tasks.core.display.section import (
    MOST,
    Content,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
)
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.promise import exact_interval
from rubricflow.tasks.grading.report.figures import Figures


def evidence_section(
    worth: Row, quotes: Rows, decisions: Rows, supports: Rows, to_read: Rows, figures: Figures
) -> Section:
    """worth: as WORTH_OF_QUOTES gives it; quotes, decisions: counts of what became of them; supports: of the second
    look at them; to_read: some of its passages."""
    question, of = "Evidence: what is a quote worth?", WorthOfQuotes(worth)
    folds = [*_second_look(supports, to_read), *_fates(quotes, decisions), *_criteria(figures), *_decisions(figures)]
    if not of.sentence:
        unknown = "this judge gave no quotes" if decisions else "this judge took no decision on single criteria"
        return Section("evidence", question, "Whether credit is grounded is not known", unknown=unknown, parts=folds)
    rows: list[tuple[str, str, str]] = [
        ("Quotes that stand where they were cited", "standing", "quotes"),
        ("Points credited on such a quote that a person credits, too", "credited_by_people", "credited"),
        ("Points not credited that a person credits", "not_credited_by_people", "not_credited"),
        (
            f"Quotes that are sentence k for criterion k (by chance {of.chance if worth['placed'] else ''})",
            "in_order",
            "placed",
        ),
    ]
    lines: list[tuple[Content, ...]] = [
        (words, Named(f"{say.count(worth[part])} of {say.count(worth[whole])}"), Named(of.share(part, whole)))
        for words, part, whole in rows
        if worth[whole]
    ]
    parts: list[Part] = [Grid((), lines, "tight narrow")]
    if not worth["credited"]:
        parts.append(Text("No person marked single criteria: nobody checked whether the quoted words fit.", "note"))
    if of.warning:
        parts.append(Text(of.warning, "caution"))
    return Section("evidence", question, of.sentence, parts=[*parts, *folds])


def _second_look(supports: Rows, to_read: Rows) -> list[Part]:
    """What a second look found among credits and among criteria without credit, with people's word where there is
    one; and passages of each kind to read."""
    lines = list[tuple[Content, ...]]()
    for row in supports:
        is_credit = row["kind"] == "credit"
        words = "Credits looked at again" if is_credit else "Criteria without credit, with the sentence closest to them"
        doubts = "below the limit" if is_credit else "proposed to a reviewer"
        lines.append((words, row["looks"], Named(f"{say.count(row['doubted'])} {doubts}")))
        if row["asked"]:
            lines.append(("of these a further judge was asked about", row["asked"], ""))
        kind = "people do not give" if is_credit else "people give"
        for told, n, of in (
            (f"of those marked, {kind}", row["wrong"], row["marked"]),
            (f"of those {doubts}, {kind}", row["found"], row["doubted_marked"]),
            (f"of those that {kind}, {doubts}", row["found"], row["wrong"]),
        ):
            if of:
                low, high = exact_interval(n, of)
                share = f"{say.share(n / of)} [{say.share(low)}, {say.share(high)}]"
                lines.append((told, Named(f"{say.count(n)} of {say.count(of)}"), Named(share)))
    if not lines:
        return []
    known = any(row["known"] for row in supports)
    lead = (
        "Marked answers are judged by what was learnt from the others. Intervals take decisions for independent."
        if known
        else "Too few marks, and no further judge: quotes are ranked by similarity, and none is doubted."
    )
    read = Grid(
        ("look", "people", "looked for", "passage", "probability", "response"), [tuple(row.values()) for row in to_read]
    )
    return [
        Fold("A second look: do quotes say what they are credited for?", [Text(lead), Grid((), lines, "narrow")]),
        Fold("Passages of the second look to read, at most 50 of each kind by chance", [read]),
    ]


def _fates(quotes: Rows, decisions: Rows) -> list[Part]:
    """What became of every quote, and of the decisions whose quotes failed."""
    quoted, decided = (sum(row["n"] for row in rows) for rows in (quotes, decisions))
    lines = [(f"Quote {QUOTES[row['status']]}", row["n"], Named(say.share(row["n"] / quoted))) for row in quotes]
    kinds = {
        "Credit that asks for no quote": "ungrounded",
        "Criterion without a usable verdict": "unscored",
    }
    counts = {
        f"Quote failed: {words}": sum(row["n"] for row in decisions if row["action"] == action)
        for action, words in ACTIONS.items()
        if action != "none"
    }
    counts |= {words: sum(row["n"] for row in decisions if row[name]) for words, name in kinds.items()}
    lines += [(words, n, Named(say.share(n / decided))) for words, n in counts.items() if n]
    return [Fold("What became of quotes and decisions", [Grid((), lines, "tight narrow")])] if lines else []


def _criteria(figures: Figures) -> list[Part]:
    """Each criterion's correlation with people's scores, alone and given length; the strongest first."""
    criteria = []
    for name in figures.values("criterion_r", "criterion"):
        plain, partial = (figures.any(metric, "criterion", name) for metric in ("criterion_r", "criterion_partial_r"))
        criteria.append((say.name(name), Figure(plain, "signed"), Figure(partial, "signed")))
    criteria.sort(key=lambda row: -abs(row[1].estimate.value or 0.0))
    if not criteria:
        return []
    lead = "Correlation with the human score. Where it falls to nothing given length, the criterion may measure length."
    table = Grid(("Criterion", "plain", "given length"), criteria[:MOST], "tight narrow")
    return [
        Fold("Which criteria go with people's scores", [Text(lead), table, *left_out(criteria, "criteria", "metrics")])
    ]


def _decisions(figures: Figures) -> list[Part]:
    """How sure the judge is of its decisions and how often it is right; nothing where it gives no probabilities."""
    names = figures.values("decision_accuracy", "confidence")
    if not names or figures.machine("decision_ece", "raw").value is None:
        return []
    sure, right = (
        say.share(figures.machine(f"decision_{name}", "raw").value or 0.0) for name in ("confidence", "accuracy")
    )
    rows = []
    for name in names:
        confidence = figures.machine("decision_confidence", "raw", "confidence", name)
        accuracy = figures.machine("decision_accuracy", "raw", "confidence", name)
        rows.append((say.share(confidence.value or 0.0), Figure(accuracy, "share"), accuracy.n))
    listed = [figures.named(metric.name, figures.machine(metric.name, "raw")) for metric in figures.listed("decisions")]
    lead = "Held-out decisions that people marked too, in groups of about equal size by the judge's probability."
    table = Grid(("sure", "right", "decisions"), rows, "tight narrow")
    title = f"The judge is {sure} sure of its decisions and right in {right}"
    return [Fold(title, [Text(lead), table, *figure_table(listed)])]
