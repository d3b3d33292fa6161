"""The judging protocols: what the pipeline must know of each without loading its module in
tasks/grading/judge/protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rubricflow.tasks.core.contracts.schema import Frozen, Natural, Positive, Share

FinalScore = Literal["weighted_points", "trait_mean", "trait_sum", "judged"]
Signal = Literal[
    "trait_scores",
    "trait_means",
    "criteria",
    "score",
    "length",
    "confidence",
    "uncertainty",
    "tie",
    "invalid_evidence",
    "weak",
    "contradicted",
    "disagreement",
    "jurors",
]
Level = Literal["stated", "likeliest", "expected"]
Option = Literal["criteria_per_call", "consistency_memory", "rubric_memory", "compare", "unknown_fields", "top_is_rare"]
Taught = Literal["score", "traits", "criteria"]
"""What of people's grading a worked example can show."""

Combine = Literal["choose", "best", "mean", "standardised_mean", "median", "majority", "weighted", "columns"]
COMBINE: dict[str, str] = {
    "choose": "what the labels show inside folds",
    "best": "the single juror that agrees best with people",
    "mean": "the mean of the jurors' scores, each model family one voice",
    "standardised_mean": "the same after each juror's scores have one mean and spread",
    "median": "the middle score",
    "majority": "what most say",
    "weighted": "a mean with weights learned from labels, or from agreement among the jurors",
    "columns": "the jurors' scores side by side, as columns of the calibration",
}

PROTOCOL_VERSION = 6
"""Goes up whenever the same replies would be verified or scored differently."""


class RegisteredProtocol(Frozen):
    """A protocol as it is known outside its module."""

    final_score: FinalScore
    """The raw score's formula where a study names none; with 'judged' the judge states the score, and it alone."""
    signals: tuple[Signal, ...]
    """What calibration uses where a study names nothing else."""
    min_tokens: int = 1
    """The gate for short responses where a study names none, see `Protocol.min_tokens`."""
    decides: tuple[Literal["criteria", "traits"], ...] = ()
    """What the judge decides one by one; nothing where it only states a score."""
    quotes: Literal["criteria", "traits"] | None = None
    """What a quote must support; None where nobody is asked for evidence."""
    shape: Literal["as_written", "judged_traits", "yes_no", "points"] = "as_written"
    """What a rubric is made into before it is locked, see tasks/grading/lock/bundles.py."""
    keeps_decisions: bool = False
    """Whether decisions depend on nothing but their criterion and its evidence, so that single ones of an earlier run
    can stand."""
    shows_examples: bool = False
    """Whether the judge is shown the rubric's labelled examples."""
    teaches: tuple[Taught, ...] = ()
    """What `judge.examples` shows of how people graded: what the judge itself states. With 'score' among it the others
    are shown where people gave them; without, only responses that have all of it are examples. Empty: none are."""
    reads_foreign: bool = False
    """Whether replies of judges that know nothing of our contracts can be read: they hold one score, or one verdict on
    two answers."""
    compares: Literal["pairs", "groups"] | None = None
    """Whether answers to one question are judged together, two by two or several at once; None for each by itself."""
    is_trained: bool = False
    """Whether a trained grader answers, which reads the question's plain data and decides everything at once."""
    options: tuple[Option, ...] = ()
    """The settings of `judge` that belong to this protocol."""
    criteria_per_call: Positive | None = None
    """Criteria in one call where a study names no number; null for the whole checklist."""


_FEATURES: tuple[Signal, ...] = ("trait_scores", "length", "confidence", "uncertainty", "tie")

PROTOCOLS: dict[str, RegisteredProtocol] = {
    # One call with the whole checklist.
    "rulers": RegisteredProtocol(
        final_score="trait_mean",
        signals=_FEATURES,
        decides=("criteria",),
        quotes="criteria",
        keeps_decisions=True,
        options=("criteria_per_call",),
        teaches=("score", "criteria"),
    ),
    # One call with the whole checklist, then the score of every trait with its boundaries; the checklist is its audit.
    "checked_score": RegisteredProtocol(
        final_score="trait_mean",
        signals=("trait_scores", "trait_means", "length", "confidence", "uncertainty", "tie", "contradicted"),
        decides=("criteria", "traits"),
        quotes="criteria",
        shape="judged_traits",
        options=("criteria_per_call",),
        teaches=("score", "traits", "criteria"),
    ),
    # Traits by the raw rubric, with quotes: rulers without phase I.
    "unlocked": RegisteredProtocol(
        final_score="trait_mean",
        signals=_FEATURES,
        decides=("traits",),
        quotes="traits",
        shape="judged_traits",
        teaches=("traits",),
    ),
    # A call per criterion, or per few of them.
    "pointwise": RegisteredProtocol(
        final_score="weighted_points",
        signals=("criteria", "trait_means", "length", "confidence"),
        decides=("criteria",),
        quotes="criteria",
        keeps_decisions=True,
        options=("criteria_per_call",),
        criteria_per_call=1,
        teaches=("criteria",),
    ),
    # One holistic score.
    "dhs": RegisteredProtocol(
        final_score="judged", signals=("score", "length"), reads_foreign=True, teaches=("score",)
    ),
    # Components are extracted, then scored.
    "autoscore": RegisteredProtocol(final_score="judged", signals=("score",), teaches=("score",)),
    # Yes or no to every criterion.
    "checkeval": RegisteredProtocol(
        final_score="weighted_points", signals=("score",), decides=("criteria",), shape="yes_no", keeps_decisions=True
    ),
    # A call per trait.
    "mts": RegisteredProtocol(
        final_score="trait_mean", signals=("score",), decides=("traits",), shape="judged_traits", teaches=("traits",)
    ),
    # One call with judged subscores and covered points.
    "gradeagentops": RegisteredProtocol(
        final_score="trait_mean",
        signals=("score", "trait_scores"),
        min_tokens=3,
        decides=("criteria", "traits"),
        quotes="criteria",
        shape="points",
        options=("consistency_memory", "rubric_memory", "unknown_fields"),
        teaches=("score", "traits", "criteria"),
    ),
    # One ordinal label per concept, the lower where torn, as annotators give them.
    "concepts": RegisteredProtocol(
        final_score="weighted_points",
        signals=_FEATURES,
        decides=("criteria",),
        quotes="criteria",
        shows_examples=True,
        options=("top_is_rare",),
    ),
    # Which of two answers is better, asked in both orders.
    "pairwise": RegisteredProtocol(
        final_score="judged",
        signals=("score", "length"),
        compares="pairs",
        reads_foreign=True,
        options=("compare",),
    ),
    # A score for each of several answers, shown together.
    "groupwise": RegisteredProtocol(
        final_score="judged", signals=("score", "length"), compares="groups", options=("compare",)
    ),
    # Levels and the score that a trained grader makes of them, without evidence.
    "bottleneck": RegisteredProtocol(
        final_score="judged",
        signals=("score", "criteria", "length", "confidence"),
        decides=("criteria",),
        is_trained=True,
    ),
}
"""Name → what is known of the protocol. Its functions are the module tasks/grading/judge/protocols/<name>, its prompt
tasks/grading/judge/prompts/<name>.txt."""


def protocols_where(rule: Callable[[RegisteredProtocol], bool]) -> str:
    """Names of the protocols that a rule holds for, for an error to name."""
    return ", ".join(sorted(name for name, protocol in PROTOCOLS.items() if rule(protocol)))


def _registered(name: str) -> str:
    if name not in PROTOCOLS:
        raise ValueError(f"'{name}' is no protocol; there are {', '.join(PROTOCOLS)}")
    return name


ProtocolName = Annotated[str, AfterValidator(_registered)]


class Repair(Frozen):
    """Calls that may mend one reply, by what is wrong with it (GradeAgentOps, section 2.4)."""

    contract: Natural = 2
    """Calls to mend what breaks the contract: no artifact, a missing or malformed field, a value off its range."""
    semantic: Natural = 2
    """Calls to mend evidence that does not hold."""


class SupportRule(Frozen):
    """A second look at every credit: does the passage quoted say what its criterion asks, see
    tasks/grading/judge/support.py. It needs the sentence encoder."""

    limit: Share | None = None
    """The probability below which it does not. Null: the highest at which at most 3 % of the marked credits that people
    give fall below it or, without enough marks, a quarter. Where there is no probability, for want of marks and of a
    further judge, nothing fails."""
    failed: Literal["count", "demote", "review"] = "count"
    """What becomes of a credit below it: kept, with a signal; withdrawn, as one whose quote does not stand; or taken
    for undecided, so that a person decides."""
    asked: Share = 1.0
    """With `judge.support_by`: the share of the credits that the further judge is asked about, ten in a call; of fewer
    than all those nearest the limit."""


class RubricMemory(Frozen):
    """Which cards of the rubric are pointed out with a response (GradeAgentOps, section 2.5)."""

    points: Natural = 3
    """Most gold points shown."""
    misconceptions: Natural = 2
    """Most misconceptions shown."""


class Compare(Frozen):
    """Which answers to a question are compared with which."""

    opponents: int = Field(default=6, ge=2, multiple_of=2)
    """pairwise: of a question with more answers than that, how many others each is compared with. The answers stand in
    a circle, in an order that the seed draws, and each meets those at some fixed distances, the next one among them:
    all are joined, and each is compared as often as any other. With fewer answers all pairs are asked."""
    at_once: int = Field(default=4, ge=3)
    """groupwise: answers in one call at most. More are parted into groups as even as can be, anew in every sample."""
    seed: int = 0
    """Another seed is another circle, or other groups in another order."""


class WorkedExamples(Frozen):
    """Responses to the same item as people graded them, shown to the judge: never of the test split, never one that is
    itself judged, of the same author or of the same words."""

    count: int = Field(default=8, ge=1, le=16)
    """Most examples shown."""
    by: Literal["level", "similarity"] = "similarity"
    """similarity: for each response those that are most like it; level: spread over the scores that people gave, of
    each the most typical, the same for the whole item, so that the beginnings of its prompts are, too."""


class ConsistencyMemory(Frozen):
    """Which earlier gradings of the same item are shown as anchors (GradeAgentOps, section 2.5): only what the model
    made, never a human score."""

    exemplars: Positive = 3
    """Most exemplars shown."""
    min_tokens: Natural = 8
    """A response with fewer tokens is not kept."""
    excerpt: Positive = 600
    """Characters of a response that are kept."""
    capacity: Positive = 50
    """Exemplars kept per item; the oldest goes first."""
    similarity: Share = 0.15
    """Smallest IDF-weighted Jaccard similarity that is shown."""
    round_size: Positive = 1
    """Responses of an item judged before the store is looked at again; 1 is the published, strictly sequential one."""
    order_seed: int | None = None
    """Responses are judged in the order of their ids, or in one shuffled by this seed."""
