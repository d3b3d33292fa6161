"""The metrics of the evaluation: each one's function, unit, words and gates in one record.

A metric with a function is computed for every pair of raters in every slice. The others take more than two columns of
scores: rooms compute them under the name that stands here. The order is that in which a page shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.stats import agreement
from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats

# What is known of a metric of the evaluation besides its values: function, unit, words and gates.

Unit = Literal["number", "share", "signed", "signed_share", "count"]
"""How a figure is written: 0.82; 58%; +0.13; −4.9%; 1,198."""
Bound = float | str | Mapping[int, float] | None
"""A number; a field of the study's `release`; or by the number of levels, where all scales have as many."""


class Gate(NamedTuple):
    """A threshold for a metric: a flag for a person to look at."""

    name: str
    source: str
    """Whose flag it is."""
    if_missed: str
    """What to do then."""
    least: Bound = None
    most: Bound = None
    question: str = ""
    """What is asked, to people; '' for the metric's title."""
    stage: str = "calibrated"
    """Of `metrics`; '' where a single run cannot answer."""
    slices: tuple[str, ...] = ("all",)
    """Slices that it is asked of; 'items' for the mean over several items, 'group' for every group variable."""
    always: bool = False
    """Whether it is asked, and not known, where nothing was measured."""
    to_show: bool = False
    """Whether it has to be shown: missed, and not undecided, wherever the estimate itself lies outside."""


class Metric(NamedTuple):
    """What is known of a metric besides its values."""

    name: str
    """As in `metrics`."""
    title: str
    unit: Unit = "number"
    section: str = ""
    """Section of the grading report that lists it; '' where one asks for it by name, or none shows it."""
    meaning: str = ""
    of: Callable[[Floats, Floats, ScaleBounds], Stat] | None = None
    """Of human and machine scores, each (n,), on a scale (low, high, step)."""
    of_totals: Callable[[Floats], Floats] | None = None
    """The same of sums of `pair_terms`, (draws, columns), in every draw, (draws,): without it, and if it is none of
    `statistics_of_totals`, it has no interval and leaves its gates unknown."""
    gates: tuple[Gate, ...] = ()

    def gated(self, *gates: Gate) -> Metric:
        """The metric with its gates."""
        return self._replace(gates=gates)


HUMAN_EXACT = {2: 0.85, 3: 0.80, 4: 0.75, 5: 0.75, 6: 0.60}
"""Levels of the scale -> exact agreement that two people should reach (NAEP)."""
WILLIAMSON = "Williamson et al. 2012"
PEOPLE = "mend the rubric and train the raters first"
CALIBRATE = "calibrate anew; if it stays, people score this"
CHECK = "use the machine only as a check of a person"
EACH = ("all", "items", "item")
OVER_LENGTH = 0.05
"""QWK by which a score is clearly better than length alone."""


def _on_levels(function: Callable[..., Stat], **more: int) -> Callable[[Floats, Floats, ScaleBounds], Stat]:
    """A function that takes the scale apart."""
    return lambda human, machine, scale: function(human, machine, *scale, **more)


def _on_scores(function: Callable[[Floats, Floats], Stat]) -> Callable[[Floats, Floats, ScaleBounds], Stat]:
    """A function that asks for no scale."""
    return lambda human, machine, scale: function(human, machine)


METRICS: tuple[Metric, ...] = (
    Metric("beyond_tolerance", "Beyond the tolerance", "share").gated(
        Gate(
            "released_errors",
            "this study",
            "release fewer",
            question="Released scores beyond the tolerance",
            most="risk",
            stage="released",
            slices=EACH,
        )
    ),
    Metric(
        "constant_beyond_tolerance",
        "Beyond the tolerance, if all answers to a question had the same score",
        "share",
        meaning="the score is the one with which fewest are",
    ),
    Metric("qwk", "Agreement (QWK)", section="agreement", of=_on_levels(agreement.qwk)).gated(
        Gate("machine_qwk", WILLIAMSON, CALIBRATE, 0.70, question="Machine's agreement with people (QWK)", slices=EACH),
        Gate(
            "human_qwk", "RSMTool", PEOPLE, 0.70, question="Agreement between people (QWK)", stage="human", slices=EACH
        ),
    ),
    Metric("qwk_item_mean", "Agreement (QWK, mean over items)", section="agreement"),
    Metric("degradation_qwk", "Loss against a second person (QWK)", "signed").gated(
        Gate("degradation_qwk", WILLIAMSON, CHECK, -0.10, slices=EACH)
    ),
    Metric("degradation_exact", "Loss against a second person (exact agreement)", "signed_share").gated(
        Gate("degradation_exact", "Smarter Balanced", CHECK, -0.05)
    ),
    Metric("dsm", "Difference of a group (DSM)", "signed").gated(
        Gate(
            "group_difference",
            WILLIAMSON,
            "people score this group blind; hold its scores until then",
            -0.10,
            0.10,
            slices=("group",),
        )
    ),
    Metric("exact", "Exactly the same score", "share", "agreement", of=_on_levels(agreement.exact_agreement)).gated(
        Gate(
            "human_exact",
            "NAEP",
            PEOPLE,
            HUMAN_EXACT,
            question="Exact agreement between people",
            stage="human",
            slices=EACH,
        )
    ),
    Metric("within_1", "Within one level", "share", "agreement", of=_on_levels(agreement.adjacent_agreement, within=1)),
    Metric("within_2", "Within two levels", "share", of=_on_levels(agreement.adjacent_agreement, within=2)),
    Metric("mae", "Mean absolute error, points", section="agreement", of=_on_scores(agreement.mae)),
    Metric("rmse", "Root mean squared error", section="agreement", of=_on_scores(agreement.rmse)),
    Metric("bias", "Mean shift, points", "signed", "agreement", "machine minus people", of=_on_scores(agreement.bias)),
    Metric("smd", "Mean shift, SD (SMD)", "signed", "agreement", of=_on_scores(agreement.smd)).gated(
        Gate("mean_shift", WILLIAMSON, "recalibrate", -0.15, 0.15, slices=EACH)
    ),
    Metric("smd_pooled", "Mean shift, pooled SD", "signed", of=_on_scores(agreement.smd_pooled)),
    Metric("level_share_gap", "Share of scores at one level, machine less people", "signed_share").gated(
        Gate("level_shares", "RSMTool", "choose a mapping that keeps the spread", -0.05, 0.05, slices=("level",))
    ),
    Metric("levels_used", "Levels that hold 95% of an item's scores", "count").gated(
        Gate(
            "scores_vary",
            "this project",
            "a constant is no grade: calibrate anew, or people score this item",
            2,
            question="Do an item's scores differ where people's do?",
            slices=("item",),
        )
    ),
    Metric("prmse", "True score predicted (PRMSE)").gated(
        Gate("prmse", "this project", "see which loss dominates: only spread and bias can be repaired", 0.80)
    ),
    Metric("r_true", "Correlation with the true score").gated(
        Gate("r_true", "RSMTool", "no calibration mends a low correlation: a better judge", 0.90)
    ),
    Metric(
        "qwk_true",
        "Agreement with the true score (QWK)",
        meaning="people's error taken out of the figure, and held by its interval",
    ),
    Metric("pearson", "Correlation", section="agreement", of=_on_scores(agreement.pearson)).gated(
        Gate("machine_r", WILLIAMSON, CALIBRATE, 0.70, question="Machine's correlation with people"),
        Gate("human_r", "RSMTool", PEOPLE, 0.70, question="Correlation between people", stage="human"),
    ),
    Metric("spearman", "Rank correlation", of=_on_scores(agreement.spearman)),
    Metric("qwk_continuous", "Agreement (QWK, of unrounded scores)", of=_on_scores(agreement.qwk_continuous)),
    Metric(
        "icc",
        "ICC(2,1)",
        section="agreement",
        meaning="one person's score as a measure of all",
        of=lambda *pair: agreement.icc_2_1(np.column_stack(pair[:2])),
    ),
    Metric("alpha_ordinal", "Krippendorff's α, ordinal", meaning="all raters at once; 1 is full agreement, 0 chance"),
    Metric("reliability", "Reliability of one human score", meaning="share of its variance that is true"),
    Metric("ceiling_qwk", "Ceiling for any grader (QWK)", meaning="what a perfect judge of the true score would reach"),
    Metric("macro_f1", "Macro F1", section="agreement", of=_on_levels(agreement.macro_f1)),
    Metric("sd_ratio", "Spread, machine / people", "number", "agreement", "below 1: scores crowd in the middle"),
    Metric("interval_coverage", "Intervals that hold the human score", "share", "routing").gated(
        Gate(
            "interval_coverage",
            "this study",
            "distrust the intervals",
            "coverage",
            question="Human scores inside their interval",
        )
    ),
    Metric("interval_width", "Mean width of an interval, steps of the scale", section="routing"),
    Metric(
        "aurc",
        "Area under the risk–coverage curve",
        section="routing",
        meaning="mean error in steps, surest scores first",
    ),
    Metric("aurc_oracle", "the same, perfect order", section="routing"),
    Metric("aurc_random", "the same, random order", section="routing"),
    Metric("augrc", "Generalised area (AUGRC)", section="routing"),
    Metric("ece", "Ordinal calibration error", section="routing", meaning="of the level probabilities"),
    Metric("rps", "Ranked probability score", section="routing", meaning="lower is better"),
    Metric("length_qwk", "Agreement of length alone (QWK)", meaning="a parabola in log length, cross-fitted"),
    Metric("over_length_qwk", "Agreement beyond what length alone has (QWK)", "signed").gated(
        Gate(
            "length",
            "this project",
            "revise criteria that reward length",
            OVER_LENGTH,
            slices=("items", "item"),
            to_show=True,
        )
    ),
    Metric(
        "text_qwk", "Agreement of the text without the rubric (QWK)", meaning="the same predictors without the judge"
    ),
    Metric("over_text_qwk", "Agreement that the rubric adds (QWK)", "signed").gated(
        Gate(
            "rubric",
            "this project",
            "call it a score by text: labels and text alone agree as well",
            0.0,
            slices=("items", "item"),
        )
    ),
    Metric("over_other_qwk", "Agreement beyond what it stands beside (QWK)", "signed"),
    Metric("standing_qwk", "Agreement on the same answers (QWK)"),
    Metric(
        "within_r",
        "Agreement inside questions (correlation)",
        "signed",
        meaning="of what people and machine add to each question's mean",
    ).gated(
        Gate(
            "within_questions",
            "this project",
            "the scores tell questions apart and not answers: people score these",
            0.0,
            question="Do the scores agree with people inside a question?",
            to_show=True,
        )
    ),
    Metric("length_share", "Explained by length alone", "share", "agreement", "of what length and score explain"),
    Metric("decision_accuracy", "The likeliest level is people's", "share", "decisions"),
    Metric("decision_confidence", "Mean probability of it", "share", "decisions"),
    Metric("decision_ece", "Calibration error (ECE)", section="decisions", meaning="0 where probabilities are right"),
    Metric(
        "decision_ece_by_chance",
        "What chance alone makes of it",
        section="decisions",
        meaning="were every probability right",
    ),
    Metric("decision_brier", "Brier score", section="decisions", meaning="0 best, 2 worst"),
    Metric("decision_rps", "Ranked probability score", section="decisions", meaning="near misses cost less"),
    Metric("decision_log_loss", "Log loss", section="decisions"),
    Metric("pair_verdict", "Right, one verdict alone", "share", "preferences", "either order, ties by half"),
    Metric("pair_agreed_share", "Both orders bring the same winner", "share", "preferences", "the others abstain"),
    Metric("pair_agreed", "Right, where both orders do", "share", "preferences"),
    Metric("pair_accuracy", "Right, all verdicts of a pair together", "share", "preferences", "who abstains by half"),
    Metric(
        "pair_chosen",
        "Right, by the rule chosen inside folds",
        "share",
        "preferences",
        "the best sample, the mean or weights; no pair by a rule that has seen its question",
    ),
    Metric("pair_best", "The best of several answers is put first", "share", "preferences"),
    Metric("pair_first", "The answer shown first wins", "share", "preferences", "half without an effect of order"),
    Metric("pair_people", "Two people say the same", "share", "preferences"),
    Metric("pair_length", "Right, were the longer answer always chosen", "share", "preferences"),
    Metric("pair_chance", "Right by chance", "share", "preferences"),
    Metric("doubles", "Responses scored by two people", "count").gated(
        Gate("doubly_scored", "this project", "have a second person score more", 100, stage="human")
    ),
    Metric("same_again", "Same score when asked again", "share").gated(
        Gate(
            "same_answer_again",
            "Ofqual",
            "ask a sample again; average, and route what changes",
            0.95,
            stage="raw",
            always=True,
        )
    ),
    Metric("", "").gated(
        Gate(
            "new_items", WILLIAMSON, "use it for these items only", question="Use on new items", stage="", always=True
        ),
        Gate(
            "outside_measures",
            WILLIAMSON,
            "restrict the use",
            question="Agreement with outside measures",
            stage="",
            always=True,
        ),
    ),
)
"""A metric that no page names and no gate asks for needs no record."""
