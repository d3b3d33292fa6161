"""What is said of a jury: how its scores are made, whether that is better than one juror, who says the same."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.protocols import COMBINE
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row, Rows

SAME = 0.9
"""Correlation of their errors from which two jurors say the same."""
MISSING = 0.05
"""Share of responses without a score from which a juror is told."""


def jury_sentences(rules: Rows, jurors: Rows) -> list[str]:
    """Of rows of `jury_rules` and `jurors`, the chosen rule first."""
    rule = next(row for row in rules if row["chosen"])
    who = ", ".join(f"{row['juror']}{_weight(row)}" for row in jurors)
    said = [f"{COMBINE[rule['rule']]} ({who}): {rule['reason']}{_figures(rule, jurors)}"]
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


def _figures(rule: Row, jurors: Rows) -> str:
    """Agreement inside folds of n labels, and the single juror that agrees best; '' where nothing is known."""
    if rule["agreement"] is None:
        return ""
    figure = f"; correlation with people {say.number(rule['agreement'])} inside folds of {rule['n']:,} labels"
    if rule["ahead"] is None or rule["rule"] == "best":
        return figure
    gap = f"{rule['ahead']:+.3f} ± {rule['ahead_se'] or 0:.3f}"
    return f"{figure}, {gap} against the juror that agrees best, chosen inside them too"
