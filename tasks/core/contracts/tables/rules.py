"""The tables of rule faithfulness: what graders do when the mark scheme is edited (Edit, section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from rubricflow.tasks.core.contracts.schema import Natural, NonNegative, Positive, Row, Share

Family = Literal["points", "levels"]
FAMILIES: Mapping[Family, str] = {"levels": "level-of-response schemes", "points": "points schemes"}
"""Levels: a band of marks for each quality of the whole response; points: marks for each creditable point."""
RuleEdit = Literal["A1", "A2", "B1", "x0.5", "x1.5", "x2.0"]
RULE_EDITS: Mapping[str, str] = {
    "A1": "every level gets two marks more",
    "A2": "every level gets twice its marks",
    "B1": "the first creditable level gets one mark more, those above two",
    "x0.5": "every point is worth half",
    "x1.5": "every point is worth half as much again",
    "x2.0": "every point is worth twice as much",
}
"""Edits of levels, then of points (appendix E.1)."""
Totals = Literal["stated", "summed"]
TOTALS: Mapping[Totals, str] = {"stated": "graders that state their mark", "summed": "graders whose mark code sums"}
"""What code sums follows an edit of the points' values, whatever the grader read."""


class RuleTests(Row, table="rule_tests", key=("rater_id", "edit", "response_id")):
    """A response marked under its mark scheme and under one edit of it."""

    rater_id: str
    """Who marked."""
    edit: Annotated[str, RULE_EDITS]
    """What was done to the scheme."""
    family: Annotated[str, FAMILIES]
    """The kind of scheme."""
    response_id: str
    """The response."""
    item_id: str
    """Its item."""
    bundle_id: str
    """The edited scheme, as a bundle."""
    gold: Natural
    """The human mark."""
    gold_edited: Natural
    """The mark that it becomes under the edited scheme."""
    predicted: float | None
    """The grader's mark; null where it gave none."""
    predicted_edited: float | None
    """Its mark under the edited scheme; null where it gave none."""
    top: Positive
    """Highest mark."""
    top_edited: Positive
    """Highest mark under the edited scheme."""
    totals: Annotated[str, TOTALS]
    """Who makes the mark."""


class RuleFaithfulness(Row, table="rule_faithfulness", key=("rater_id", "edit")):
    """How far one grader follows one edit: sums over its rows of `rule_tests`."""

    rater_id: str
    """Who marked."""
    edit: Annotated[str, RULE_EDITS]
    """What was done to the scheme."""
    family: Annotated[str, FAMILIES]
    """The kind of scheme."""
    totals: Annotated[str, TOTALS]
    """Who makes the mark."""
    n: Natural
    """Responses with a mark under both schemes."""
    unscored: Natural
    """Responses left out because one of the two marks is missing."""
    gold_change: float | None
    """Mean |change of the human mark|."""
    floor_rate: Share | None
    """Share of marks under the edited scheme that are 0."""
    floor_low: float | None
    """Lower end of its 95% interval, from resampling responses."""
    floor_high: float | None
    """Upper end."""
    rsr: NonNegative | None
    """Rule-sensitivity ratio: mean |change of the grader's mark| over mean |change of the human mark|; 1 follows the
    edit, less does too little. A severe grader's marks have less to change: one whose total code sums has, under an
    edit of points, its mean mark over the mean human one. Null with a note."""
    rsr_low: float | None
    """Lower end."""
    rsr_high: float | None
    """Upper end."""
    rsr_note: str | None
    """Why there is none."""
    in_rubric: NonNegative | None
    """The same over the responses whose mark under the edited scheme is not 0."""
    in_rubric_low: float | None
    """Lower end."""
    in_rubric_high: float | None
    """Upper end."""
    in_rubric_n: Natural
    """How many these are."""
    in_rubric_note: str | None
    """Why there is none."""
