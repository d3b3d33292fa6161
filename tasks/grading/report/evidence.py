"""What the judge's quotes are worth, and how far its probabilities of single decisions can be believed; where machine
and people part, and whether groups of authors are treated alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.contracts import Record, ScaleBounds
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import (
    MOST,
    Content,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    body,
    figure_table,
    left_out,
)
from rubricflow.tasks.core.display.quotes import WorthOfQuotes
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.promise import exact_interval
from rubricflow.tasks.core.stats.scores import steps_off
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import TEMPLATE, Dot, ForestRow, forest, forest_axis
from rubricflow.tasks.grading.report.figures import NOTHING_SCORED, Figures


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
    lines = []
    for words, part, whole in rows:
        if worth[whole]:
            counted = f"{say.count(worth[part])} of {say.count(worth[whole])}"
            lines.append((words, Named(counted), Named(of.share(part, whole))))
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
        ("look", "people", "looked for", "passage", "probability", "response"),
        [tuple(map(say.visible, row.values())) for row in to_read],
        "read stack",
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


MOST_SCALES, MOST_LEVELS = 3, 12
SHOWN, DECIDED, BAND = 30, 100, 0.10
"""Responses that a group needs to be shown, and to be decided on; |DSM| that is flagged."""
HEADS = ("DSM", "", "gap at equal human score, points", "gap a fair machine would show")
EXPLAINED = {"osa": "squared differences (OSA)", "osd": "differences (OSD)", "csd": "differences at equal scores (CSD)"}


def errors_section(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], figures: Figures, cases: Sequence[Part]
) -> Section:
    """How far off scores are, by level and by group. cases: the worst disagreements."""
    question = "Errors and fairness: where, and for whom?"
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    parts = [*confusions(both, scales), *cases, *group_parts(figures, both)]
    if both.empty:
        return Section("errors", question, "Where machine and people part is not known", unknown=NOTHING_SCORED)
    off = steps_off(both, scales)
    title = f"{say.share(float((off.abs() <= 1 + 1e-9).mean()))} of scores are within one level of people's"
    missed = off[off.abs() > 0.5]
    too_high = float((missed > 0).mean()) if len(missed) >= 5 else 0.5
    if not 0.4 < too_high < 0.6:
        title += f"; misses are mostly too {'high' if too_high > 0.5 else 'low'}"
    return Section("errors", question, title, parts=parts)


def confusions(both: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> list[Part]:
    """Counts of answers by people's level and the machine's, a table a scale, that with most answers first; of a
    long scale neighbouring levels together."""
    tables = []
    by_scale = both.groupby(both["item_id"].map(scales))
    for scale, rows in sorted(by_scale, key=lambda pair: -len(pair[1]))[:MOST_SCALES]:
        low, high, step = scale
        levels = round((high - low) / step) + 1
        bands = min(levels, MOST_LEVELS)
        of_level = np.arange(levels) * bands // levels
        names = []
        for band in range(bands):
            first, *_, last = (*np.flatnonzero(of_level == band)[:1], *np.flatnonzero(of_level == band)[-1:])
            ends = dict.fromkeys(say.level(low + int(level) * step) for level in (first, last))
            names.append("–".join(ends))
        people, machine = (of_level[to_levels(rows[name].to_numpy(float), *scale)] for name in ("target", "calibrated"))
        counts = pd.crosstab(people, machine).reindex(index=range(bands), columns=range(bands), fill_value=0)
        caption = f"Counts of {len(rows):,} held-out answers, scale {say.level(low)} to {say.level(high)}"
        table: Record = {"caption": caption, "names": names, "rows": counts.to_numpy().tolist()}
        tables.append(body(TEMPLATE, "confusion", table))
    lead = Markup(
        'Row: <span class="h key">people</span>; column: <span class="m key">machine</span>; shade: share of the row; '
        "outlined: the same."
    )
    return [Fold("Which scores are taken for which", [Text(lead), *tables])] if tables else []


class Group(NamedTuple):
    """One subgroup of a variable: how much higher it stands by the machine than by people, and what is said of it."""

    name: str
    dsm: Estimate
    said: str
    cells: tuple[Content, ...] = (None, None)


def group_parts(figures: Figures, both: pd.DataFrame) -> list[Part]:
    """The groups of every variable on one axis, and how much a variable explains."""
    variables = [column.removeprefix("group:") for column in both.columns if column.startswith("group:")]
    if not variables:
        return [Text("Whether groups are treated alike is untested: the study names no group of the authors.", "note")]
    every = {name: groups_of(name, figures, both[f"group:{name}"].value_counts()) for name in variables}
    lead = (
        f"How much higher a group stands by the machine than by people, in SD (DSM), overall shift taken out; band: "
        f"±{BAND:.2f}. Groups of fewer than {SHOWN} are not shown, those of fewer than {DECIDED} not decided."
    )
    rows = {name: [_row(group) for group in groups[:MOST]] for name, groups in every.items()}
    on = forest_axis([row for some in rows.values() for row in some], BAND)
    parts: list[Part] = [Text(_groups_title([*every.values()]), "h3"), Text(lead)]
    for name, some in rows.items():
        parts.append(forest(say.name(name), HEADS, some, on, BAND))
        parts += left_out(every[name], "groups", "metrics")
    explained = [
        (f"{say.name(name)}: {words}", Figure(figures.machine(metric, "calibrated", name)))
        for name in variables
        for metric, words in EXPLAINED.items()
    ]
    return [*parts, Fold("How much the groups explain (adjusted R²)", figure_table(explained))]


def groups_of(variable: str, figures: Figures, sizes: pd.Series[int]) -> list[Group]:
    """The groups of a variable: those decided first, the furthest from 0 first, then those undecided or too small."""
    values = figures.values("dsm", variable)
    compared = figures.values("csd_difference", variable)
    groups = []
    for name in values:
        estimate = figures.machine("dsm", "calibrated", variable, name)
        names = ("csd_difference", "csd_of_noise")
        difference, noise = (Figure(figures.machine(one, "calibrated", variable, name), "signed") for one in names)
        low, high = estimate.low, estimate.high
        said = "undecided"
        if low is not None and high is not None and estimate.n >= DECIDED:
            if low > BAND or high < -BAND:
                said = "outside"
            elif -BAND <= low <= high <= BAND:
                said = "inside"
        is_reference = bool(compared) and name not in compared
        groups.append(
            Group(say.name(name), estimate, said, (Named("reference"), None) if is_reference else (difference, noise))
        )
    groups.sort(key=lambda group: (group.said == "undecided", -abs(group.dsm.value or 0.0), group.name))
    few = [
        Group(say.name(str(value)), Estimate(None, n=n, note=f"fewer than {SHOWN} responses"), "too few")
        for value, n in sizes.items()
        if value not in values
    ]
    return groups + few


def _row(group: Group) -> ForestRow:
    figure = Named("") if group.said == "too few" else Figure(group.dsm, "signed", "m")
    is_flagged = group.said == "outside"
    return ForestRow(
        group.name, group.dsm.n, (Dot(group.dsm, "m"),), (figure, Named(group.said), *group.cells), is_flagged
    )


def _groups_title(variables: Sequence[Sequence[Group]]) -> str:
    every = [group for groups in variables for group in groups]
    flagged = sorted(
        (group for group in every if group.said == "outside"), key=lambda group: -abs(group.dsm.value or 0.0)
    )
    if flagged:
        value = flagged[0].dsm.value or 0.0
        amount = f"{say.number(abs(value))} SD too {'low' if value < 0 else 'high'}"
        most = f"{flagged[0].name}, scored {amount}"
        return f"One group differs: {most}" if len(flagged) == 1 else f"{len(flagged)} groups differ, most {most}"
    undecided = sum(group.said == "undecided" for group in every)
    if not undecided and not any(group.said == "inside" for group in every):
        return "Whether groups are treated alike is not known"
    also = f"; {undecided} of {len(every)} cannot be decided" if undecided else ""
    return f"No group is clearly outside ±{BAND:.2f} SD{also}"
