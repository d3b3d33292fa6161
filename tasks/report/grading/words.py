"""Gates in words."""

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
