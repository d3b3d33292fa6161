"""The tables of what raters, people and machines, decide, and of the calls that it took."""

from __future__ import annotations

from typing import Annotated

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.protocols import COMBINE
from rubricflow.tasks.core.contracts.schema import (
    VOLATILE,
    Frozen,
    ItemId,
    Natural,
    NonNegative,
    ResponseId,
    Row,
    Share,
    Usually,
)
from rubricflow.tasks.core.contracts.tables.data import (
    MADE_FROM,
    RATER_KINDS,
    UNSCORED_REASONS,
)

QUOTES: Meanings = {
    "verified": "stands where it was cited",
    "misattributed": "stands elsewhere in the text than cited, which does not count",
    "fabricated": "not in the text",
    "duplicate": "given twice for one criterion, which counts once",
    "too_short": "too short to count",
    "context": "stands in the question's material, which counts where the criterion allows it",
    "echo": "repeats the question or the rubric, which does not count",
    "semantic": "not in these words, but an encoder finds that the text says it",
    "shared": "stands where it was cited, where too many criteria lean on the same words, which does not count",
    "irrelevant": "stands where it was cited and says nothing of its criterion, which does not count",
    "other_kind": "stands in a turn or step of another kind than the criterion asks for, which does not count",
}
STANDING: tuple[str, ...] = ("verified", "semantic")
"""Quotes with a place in the response."""
ACTIONS: Meanings = {
    "none": "no quote failed, or none was asked for",
    "demoted": "the credit was withdrawn",
    "counted": "the credit was kept and counted",
    "dropped": "the detection was dropped",
}
CALL_ROLES: Meanings = {
    "grade": "to grade",
    "extract": "to extract components",
    "contract_repair": "to repair the form",
    "semantic_repair": "to repair the evidence",
    "support": "to look again at what quotes say",
}
STATES = {"scored": "by the judge", "precheck": "settled without a model call", "unscored": "no score"}
"""How a grading came about."""


class Evidence(Frozen):
    """A quote offered for a decision and what the verifier found."""

    unit_id: str | None
    """The unit that the rater cited."""
    quote: str
    """The quote as given (cut at 2,000 characters)."""
    start: int | None
    """First character of the quote in the stored text; null unless found."""
    end: int | None
    """One past its last character."""
    status: Annotated[str, QUOTES]
    """What became of it."""


class Judgments(Row, table="judgments", key=("response_id", "criterion_id", "rater_id", "sample")):
    """One rater's decision on one criterion of one response."""

    response_id: ResponseId
    """The response."""
    criterion_id: str
    """The criterion."""
    rater_id: str
    """The rater and, for a machine, its configuration."""
    rater_kind: Annotated[str, RATER_KINDS]
    """What the rater is."""
    sample: Natural
    """Number of the repetition, from 0."""
    bundle_id: str | None
    """The bundle judged under; null for people who marked outside this pipeline."""
    decision: Annotated[Natural | None, Usually(0.95, "mostly_not_null")]
    """The level after verification; null with a reason."""
    stated: Natural | None
    """The level that the rater stated."""
    unscored_reason: Annotated[str | None, UNSCORED_REASONS]
    """Why there is no decision."""
    level_probabilities: list[float] | None
    """Probability of each level, where the rater gives them."""
    evidence: list[Evidence]
    """Quotes and what became of them."""
    verified: bool | None
    """Whether the evidence rule of the criterion is met; null where it demands nothing."""
    action: Annotated[str, ACTIONS]
    """What a failed quote did."""


class Supports(Row, table="supports", key=("response_id", "criterion_id", "rater_id", "sample")):
    """A second look at one decision: at the passage that a credit rests on, or at the sentence that comes closest to a
    criterion without credit."""

    response_id: ResponseId
    """The response."""
    criterion_id: str
    """The criterion."""
    rater_id: str
    """Whose decision it is."""
    sample: Natural
    """Number of the repetition, from 0."""
    kind: Annotated[str, {"credit": "a credit and its passage", "missing": "no credit and the closest sentence"}]
    """What was looked at."""
    unit_id: str | None
    """The unit of the passage's first quote, or the sentence."""
    start: int | None
    """Its first character in the stored text; null where the passage stands in the question's material."""
    end: int | None
    """One past its last character."""
    similarity: float
    """Cosine of the criterion and the passage, as the sentence encoder reads them, -1 to 1."""
    rank: Share
    """Share of all looks of this kind whose similarity is no higher."""
    probability: Share | None
    """That people credit the criterion; null without marks and without a further judge."""
    percent: Natural | None
    """What the further judge said, 0 to 100; null where it was not asked."""
    lacks: str | None
    """What the passage does not say, in its words."""
    limit: Share | None
    """The probability below which a credit is doubted; null where nobody was to give credit, or nothing is known."""
    doubted: bool
    """Whether somebody should look: at a credit whose probability is below the limit; at no credit, where its
    sentence is among the fifth that most probably says it."""


WINNERS: Meanings = {"a": "the first of the pair", "b": "the second", "tie": "neither is better"}


_OF_VERDICT = ("response_a", "response_b", "rater_id", "sample", "shown_first")


class Comparisons(Row, table="comparisons", key=_OF_VERDICT):
    """One rater's verdict on two answers to a question, in one order shown. Answer a has the id that comes first."""

    item_id: ItemId
    """The item that both answer."""
    response_a: ResponseId
    """The one answer."""
    response_b: ResponseId
    """The other."""
    rater_id: str
    """The rater and, for a machine, its configuration."""
    rater_kind: Annotated[str, RATER_KINDS]
    """What the rater is."""
    sample: Natural
    """Number of the repetition, from 0."""
    bundle_id: str
    """The bundle judged under."""
    shown_first: Annotated[str, {"a": "answer a", "b": "answer b"}]
    """Which of them was shown first."""
    winner: Annotated[str | None, WINNERS, Usually(0.95, "mostly_not_null")]
    """Which is better; null with a reason."""
    unscored_reason: Annotated[str | None, UNSCORED_REASONS]
    """Why there is no verdict."""


class Preferences(Row, table="preferences", key=("response_a", "response_b", "rater_id")):
    """Which of two answers to a question a person prefers."""

    item_id: ItemId
    """The item that both answer."""
    response_a: ResponseId
    """The one answer, as the source has them."""
    response_b: ResponseId
    """The other."""
    rater_id: str
    """The person; 'preferences' where the source names none."""
    winner: Annotated[str, WINNERS]
    """Which is better."""


def out_of(trait: str) -> str:
    """The signal of the most points that a person's mark names: of a trait, or of the score ('')."""
    return f"out_of {trait}".strip()


class Gradings(Row, table="gradings", key=("response_id", "rater_id", "sample")):
    """One rater's grading of one response. Human scores are gradings too."""

    response_id: ResponseId
    """The response."""
    item_id: ItemId
    """Its item."""
    rater_id: str
    """The rater and, for a machine, its configuration."""
    rater_kind: Annotated[str, RATER_KINDS]
    """What the rater is."""
    sample: Natural
    """Number of the repetition, from 0."""
    bundle_id: str | None
    """The bundle graded under."""
    score: Annotated[float | None, Usually(0.95, "mostly_not_null", unless=("rater_kind", "human"))]
    """On the bundle's scale, before calibration; null with a reason."""
    low: float | None
    """Lowest score the unscored criteria allow, where the bundle says bounds."""
    high: float | None
    """Highest such score."""
    trait_scores: dict[str, float]
    """Trait → score in its range; traits without a usable verdict are absent."""
    signals: dict[str, float]
    """Calibration features and the verifier's counts, by name; `averaged` for a recorded mean of several persons, and
    `out_of` for the most points that a person's mark names."""
    confidence: Share | None
    """Mean probability of the decided levels; null where the rater gives no probabilities."""
    status: Annotated[str, STATES]
    """How it came about."""
    unscored_reason: Annotated[str | None, UNSCORED_REASONS]
    """Why there is no score."""


class Attempts(Row, table="attempts", key=("response_id", "rater_id", "sample", "part", "attempt")):
    """One model call."""

    response_id: ResponseId
    """The response it was about."""
    rater_id: str
    """The rater that asked."""
    sample: Natural
    """Number of the repetition."""
    part: str
    """What was asked for: the criterion in a pointwise protocol, the answers shown after this one where several are
    compared, 'all' otherwise."""
    attempt: Natural
    """0 for the first call, then one more for each repair."""
    role: Annotated[str, CALL_ROLES]
    """What the call was for."""
    request_digest: str
    """SHA-256 of the request; the key in the reply store."""
    model: str
    """The model asked."""
    seed: int
    """The sampling seed."""
    reply: str | None
    """The reply as it came; null where there was none."""
    error: Annotated[str | None, Usually(0.95, "mostly_null")]
    """The backend's error, where it gave no reply."""
    changed: str | None
    """Parameters of the call that the server refuses, so that they were renamed or left out; null where it took all."""
    violations: list[str]
    """What the verifier found wrong with the reply."""
    mends: list[str]
    """What a repair was asked to mend: fields or criteria; empty for a first call."""
    memory: list[str]
    """What worked examples and memory put into the prompt: 'example:<response>', 'card:<criterion>' and
    'exemplar:<response>', in the order shown."""
    system: str | None
    """The system message; null where the answerer reads no prose."""
    prompt: str | None
    """The user's message: memory, response and, in a repair, what is to be mended; null where the answerer reads no
    prose."""
    characters: dict[str, int]
    """Characters of the prompt by part: bundle, memory (with worked examples), response, repair."""
    prompt_tokens: Natural | None
    """Tokens of the request, as the backend counts them."""
    completion_tokens: Natural | None
    """Tokens of the reply."""
    cached_tokens: Annotated[Natural | None, VOLATILE]
    """Tokens of the request that the engine's prefix cache held, where it says so."""
    written_tokens: Annotated[Natural | None, VOLATILE]
    """Tokens of the request that the provider put into its cache, where it charges for that."""
    provider: Annotated[str | None, VOLATILE]
    """Who was asked, where the reply came in a file ('plain' where nobody says); null for a call of the run's own."""
    stored: Annotated[bool, VOLATILE]
    """Whether the reply came from the reply store."""
    latency_s: Annotated[float | None, VOLATILE]
    """Seconds the call took."""


class Prices(Row, table="prices", key=("model", "in_batch", "above")):
    """What a model's tokens cost when the run finished, in US dollars per million; a model that nobody says a price of
    is not here."""

    model: str
    """The model, as in attempts."""
    in_batch: bool
    """Whether it is the price of a batch."""
    above: Natural
    """It holds for prompts of more tokens than this."""
    up_to: Natural | None
    """And of so many at most; null for any."""
    input: NonNegative
    """Of prompts."""
    cached: NonNegative
    """Of prompts that the provider's cache held."""
    cache_write: NonNegative
    """Of prompts that it put there."""
    output: NonNegative
    """Of replies, with what the model thought before."""
    source: str
    """Who says so: the study, or the kept table by name, version and entry."""
    as_of: str | None
    """The day of that table's newest price, or of the study's; null where it does not say."""


class JuryRules(Row, table="jury_rules", key=("rater_id", "scope", "rule")):
    """One way to make one score of the jurors' scores, and what labels of the calibration split say of it."""

    rater_id: str
    """The jury."""
    scope: str
    """The item that it was tried for, or 'pooled'."""
    rule: Annotated[str, COMBINE]
    """The way."""
    n: Natural
    """Labelled responses that all jurors scored."""
    agreement: float | None
    """Correlation with people's scores, within items where several are pooled; what was fitted to labels had not seen
    those that it is measured on. Null without labels that differ."""
    ahead: float | None
    """How far that is ahead of the single juror that agrees best; negative where behind."""
    ahead_se: float | None
    """Standard error of the difference, over authors."""
    weights: dict[str, float]
    """Juror → its share of the score, or of the votes."""
    shift: dict[str, float]
    """Juror → what is added to its scores, as shares of the scale and times its factor, to put all onto one scale."""
    factor: dict[str, float]
    """Juror → that factor."""
    chosen: bool
    """Whether scores are made so."""
    reason: str
    """Why it was chosen; empty where it was not."""


class Jurors(Row, table="jurors", key=("jury", "juror")):
    """One juror: what labels of the calibration split say of it, and what leaving it out would cost and save."""

    jury: str
    """The rater that the jury is."""
    juror: str
    """Its name."""
    rater_id: str
    """Under which its own gradings stand."""
    family: str
    """Its model family: jurors of one family have one voice together, where no labels say otherwise."""
    unscored: Natural
    """Responses that it gave no score."""
    weight: Share | None
    """Its share of the score; null where the rule has no weights."""
    n: Natural
    """Labelled responses that all jurors scored."""
    agreement: float | None
    """Correlation of its scores with people's, as in `jury_rules`."""
    without: float | None
    """What leaving it out changes in the agreement of weighted jurors, inside folds; negative where that costs."""
    without_se: float | None
    """Standard error of that, over authors."""
    alike: str | None
    """The juror whose errors go most with its own."""
    alike_errors: float | None
    """Correlation of their errors: 1 where both say the same."""
    tokens: Natural | None
    """Tokens of its prompts and replies; null where somebody does not count them."""
    share_of_tokens: Share | None
    """Of all jurors' tokens."""


class ShardInputs(Row, table="shard_inputs", key=("response_id",)):
    """One response as a shard of judging takes it, where workers of a cluster judge: each reads its own shard alone."""

    response_id: ResponseId
    """The response."""
    item_id: ItemId
    """What it answers."""
    text: str
    """Its text, as it came."""
    made_from: Annotated[str | None, MADE_FROM]
    """What that was made from, or why it lacks."""
