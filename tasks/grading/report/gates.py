"""Can the scores be used: what is promised about released ones or why nothing is, what the gates say, what to look at
first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.tables.evaluation import OUTCOMES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import (
    MOST,
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
from rubricflow.tasks.core.display.verdict import SECOND_MARKER, against_constant, too_small_words, wanted_words
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.promise import PromiseNeeds, fewest_without_error
from rubricflow.tasks.core.stats.scores import steps_off
from rubricflow.tasks.core.stats.verdict import Estimate, margin
from rubricflow.tasks.grading.report.charts import outcome_shape
from rubricflow.tasks.grading.report.figures import Figures

ORDER = ("fail", "undecided", "unknown", "pass")
COVERED = (0.25, 0.5, 0.75, 1.0)
"""Shares of the answers, surest first, of which the page says how many would be wrong."""
MOST_LOOKS = 4


def use_section(
    gates: Rows,
    rules: Rows,
    figures: Figures,
    covered: Sequence[tuple[float, float]],
    wrong: str,
    why_nothing: str,
    compared: int,
) -> Section:
    """What may go out and what the gates say. covered: as `wrong_by_coverage` gives it; wrong: what a wrong score is;
    why_nothing: why no score goes out, '' where some do; compared: answers on which the head compares raters."""
    release: list[Part] = [Text("What may go out", "h3")]
    if why_nothing:
        release.append(Text(why_nothing))
    of_rules: list[Part] = [Text(_rule(row, wrong), "note") for row in rules[:MOST]]
    if len(rules) > 1:
        folded = [*of_rules, *left_out(rules, "rules", "release_rules")]
        release.append(Fold("What may go out of each question", folded))
    elif not why_nothing:
        release += of_rules
    above = above_promise(gates)
    if above:
        shown = [(say.name(row["value_of"]), row["n"], Figure(_estimate(row), "share")) for row in above[:MOST]]
        listed = Grid(("Question", "released held-out scores", "wrong, 95% interval"), shown, "tight narrow")
        words = "Questions above the promise, or with too few checked scores to be sure of it"
        release.append(Fold(words, [listed, *left_out(above, "questions", "verdicts")]))
    if covered:
        lines = [(say.rate(share), Named(say.share(rate))) for share, rate in covered]
        release.append(Grid(("released, surest first", f"of these {wrong}"), lines, "tight narrow"))
    intervals = [figures.named(metric.name, figures.any(metric.name)) for metric in figures.listed("routing")]
    release.append(Fold("Figures of intervals and order", figure_table(intervals)))
    if not gates:
        unknown = "there are no human scores to hold the machine's against"
        return Section("use", "Can I use it?", "No gate could be asked", unknown=unknown, parts=release)
    ordered = sorted(gates, key=lambda row: (ORDER.index(row["outcome"]), _weight(row, figures)))
    # All answers as one set flatter a gate: where there is a mean over questions, that counts.
    means_last = sorted(ordered, key=lambda row: row["value_of"] != "all")
    of_gate = {row["gate"]: row for row in means_last if row["slice"] == "all"}
    overall = [row for row in ordered if row in of_gate.values()]
    others = [row for row in ordered if row not in overall]
    counts = Counter(row["outcome"] for row in overall)
    said = [f"{counts[key]} {OUTCOMES[key]}" for key in ORDER if counts[key]]
    lead = (
        "A gate is met or missed only where its whole 95% interval lies on one side of the threshold. Gates judge all "
        "held-out scores, also those that are not released: what to do concerns those."
    )
    if any(row["gate"] == "length" for row in gates):
        lead += " The length gate is missed unless the data show that the score is more than length."
    if compared and any(row["gate"] == "machine_qwk" and row["n"] != compared for row in overall):
        lead += f" The head of the page counts the {say.plural(compared, 'answer')} that all whom it compares score"
        lead += " (words alone or another run may lack some); a gate counts all that its own figure can be told of."
    parts: list[Part] = [Text(lead)]
    open_ones = [row for row in overall if row["outcome"] in ("fail", "undecided")]
    settled = [row for row in overall if row not in open_ones]
    for rows, words in ((open_ones, ""), (settled, "met or not known"), (others, "of questions and groups")):
        if rows:
            table: list[Part] = [_gate_table(rows[:MOST], figures), *left_out(rows, "gates", "verdicts")]
            parts += [Fold(f"{say.plural(len(rows), 'gate')} {words}", table)] if words else table
    title = f"Of {say.plural(len(overall), 'gate')} over all questions, {', '.join(said)}"
    return Section("use", "Can I use it?", title, parts=[*parts, *release])


def _gate_table(rows: Rows, figures: Figures) -> Grid:
    lines = []
    for row in rows:
        unit = figures.unit(row["metric"])
        more = row["labels_needed"]
        source = Markup('{} <span class="source">{}</span>').format(_bound(row, unit), row["source"])
        outcome = outcome_shape(row["outcome"]) + OUTCOMES[row["outcome"]]
        labels = Markup(' <span class="source">{} labels decide</span>').format(say.more_labels(more)) if more else ""
        todo = "" if row["outcome"] == "pass" else row["if_missed"]
        question = Named(_question(row, figures), _where(row))
        lines.append((question, outcome + labels, Figure(_estimate(row), unit), row["n"], Named(source), todo))
    heads = ("Gate", "outcome", "estimate, 95% interval", "n", "wanted", "if missed")
    return Grid(heads, lines, "verdict stack", marks=[f"o-{row['outcome']}" for row in rows])


def _question(row: Row, figures: Figures) -> str:
    return figures.questions.get(row["gate"], say.worded(row["gate"]).capitalize())


def _where(row: Row) -> str:
    """The slice of a gate; '' where it is the whole set."""
    if row["slice"] == "all":
        return "" if row["value_of"] == "all" else row["value_of"]
    return f"{say.worded(row['slice'])} {say.name(row['value_of'])}"


def _bound(row: Row, unit: Unit) -> str:
    """The threshold of a gate; '' where it has none."""
    is_share = unit in ("share", "signed_share")
    ends = {"at least": row["least"], "at most": row["most"]}
    shown = {
        words: say.rate(end).replace("-", "−") if is_share else say.figure(end, unit)
        for words, end in ends.items()
        if end is not None
    }
    if len(shown) == 2:
        return " to ".join(shown.values())
    return "".join(f"{words} {end}" for words, end in shown.items())


def _weight(row: Row, figures: Figures) -> int:
    return [*figures.questions, row["gate"]].index(row["gate"])


def looks(gates: Rows, figures: Figures, others: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What to look at first, at most four things: the words, and the section that they are about.

    gates: of `verdicts`; the two weightiest that are missed come with their worst part, those of the whole set first.
    Those that the verdict names are left out.
    others: what else there is to look at.
    """
    missed = defaultdict[str, list[Row]](list)

    def order(row: Row) -> tuple[bool, int, float]:
        return row["slice"] != "all", _weight(row, figures), margin(row["estimate"], row["least"], row["most"])

    for row in sorted(gates, key=order):
        if row["outcome"] == "fail" and row["gate"] not in SECOND_MARKER:
            missed[row["gate"]].append(row)
    remarks = []
    for worst, *more in [*missed.values()][: max(2, MOST_LOOKS - len(others))]:
        unit = figures.unit(worst["metric"])
        place = ", ".join(filter(None, (_question(worst, figures), _where(worst))))
        shown = say.NOT_KNOWN if worst["estimate"] is None else say.figure(worst["estimate"], unit)
        also = f"; missed in {say.plural(len(more), 'more place')}" if more else ""
        remarks.append((f"{place}: {shown}, wanted {_bound(worst, unit)}{also}", "use"))
    return [*remarks, *others][:MOST_LOOKS]


# The promise.


def nothing_released(rules: Rows, possible: Rows, answers: int, needs: Sequence[PromiseNeeds] = ()) -> str:
    """Why no score goes out, and how near it was.

    rules: rows of `release_rules`; possible: those of them that would allow more wrong scores, nearest first, with `n`
    answers that could go out then; answers: of the run; needs: what every promise wants.
    """
    small = too_small_words(needs)
    if not any(row["n"] for row in rules):
        return " ".join(filter(None, ("There are no marked answers that a promise could rest on.", small)))
    near = ""
    if possible:
        nearest = possible[0]
        where = "" if nearest["scope"] == "all" else f" to question {say.name(nearest['scope'])}"
        near = (
            f"If up to {say.rate(nearest['possible_target'])} of them were allowed to be wrong, about "
            f"{say.count(nearest['n'])} of {say.plural(answers, 'answer')}{where} could go out; "
            f"this study allows {say.rate(rules[0]['target'])}."
        )
    why, wanted = _why_nothing(rules, needs), ""
    asks = any(row["refused"] != "asks_nothing" for row in rules)
    if asks and " needed" not in why and any(need.counting < need.needed for need in needs):
        wanted = f"{say.sentence(wanted_words(rules[0]['target'], rules[0]['confidence'], needs))}."
    return " ".join(filter(None, (f"{say.sentence(why)}.", wanted, small if asks else "", near)))


def _why_nothing(rules: Rows, needs: Sequence[PromiseNeeds]) -> str:
    none = [row for row in rules if row["threshold"] is None]
    if len(none) < len(rules):
        most = max(row["threshold"] for row in rules if row["threshold"] is not None)
        obstacle = "every answer is above it, or needs a person for another reason"
        return f"scores may go out up to an estimated risk of {say.share(most)}; {obstacle}"
    reasons = Counter(row["refused"] for row in none)
    if len(rules) == 1 or reasons["question_means"]:
        return str(rules[0]["note"])
    needed = fewest_without_error(rules[0]["target"], rules[0]["confidence"])
    marked = {need.scope: need.counting for need in needs}
    few = sum((marked.get(row["scope"]) or row["n"]) < needed for row in none)
    clauses = {
        f"have too few marked answers ({say.count(needed)} needed for each)": few,
        "would keep the promise with the same score for every answer": reasons["asks_nothing"],
        "do not show that even their surest scores keep it": len(rules) - few - reasons["asks_nothing"],
    }
    said = "; ".join(f"{count} {words}" for words, count in clauses.items() if count > 0)
    return f"of {len(rules)} questions, none can be promised: {said}"


def _rule(row: Row, wrong: str) -> str:
    """A row of `release_rules` in words."""
    scope = "" if row["scope"] == "all" else f"{say.name(row['scope'])}: "
    if row["threshold"] is None:
        smaller = row["asking_tolerance"]
        asks = "" if smaller is None else f"; a tolerance of {say.plural(int(smaller), 'step')} would ask something"
        return f"{scope}Nothing may go out: {row['note']}{asks}."
    worth, upper = "", ""
    if row["worth"] < row["released"] - 0.5:
        worth = f" (worth {say.count(round(row['worth']))} independent ones, as answers of an author are alike)"
    if row["upper"] is not None:
        upper = f", so at most {say.share(row['upper'])} with {say.rate(row['confidence'])} confidence"
    return (
        f"{scope}Scores go out up to an estimated risk of {say.share(row['threshold'])}. Of "
        f"{say.plural(row['n'], 'marked answer')} {say.count(row['released'])} would{worth}, of which "
        f"{say.count(row['wrong'])} are {wrong}{upper}. {say.sentence(against_constant(row))}."
    )


def above_promise(gates: Rows) -> list[Row]:
    """The verdicts on questions of whose released held-out scores more is wrong than promised, or may be by the upper
    end of the interval; the worst first. A promise for the set keeps none for a question."""
    items = [row for row in gates if (row["gate"], row["slice"]) == ("released_errors", "item")]
    items = [row for row in items if row["estimate"] is not None]
    upper = {row["value_of"]: row["estimate"] if row["high"] is None else row["high"] for row in items}
    rows = [row for row in items if max(row["estimate"], upper[row["value_of"]]) > row["most"]]
    return sorted(rows, key=lambda row: (-row["estimate"], -upper[row["value_of"]], row["value_of"]))


def broken_promises(gates: Rows) -> str:
    """The questions of which more is wrong than promised; '' where there are none."""
    wrong = [row for row in above_promise(gates) if row["estimate"] > row["most"]]
    shown = [f"{say.name(row['value_of'])} ({say.share(row['estimate'])} of {row['n']:,})" for row in wrong[:3]]
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    questions = say.plural(len(wrong), "question")
    return f"On {questions} more released scores are wrong than promised: {', '.join(shown)}{more}" if wrong else ""


def _estimate(row: Row) -> Estimate:
    return Estimate(row["estimate"], row["low"], row["high"], clusters=row["clusters"], n=row["n"])


def wrong_by_coverage(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], tolerance: float
) -> list[tuple[float, float]]:
    """(share released, share of these that are wrong) of held-out answers, surest first; nothing where no risk is
    known. Answers without a score are never released: the shares are of those with one."""
    judged = scores[scores["target"].notna()].dropna(subset=["calibrated", "risk"]).sort_values("risk")
    if judged.empty:
        return []
    off = (steps_off(judged, scales).abs() > tolerance + 1e-9).to_numpy()
    counts = [max(1, round(share * len(off))) for share in COVERED]
    return [(share, float(np.mean(off[:count]))) for share, count in zip(COVERED, counts, strict=True)]
