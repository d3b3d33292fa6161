"""The tables of people: what they are asked, what they say, and what is settled."""

from __future__ import annotations

from typing import Annotated, Literal

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import (
    Frozen,
    ItemId,
    Natural,
    NonNegative,
    Positive,
    ResponseId,
    Row,
    RubricId,
    Share,
)

Doubtful = Literal[
    "annotators_disagree", "ungrounded", "unscored", "low_probability", "against_human", "routed_to_review", "audit"
]
DOUBTS: Meanings = {
    "annotators_disagree": "the annotators' levels differ",
    "ungrounded": "a level's evidence does not hold",
    "unscored": "an annotator gave no level",
    "low_probability": "an annotator gave its level little probability",
    "against_human": "the annotators are far from the human score",
    "routed_to_review": "the score was not released",
    "audit": "drawn though nothing speaks against it",
}
"""Why people are asked."""
Settled = Literal["annotators", "one_vote", "agreed_votes", "majority", "discussion", "open", "cannot_be_judged"]
SETTLED: Meanings = {
    "annotators": "both annotators, nobody was asked",
    "one_vote": "one person's vote",
    "agreed_votes": "all of several votes",
    "majority": "more than half of the votes",
    "discussion": "an adjudicator, with a record of the discussion",
    "open": "nothing yet: open",
    "cannot_be_judged": "people say that it cannot be judged",
}
"""What settled a label."""
ScoreSettled = Literal[
    "one_vote", "agreed_votes", "majority", "discussion", "open", "cannot_be_judged", "in_data", "marked", "data_differ"
]
SCORE_SETTLED: Meanings = {
    **{name: words for name, words in SETTLED.items() if name != "annotators"},
    "in_data": "a score in the data that people had settled on",
    "marked": "marked by a person",
    "data_differ": "nothing yet: the data hold several such scores, which differ",
}
"""What settled a score."""
SUBJECT_KINDS: Meanings = {
    "graph_role": "a criterion's role",
    "graph_edge": "a dependency",
    "label": "the levels of a response's concepts",
    "score": "a response's score",
}
SPOKEN_AS: Meanings = {
    "annotator": "what an annotator said",
    "vote": "a vote",
    "adjudication": "it settles what others disagreed on, with the discussion in the comment",
}
SCORED_AS: Meanings = {
    "machine": "the machine's calibrated score",
    "data": "a score in the data that people had settled on",
    "mark": "a mark in the data, at the time when it was first read",
    "vote": "a person's vote",
    "adjudication": "it settles what others disagreed on, with the discussion in the comment",
}
Phase = Literal["before", "after"]
PHASES: Meanings = {"before": "before people were asked", "after": "after people were asked"}
AGREEMENT_METRICS: Meanings = {
    "krippendorff_alpha": "alpha",
    "kappa_quadratic": "kappa, quadratic",
    "kappa": "kappa",
    "exact": "equal levels",
}
SAMPLED: Meanings = {
    "chosen": "because its label teaches the mapping most",
    "drawn": "by chance, so that its label stands for the rest",
}
CONSTRUCTION_RULES: Meanings = {
    "coverage": "covers what decides the grade",
    "non_redundancy": "no two concepts say the same",
    "ordinal_anchors": "levels are in order",
}


class Votes(Row, table="votes", key=("subject_kind", "subject", "rater_id", "voted_at")):
    """One person's vote on a case. Rows are only ever added; what was taken back is not in this table."""

    subject_kind: Annotated[str, SUBJECT_KINDS]
    """What is voted on."""
    subject: str
    """Which one: `<rubric_id>:<criterion_id>` for a role, `<rubric_id>:<parent>→<child>` for an edge,
    `<response_id>:<criterion_id>` for a label, `<response_id>` for a score."""
    value: str
    """The role or relation voted for, 'none' for no edge; the level or the score; 'x' for one that cannot be judged."""
    rater_id: str
    """Who voted."""
    voted_at: str
    """When, as ISO 8601 with the time zone."""
    comment: str | None
    """Why."""
    role: Annotated[Literal["vote", "adjudication"] | None, SPOKEN_AS]
    """As what they spoke; null for graphs."""
    blind: bool | None
    """Whether the voter saw neither machine nor other votes; null where that is not known."""


class Queue(Row, table="queue", key=("subject_kind", "response_id")):
    """A case that waits for people: one response."""

    subject_kind: Annotated[Literal["label", "score"], SUBJECT_KINDS]
    """What is asked."""
    response_id: ResponseId
    """The response."""
    rank: Positive
    """1 is asked first."""
    priority: NonNegative
    """How much an answer is expected to tell, see tasks/people/review/task.py."""
    criteria: list[str]
    """The concepts in doubt, most doubtful first; all of them are voted on."""
    reasons: Annotated[list[str], DOUBTS]
    """Why, weightiest first."""
    why: str
    """The weightiest in words."""


class NextLabels(Row, table="next_labels", key=("response_id",)):
    """A response that people should score next."""

    response_id: ResponseId
    """The response."""
    item_id: ItemId
    """Its item."""
    rank: Positive
    """1 is asked first."""
    sampled: Annotated[str, SAMPLED]
    """How it came to be asked about: only what was drawn stands for other responses."""
    gain: Share
    """Share of the mapping's mean variance that its label removes, see tasks/grading/calibrate/next_labels.py."""
    why: str
    """Why it is asked about, in words; may tell what the machine said."""


class HistoryStep(Frozen):
    """Something that was said of a label."""

    who: str
    """Rater id."""
    kind: Annotated[str, SPOKEN_AS]
    """What the rater is here."""
    level: int | None
    """The level; null for none, or one that cannot be judged."""
    at: str | None
    """When, for people."""
    comment: str | None
    """Why, where it was said."""


class Labels(Row, table="labels", key=("response_id", "criterion_id")):
    """The final label of one concept of one response, and how it came about."""

    response_id: ResponseId
    """The response."""
    criterion_id: str
    """The concept."""
    level: Natural | None
    """The level; null where it is open or cannot be judged."""
    settled_by: Annotated[str, SETTLED]
    """What settled it."""
    history: list[HistoryStep]
    """Annotators, votes and adjudication in their order."""


class ScoreStep(Frozen):
    """A score that an answer was given on the way to its last one."""

    who: str
    """Rater id."""
    kind: Annotated[str, SCORED_AS]
    """As what it was given."""
    score: float | None
    """On the rubric's scale; null for none, or for one that cannot be judged."""
    at: str | None
    """When, for people, as ISO 8601 with the time zone."""
    comment: str | None
    """Why, where it was said."""


class SettledScores(Row, table="settled_scores", key=("response_id",)):
    """What people have said of one answer's score, and what that comes to. Written anew whenever it is asked for; the
    view `final_scores` says what follows for the score that goes out."""

    response_id: ResponseId
    """The answer."""
    score: float | None
    """What people settled on, on the rubric's scale; null where it is open, cannot be judged, or nothing but a note is
    there."""
    settled_by: Annotated[str | None, SCORE_SETTLED]
    """What settled it; null where nobody spoke of the score and only a note is there."""
    levels: dict[str, int]
    """Criterion → the level that people settled on, where they spoke of single criteria."""
    note: str | None
    """What a teacher says to the student."""
    history: list[ScoreStep]
    """The machine first, then scores in the data, votes and adjudications in their order; those, too, in whose place
    a later one stands."""
    marks: dict[str, float] | None
    """Rater → the score that they gave in the data, where that is a decision; null where there is none, and where the
    study's marks only calibrate."""


class Notes(Row, table="notes", key=("response_id", "rater_id")):
    """What a person says to a student in the data."""

    response_id: ResponseId
    """The answer that it is about."""
    rater_id: str
    """Who says it."""
    note: str
    """The words."""


class Agreements(Row, table="agreements", key=("phase", "raters", "criterion_id", "metric")):
    """How far two or more raters of concepts agree."""

    phase: Annotated[str, PHASES]
    """Before people were asked, or after."""
    raters: str
    """Who, joined by ' and '; 'final' stands for the final labels that people settled."""
    criterion_id: str
    """The concept; 'all' for all of them together."""
    metric: Annotated[str, AGREEMENT_METRICS]
    """Krippendorff's alpha for ordered levels; Cohen's kappa with quadratic and with no weights; share of equal
    levels."""
    value: float | None
    """The number; null where it is undefined."""
    low: float | None
    """Lower end of the 95% interval over responses."""
    high: float | None
    """Upper end."""
    n: Natural
    """Labels compared."""
    note: str | None
    """Why the value is null."""


class Constructions(Row, table="constructions", key=("phase", "rubric_id", "rule", "subject")):
    """How an inventory of concepts keeps one construction criterion (REC-CBM, appendix C.3)."""

    phase: Annotated[str, PHASES]
    """By the labels that both annotators give, or by the final ones."""
    rubric_id: RubricId
    """The inventory."""
    rule: Annotated[str, CONSTRUCTION_RULES]
    """The concepts cover what decides the grade; each tells something that no other one tells; every level has an
    anchor of its own, and higher levels go with higher grades."""
    subject: str
    """'all', a concept, or two joined by ' and '."""
    value: float | None
    """The number that it is judged by."""
    limit: float | None
    """What it is held against."""
    outcome: Annotated[
        str,
        {"kept": "it is kept", "broken": "it is not", "unknown": "the data do not tell"},
    ]
    """Whether it is kept."""
    detail: str
    """In words."""
