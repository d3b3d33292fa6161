"""Gates, routes and reasons in words."""

from __future__ import annotations

QUESTIONS = {
    "released_errors": "Released scores beyond the tolerance",
    "machine_qwk": "Machine's agreement with people (QWK)",
    "degradation_qwk": "Loss against a second person (QWK)",
    "degradation_exact": "Loss against a second person (exact agreement)",
    "group_difference": "Difference of a group (DSM)",
    "mean_shift": "Mean shift (SMD)",
    "level_shares": "Share of scores at one level, machine less people",
    "prmse": "True score predicted (PRMSE)",
    "r_true": "Correlation with the true score",
    "machine_r": "Machine's correlation with people",
    "interval_coverage": "Human scores inside their interval",
    "length": "What length alone explains",
    "human_qwk": "Agreement between people (QWK)",
    "human_exact": "Exact agreement between people",
    "human_r": "Correlation between people",
    "doubly_scored": "Responses scored by two people",
    "same_answer_again": "Same score when asked again",
    "new_items": "Use on new items",
    "outside_measures": "Agreement with outside measures",
}
"""Gates in words, the weightiest first."""
ROUTES = {
    "unscored": "no score",
    "precheck": "settled without the judge",
    "weak_evidence": "a decision that no quote grounds",
    "uncalibrated": "no labels to tell the risk",
    "out_of_range": "outside the range seen in calibration",
    "level_unseen": "a level that no person gave in calibration",
    "no_promise": "the labels cannot vouch for any risk",
    "risk": "risk above what can be vouched for",
}
UNSCORED = {
    "no_reply": "the model gave no reply",
    "unreadable_reply": "the reply could not be read",
    "invalid_reply": "the reply breaks the contract",
    "off_scale": "a score outside the judge's scale",
    "criterion_missing": "no verdict on a criterion",
    "criterion_unscored": "needs a criterion that is unscored",
    "trait_unscored": "needs a trait that is unscored",
    "traits_only": "only traits were scored",
}
