"""The tables of people: what they are asked, what they say, and what is settled."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from tasks.contracts.schema import Frozen, References, Row

Doubtful = Literal[
    "annotators_disagree", "ungrounded", "unscored", "low_probability", "against_human", "routed_to_review", "audit"
]
"""The annotators' levels differ; a level's evidence does not hold; an annotator gave none; it gave its level little
probability; the annotators are far from the human score; the score was not released; drawn though nothing speaks
against it."""
Settled = Literal["annotators", "one_vote", "agreed_votes", "majority", "discussion", "open", "cannot_be_judged"]
"""Both annotators gave the level and nobody was asked; one person's vote; all of several; more than half of them; an
adjudicator with a record of the discussion; nothing that holds; people say that it cannot be judged."""


class Votes(Row):
    """One person's vote on a case. Rows are only ever added; what was taken back is not in this table."""

    table: ClassVar[str] = "votes"
    key: ClassVar[tuple[str, ...]] = ("subject_kind", "subject", "rater_id", "voted_at")

    subject_kind: Literal["graph_role", "graph_edge", "label", "score"]
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
    role: Literal["vote", "adjudication"] | None
    """adjudication: settles what others disagreed on, with the discussion in the comment; null for graphs."""
    blind: bool | None
    """Whether the voter saw neither machine nor other votes; null where that is not known."""


class Queue(Row):
    """A case that waits for people: one response."""

    table: ClassVar[str] = "queue"
    key: ClassVar[tuple[str, ...]] = ("subject_kind", "response_id")

    subject_kind: Literal["label", "score"]
    """What is asked: levels of its concepts, or its score."""
    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    rank: Annotated[int, Ge(1)]
    """1 is asked first."""
    priority: Annotated[float, Ge(0)]
    """How much an answer is expected to tell, see tasks/review/queue.py."""
    criteria: list[str]
    """The concepts in doubt, most doubtful first; all of them are voted on."""
    reasons: list[str]
    """Why, as `Doubtful` names it, weightiest first."""
    why: str
    """The weightiest in words."""


class Step(Frozen):
    """Something that was said of a label."""

    who: str
    """Rater id."""
    kind: Literal["annotator", "vote", "adjudication"]
    """What the rater is here."""
    level: int | None
    """The level; null for none, or one that cannot be judged."""
    at: str | None
    """When, for people."""
    comment: str | None
    """Why, where it was said."""


class Labels(Row):
    """The final label of one concept of one response, and how it came about."""

    table: ClassVar[str] = "labels"
    key: ClassVar[tuple[str, ...]] = ("response_id", "criterion_id")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    criterion_id: str
    """The concept."""
    level: Annotated[int, Ge(0)] | None
    """The level; null where it is open or cannot be judged."""
    settled_by: Settled
    """What settled it."""
    history: list[Step]
    """Annotators, votes and adjudication in their order."""


class Agreements(Row):
    """How far two or more raters of concepts agree."""

    table: ClassVar[str] = "agreements"
    key: ClassVar[tuple[str, ...]] = ("phase", "raters", "criterion_id", "metric")

    phase: Literal["before", "after"]
    """Before people were asked, or after."""
    raters: str
    """Who, joined by ' and '; 'final' stands for the final labels."""
    criterion_id: str
    """The concept; 'all' for all of them together."""
    metric: Literal["krippendorff_alpha", "kappa_quadratic", "kappa", "exact"]
    """Krippendorff's alpha for ordered levels; Cohen's kappa with quadratic and with no weights; share of equal
    levels."""
    value: float | None
    """The number; null where it is undefined."""
    low: float | None
    """Lower end of the 95% interval over responses."""
    high: float | None
    """Upper end."""
    n: Annotated[int, Ge(0)]
    """Labels compared."""
    note: str | None
    """Why the value is null."""


class Constructions(Row):
    """How an inventory of concepts keeps one construction criterion (REC-CBM, appendix C.3)."""

    table: ClassVar[str] = "constructions"
    key: ClassVar[tuple[str, ...]] = ("phase", "rubric_id", "rule", "subject")

    phase: Literal["before", "after"]
    """By the labels that both annotators give, or by the final ones."""
    rubric_id: Annotated[str, References("rubrics", "rubric_id")]
    """The inventory."""
    rule: Literal["coverage", "non_redundancy", "ordinal_anchors"]
    """The concepts cover what decides the grade; each tells something that no other one tells; every level has an
    anchor of its own, and higher levels go with higher grades."""
    subject: str
    """'all', a concept, or two joined by ' and '."""
    value: float | None
    """The number that it is judged by."""
    limit: float | None
    """What it is held against."""
    outcome: Literal["kept", "broken", "unknown"]
    """unknown: the data do not tell."""
    detail: str
    """In words."""
