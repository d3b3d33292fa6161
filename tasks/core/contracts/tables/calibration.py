"""The tables of what maps raw scores to released ones."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import (
    ItemId,
    Natural,
    NonNegative,
    Positive,
    ResponseId,
    Row,
    Share,
    Usually,
)
from rubricflow.tasks.core.contracts.tables.data import SPLITS, UNSCORED_REASONS

CALIBRATION_FORMAT: Literal[3] = 3
"""Version of what a row of `calibrations` holds as its content."""
CalibrationMethod = Literal["stacked", "rulers", "ridge", "linear", "isotonic", "linking", "identity", "text_only"]
CALIBRATION_METHODS: Meanings = {
    "stacked": "the judge's features, what the text tells and the item under one ridge",
    "rulers": "phase III as published",
    "ridge": "the same without its map of distributions",
    "linear": "a line with shrunken item offsets",
    "isotonic": "a rising step function with such offsets",
    "linking": "mean and standard deviation of the human scores",
    "identity": "the raw score is kept",
    "text_only": "stacked without the judge: the baseline that knows nothing of the rubric",
}
ROUTE_REASONS: Meanings = {
    "unscored": "no score",
    "precheck": "empty or untouched: scored lowest without asking the judge",
    "weak_evidence": "points given on too few words of the answer",
    "uncalibrated": "too few marked answers, or too little said by the judge, to tell how likely the score is wrong",
    "out_of_range": "judged above or below all other answers whose marks its score was learned from",
    "level_unseen": "a score that none of the marked answers it is checked against has",
    "asks_nothing": "the promise says nothing: one and the same score for every answer to a question would keep it",
    "question_means": "the marked answers do not show that the scores tell answers to one question apart",
    "no_promise": "the marked answers allow no promise: too few, too often missed, or met as well by one score for all",
    "risk": "too likely wrong to go out unchecked",
    "promise_broken": "held back: of the scores that would go out, too many held-out ones are wrong",
}
"""Why a person looks first; the last one is said by view `final_scores`, once the scores are held against people's."""
Refusal = Literal["asks_nothing", "question_means", "no_promise"]
"""Why nothing of an item may be released: words of `ROUTE_REASONS`."""


COST_UNITS: Meanings = {
    "usd": "US dollars",
    "tokens": "tokens read and written, where a step's prices are not known",
    "answers": "answers judged, where a step's tokens are not known",
}
"""What a cascade weighs its steps by."""


class Calibrations(Row, table="calibrations", key=("calibration_id",)):
    """A fitted mapping to the human scale."""

    calibration_id: str
    """SHA-256 of the fitted content."""
    scope: str
    """The item it was fitted for, or 'pooled'."""
    method: Annotated[str, CALIBRATION_METHODS]
    """How scores are mapped."""
    reason: str
    """Why this method: what the study asked for, or what the comparison inside folds showed."""
    weight: Share
    """Of the mapped score in the calibrated one; the raw score has the rest."""
    features: list[str]
    """Names of the features, in order."""
    left_out: list[str]
    """Signals that the bundle names but the judge did not give, or that cannot be pooled."""
    n: Natural
    """Number of labelled responses fitted on."""
    target: str
    """The human score fitted to."""
    content: str
    """Everything needed to apply it, as JSON."""


class Candidates(Row, table="candidates", key=("scope", "method")):
    """One calibration method tried inside folds: every figure is of scores that the method predicted for labelled
    responses it had not seen."""

    scope: str
    """The item it was tried for, or 'pooled'."""
    method: Annotated[str, CALIBRATION_METHODS]
    """The method."""
    n: Natural
    """Labelled responses."""
    folds: Natural
    """Folds, cut between authors where they are known; 0 where there were too few labels to try."""
    qwk: float | None
    """Quadratic weighted kappa of the rounded scores with the target, of all labels together."""
    qwk_within: float | None
    """The same within items: what differs between items counts for nothing. Null for a single item."""
    rmse: float | None
    """Root mean squared error of the unrounded scores, score units; shares of the scale where scales differ."""
    behind: float | None
    """How far it falls behind the standard mapping in what the choice goes by; negative where better."""
    behind_se: float | None
    """Standard error of that difference, over authors."""
    sd_ratio: float | None
    """Standard deviation of the unrounded scores over that of the target: below 1 where the spread shrinks."""
    distinct: Natural
    """Distinct rounded scores that survive."""
    chosen: bool
    """Whether it was chosen."""
    note: str | None
    """Why it could not be tried or was refused; null otherwise."""


class ReleaseRules(Row, table="release_rules", key=("scope",)):
    """What may be released without review: the largest estimated risk that keeps the promise on labelled responses."""

    scope: str
    """The item it holds for, or 'all' but those that have a row of their own."""
    tolerance: NonNegative
    """Steps of the scale that a released score may differ from the human score."""
    target: Share
    """Share of released scores that may differ by more."""
    confidence: Share
    """Confidence with which that is promised."""
    n: Natural
    """Labelled responses with a cross-fitted risk."""
    threshold: float | None
    """Largest estimated risk that is released; null where nothing may be."""
    released: Natural
    """Labelled responses at or below it."""
    wrong: Natural
    """Those of them that differ by more than the tolerance."""
    worth: NonNegative
    """Independent responses that the released are worth: fewer than they are where an author's answers are alike."""
    upper: Share | None
    """Upper confidence bound of the share of such scores among the released."""
    levels: list[float]
    """Human scores seen in calibration, on the scale's steps; another level is never released."""
    refused: Annotated[str | None, {reason: ROUTE_REASONS[reason] for reason in get_args(Refusal)}]
    """Why nothing may be released; null otherwise."""
    note: str | None
    """The same with its numbers."""
    constant: Share | None
    """Share of all labels of the scope that differ by more than the tolerance from the best constant score of their
    item, the one that misses fewest of them; null without labels. At or below `target` the promise would ask nothing:
    a constant keeps it."""
    constant_released: Share | None
    """The same of the released ones."""
    exact: Share | None
    """Share of all labels of the scope that the cross-fitted score equals, on the scale's steps."""
    exact_released: Share | None
    """The same of the released ones."""
    asking_tolerance: float | None
    """Where the promise asks nothing, the largest whole number of steps at which it would ask something; null where no
    tolerance does, and otherwise."""
    possible_target: Share | None
    """Where nothing may be released, the smallest whole per cent above `target`, up to half, at which the labels would
    have allowed it with that confidence: read off the same labels, so a hint and no promise. Null otherwise."""
    possible_threshold: float | None
    """Largest estimated risk that would be released then."""


class LabelRisks(Row, table="label_risks", key=("response_id", "rater_id")):
    """A marked answer with the score and the risk that a mapping gives it which has not seen its mark: what promises
    rest on."""

    response_id: ResponseId
    """The answer."""
    item_id: ItemId
    """Its item."""
    rater_id: str
    """The machine rater that is calibrated."""
    cluster: str
    """Its author or, where not known, itself: answers of one count together for as many as they are worth."""
    human: float
    """The human score that counts."""
    score: float
    """The score given, on the scale's steps."""
    lowest: float
    """The lowest score of the scale."""
    highest: float
    """The highest one."""
    step: float
    """Distance between neighbouring scores."""
    risk: Share
    """Estimated probability that the two differ by more than the tolerance."""
    wrong: bool
    """Whether they do."""
    open: bool
    """Whether the score may go out but for its risk: with evidence, on a level seen and inside the range seen."""
    refused: Annotated[str | None, {reason: ROUTE_REASONS[reason] for reason in get_args(Refusal)}]
    """Why no score of its item may go out by this rater alone; null where some may."""


class Predictions(Row, table="predictions", key=("response_id", "rater_id")):
    """One calibrated score."""

    response_id: ResponseId
    """The response."""
    item_id: ItemId
    """Its item."""
    rater_id: str
    """The rater whose grading was calibrated."""
    calibration_id: str | None
    """The calibration applied; null where there is no score to calibrate."""
    split: Annotated[str, SPLITS]
    """The part of the data the response belongs to."""
    raw: float | None
    """The score before calibration."""
    latent: float | None
    """The ridge's latent score on the human scale, before distribution alignment."""
    aligned: float | None
    """After alignment and with its weight, before rounding."""
    points_judge: float | None
    """What the judge's decisions add to an average response, in points; null where the method does not tell."""
    points_text: float | None
    """What the text itself adds, in points: no rubric and no evidence stands behind these."""
    points_item: float | None
    """What the item adds, in points. The three and the score of an average response make up `latent`."""
    text_only: float | None
    """The score by the text alone, without the judge, on the scale's steps: a baseline; null where none was fitted."""
    score: float | None
    """The calibrated score, on the scale's steps."""
    clipped: Annotated[bool, Usually(0.9, "mostly_in_set", (False,))]
    """Whether the latent score lay outside the range seen in calibration."""
    low: float | None
    """Lower end of the conformal interval for the human score that counts, on the grid that such scores lie on: the
    scale's steps or, for means of several persons, equal parts of them; anywhere if there is no grid. Never above
    `score`; rounded down at the ninth digit."""
    high: float | None
    """Upper end; never below `score`, rounded up at the ninth digit."""
    risk: Share | None
    """Estimated probability that a human score differs by more than the tolerance, learned from which labelled ones do;
    null without labels to tell, or where the grading lacks a feature that tells it."""
    level_probabilities: list[float] | None
    """Probability of each level of the scale for a human score; null without labels to tell."""
    route: Annotated[str, {"release": "the score may go out", "review": "a person looks first"}]
    """Where it goes."""
    route_reason: Annotated[str | None, ROUTE_REASONS]
    """Why a person looks first; null where released."""
    unscored_reason: Annotated[str | None, UNSCORED_REASONS]
    """Why there is no score."""


class StepCalibrations(Calibrations, table="step_calibrations", key=("calibration_id",)):
    """A mapping of one step of a cascade. What its content says of release holds for that step alone."""


class StepPredictions(Predictions, table="step_predictions", key=("response_id", "rater_id")):
    """A calibrated score of one step of a cascade, its route as if there were no other step."""


class CascadeLimits(Row, table="cascade_limits", key=("scope", "step")):
    """Up to which risk an answer stops at a step of a cascade, and what that was chosen by."""

    scope: str
    """The item that it holds for, or 'all' but those that have rows of their own."""
    step: Positive
    """Which step, from 1."""
    rater_id: str | None
    """Who judges there; null where it was never asked."""
    most_risk: Share | None
    """Largest risk at which an answer stops; null where nothing does, and then only the first step is asked."""
    cost: NonNegative
    """What judging an answer there costs in the mean."""
    unit: Annotated[str, COST_UNITS]
    """Of what."""
    n: Natural
    """Labelled answers that the limits were chosen by."""
    stopped: Natural
    """Those of them that stop here."""
    wrong: Natural
    """Those of the stopped that are wrong."""
    alone: Natural
    """Labelled answers that would be wrong if all went out by this step's scores."""
    note: str | None
    """Why there are no limits; null where there are."""


class Escalations(Row, table="escalations", key=("response_id",)):
    """How far an answer went in a cascade."""

    response_id: ResponseId
    """The answer."""
    item_id: ItemId
    """Its item."""
    step: Positive
    """The step whose score it has."""
    stopped: bool
    """Whether it stopped there; an answer that stopped nowhere goes to people."""
    asked: list[int]
    """The steps that judged it; a labelled answer is judged by all of them."""
