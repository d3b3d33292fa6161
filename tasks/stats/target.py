"""The human score that counts: what machine scores are calibrated to and compared with."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

MEAN = "mean"
FAIR = "fair"
"""The rater id under which ingest writes fair scores."""
OF_SEVERAL = (MEAN, FAIR)
"""Targets that are made of the scores of all persons."""


def target_scores(people: pa.Table, target: str) -> pa.Table:
    """Columns `response_id` and `score`: a rater's score or, for target 'mean', the mean of the persons who gave one.

    people: `response_id`, `rater_id`, `rater_kind`, `score`. An adjudicated or resolved score is made from those of
    persons and so has no part in their mean; it can be the target by its name, and so can the fair score, which
    ingest writes where a study asks for it.
    """
    is_target = pc.equal(people["rater_kind"], "human") if target == MEAN else pc.equal(people["rater_id"], target)
    # Equal sets of scores have equal means in whatever order they are stored.
    scored = people.filter(pc.and_(is_target, pc.is_valid(people["score"])))
    scored = scored.sort_by([("response_id", "ascending"), ("score", "ascending")])
    means = scored.group_by("response_id", use_threads=False).aggregate([("score", "mean")])
    return means.rename_columns(["response_id", "score"])


def people_marks(marks: pa.Table, target: str) -> pa.Table:
    """The marks to compare with: those of the target rater where that is a person who marked, else everybody's.

    marks: response_id, criterion_id, rater_id, rater_kind, decision.
    """
    human_marks = marks.filter(pc.and_(pc.equal(marks["rater_kind"], "human"), pc.is_valid(marks["decision"])))
    target_marks = human_marks.filter(pc.equal(human_marks["rater_id"], target))
    return target_marks if len(target_marks) else human_marks
