"""The tables of what a judge says by model and over time: corrected means, what is watched of logs, and what moved."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.schema import Natural, Row


class Means(Row, table="means", key=("arm", "less", "slice", "value_of")):
    """A mean of scores, or a difference of two, corrected by people's labels; beside it what labels and judge alone
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
