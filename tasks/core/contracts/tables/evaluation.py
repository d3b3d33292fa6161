"""The tables of numbers about scores, and of the gates that they pass or not; of checkpoints: what was expected, and
which rows were refused; and of what a judge says by model and over time: corrected means, and what moved."""

from __future__ import annotations

from typing import Annotated, Literal

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import Natural, Row

# The table of an experiment's numbers.


class Numbers(Row, table="numbers", key=("table_id", "row", "column")):
    """One number of an experiment's tables."""

    table_id: str
    """The table: gao_5, rulers_2 and others, by paper and number there."""
    title: str
    """Its title; it says so where a rater is simulated."""
    row: Natural
    """Number of the row, from 0."""
    label: str
    """What the row is about: its first cells."""
    column: str
    """Heading of the column."""
    value: float | None
    """The number; null where it is undefined, or where the cell is a text."""
    text: str | None
    """The text of a cell that is none; null otherwise."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    se: float | None
    """Bootstrap standard error."""


STAGES: Meanings = {
    "human": "people with people",
    "raw": "the machine before calibration",
    "calibrated": "the machine after it",
    "released": "of that, what was released",
}
Outcome = Literal["pass", "fail", "undecided", "unknown"]
OUTCOMES: Meanings = {"pass": "met", "fail": "missed", "undecided": "undecided", "unknown": "not known"}
RATER_FLAGS: Meanings = {
    "strict": "gives less than an average rater",
    "lenient": "gives more than an average rater",
    "erratic": "marks further from the others' than chance explains",
    "central": "crowds marks in the middle",
    "drift": "is stricter or more lenient in some period than otherwise",
    "halo": "lets one impression colour several traits, more than the others do",
}


class Metrics(Row, table="metrics", key=("metric", "rater_a", "rater_b", "stage", "slice", "value_of")):
    """One number of the evaluation."""

    metric: str
    """qwk, exact, within_1, mae, … as `tasks.core.stats.metrics` names them."""
    rater_a: str
    """The reference (a human, or 'target')."""
    rater_b: str
    """The rater compared with it."""
    stage: Annotated[str, STAGES]
    """Who is compared."""
    slice: str
    """What the slice is by: 'all', 'item', 'type', 'level', 'rater', 'criterion', 'kind' (of criteria), 'confidence'
    (bins of decisions, least confident first), or a group variable."""
    value_of: str
    """Its value: the item, type or group; 'all'."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    n: Natural
    """Responses compared."""
    unscored: Natural
    """Responses of the slice left out because one of the two has no score."""
    resampled: str
    """What the bootstrap resamples: 'author' or 'response'; 'none: exact binomial' for a share of errors, 'none:
    counted' for a count; '' without an interval."""
    clusters: Natural | None
    """How many of them; null where nothing was resampled. With fewer than 20 the interval may be too narrow."""
    undefined_draws: Natural
    """Bootstrap draws in which the metric was undefined."""
    note: str | None
    """Why the value is null, or what to know about it."""


class Verdicts(Row, table="verdicts", key=("gate", "slice", "value_of")):
    """One gate: a flag for a person, decided only where the whole interval lies on one side of it; that a score is more
    than length has to be shown, and is missed wherever the estimate is."""

    gate: str
    """What is asked: human_qwk, machine_qwk, degradation_qwk and others, as `tasks.core.stats.metrics` names them."""
    slice: str
    """What the slice is by: 'all', 'item', or a group variable."""
    value_of: str
    """Its value; 'all', or 'mean over items' of what is over all items and pools none."""
    metric: str
    """The metric it rests on."""
    estimate: float | None
    """The number; null where it is undefined."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    clusters: Natural | None
    """How many the bootstrap resamples, as in `metrics`."""
    n: Natural
    """Responses it rests on."""
    least: float | None
    """The number must not be below this; null without such a bound."""
    most: float | None
    """The number must not be above this; null without such a bound."""
    outcome: Annotated[str, OUTCOMES]
    """unknown: the data do not allow the number or its interval."""
    labels_needed: Natural | None
    """About how many further labelled responses would decide it, if the estimate stays; null where decided or not to be
    told."""
    source: str
    """Whose flag it is."""
    if_missed: str
    """What to do where it is missed."""


class RaterEffects(Row, table="rater_effects", key=("rater_id", "trait", "slice", "value_of")):
    """What sets a person's scores apart from the other persons', by a many-facet model of all human scores."""

    rater_id: str
    """The person."""
    trait: str
    """The trait whose marks are compared; '' for the score itself."""
    slice: str
    """'all', 'item', or 'period' where the study names a group variable so."""
    value_of: str
    """The item or the period; 'all'."""
    severity: float | None
    """Of 'all': strictness against an average rater, in standard deviations of the responses' ability; null with a
    note."""
    severity_se: float | None
    """Its standard error."""
    leniency: float | None
    """Steps of the scale: of 'all', given above an average rater (negative: strict), responses being equal; of an item
    or a period, what is left of that once the rater's own severity is taken out."""
    low: float | None
    """Lower end of its 95% interval; of periods and items, of all those of the rater together."""
    high: float | None
    """Upper end."""
    infit: float | None
    """Squared residuals over what the model lets expect, weighted by information: 1 as expected, above erratic."""
    infit_low: float | None
    """Lower end of its 95% interval."""
    infit_high: float | None
    """Upper end."""
    outfit: float | None
    """The same unweighted, which single surprising marks move."""
    discrimination: float | None
    """Slope of the marks on what the others' let expect: 1 as expected, 0 where they tell nothing of the responses."""
    discrimination_low: float | None
    """Lower end of its 95% interval."""
    discrimination_high: float | None
    """Upper end."""
    halo: float | None
    """Of the score itself: how much more the rater's traits go together than with other persons' marks of the other
    traits, a difference of correlations."""
    halo_low: float | None
    """Lower end of its 95% interval."""
    halo_high: float | None
    """Upper end."""
    ratings: Natural
    """Responses that the rater marked."""
    shared: Natural
    """Of those, marked by another person too; fit and shifts rest on them."""
    flags: Annotated[list[str], RATER_FLAGS]
    """What training ought to look at, decided only where the whole interval lies beyond the limit."""
    note: str | None
    """Why a figure is null, or what to know about it."""


class Checks(Row, table="checks", key=("stage", "table_name", "rule", "column")):
    """The result of one expectation at one checkpoint."""

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    rule: str
    """The expectation."""
    column: str
    """The column or columns."""
    severity: Annotated[str, {"critical": "stops the run", "warning": "is counted in the report"}]
    """What a failure does."""
    outcome: Annotated[
        str,
        {"passed": "every row keeps it", "failed": "some break it", "error": "the check could not run"},
    ]
    """What was found."""
    rows: Natural
    """Rows looked at."""
    unexpected: Natural
    """Rows that break the rule."""
    first: list[str]
    """Keys of the first of them."""
    detail: str | None
    """The rule's parameters, or the exception."""


class Quarantine(Row, table="quarantine", key=("stage", "table_name", "row_key", "rule", "column")):
    """A row that a checkpoint refused."""

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    row_key: str
    """The row's key."""
    rule: str
    """The expectation that it breaks."""
    column: str
    """The column or columns."""
    reason: str
    """The rule in words, and what was there instead."""
    content: str
    """The row as JSON (cut at 10,000 characters)."""


class Means(Row, table="means", key=("arm", "less", "slice", "value_of")):
    """A mean of scores, or a difference of two, corrected by people's labels; next to it what labels and judge alone
    say. Ends of intervals are null with fewer than 5 labelled clusters."""

    arm: str
    """Whose mean: a log, a model in it, or a run."""
    less: str
    """What is subtracted from it: another arm; '' where it is the arm's own mean."""
    slice: str
    """What the slice is by: 'all', 'criterion' or 'group'."""
    value_of: str
    """Its value; 'all'."""
    value: float
    """The corrected mean, in the labels' unit."""
    low: float | None
    """Lower end of its 95% interval."""
    high: float | None
    """Upper end."""
    by_labels: float
    """The mean by labels alone."""
    labels_low: float | None
    """Lower end of its interval."""
    labels_high: float | None
    """Upper end."""
    by_judge: float
    """The mean by the judge alone, in its own unit: biased by what its interval does not hold."""
    judge_low: float | None
    """Lower end of its interval."""
    judge_high: float | None
    """Upper end."""
    labels: Natural
    """Answers with a label, of both arms of a difference."""
    answers: Natural
    """Answers with a score."""
    clusters: Natural
    """Labelled cases, or answers where these stand for themselves."""
    weight: float
    """How much the judge counts (λ, of the first arm): 0 where it adds nothing to the labels."""
    to_halve: Natural | None
    """Further labels that would halve the interval; null where labelling all of these answers would not."""


class WatchedValues(Row, table="watched", key=("log", "answer_id", "channel", "slice", "value_of")):
    """What is watched of an answer in a log."""

    log: str
    """The log's name; logs of a watch come in the order in which they were added."""
    answer_id: str
    """The answer."""
    case_id: str
    """Its case."""
    group: str
    """The case's group; '' where there is none."""
    channel: str
    """What is watched: score, refused, answer_length, … and label, people's score."""
    slice: str
    """What of the answer: 'all', or by 'criterion', 'subject' or 'group'."""
    value_of: str
    """The slice's value; 'all'."""
    value: float
    """The value."""


class Drifts(Row, table="drifts", key=("log", "channel", "slice", "value_of")):
    """How far a channel of a watch moved until a log, and what speaks for it."""

    log: str
    """The last log that was looked at."""
    look: Natural
    """Number of the look, from 1."""
    channel: str
    """What is watched."""
    slice: str
    """Of which part: 'all', or by 'criterion', 'subject' or 'group'."""
    value_of: str
    """Its value; 'all'."""
    evidence: float
    """Natural logarithm of what bets against no change have made of 1, at the highest until then."""
    bar: float
    """From which evidence on it counts as moved: false alarms of all channels and looks together are at most 1%."""
    moved: bool
    """Whether it did."""
    old: float | None
    """Mean before."""
    new: float | None
    """Mean since `since`."""
    difference: float | None
    """By how much it moved; paired where the same cases come again."""
    low: float | None
    """Lower end of its 95% interval, as if looked at once."""
    high: float | None
    """Upper end."""
    n_old: Natural
    """Values before."""
    n_new: Natural
    """Values since."""
    since: str
    """The log from which on it differs most from what was before."""
