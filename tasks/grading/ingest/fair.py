"""Fair scores as gradings: what an average rater would have given each response that a person scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.facet_likelihood import Rating, design, linked
from rubricflow.tasks.core.stats.facets import fair_scores, fit
from rubricflow.tasks.core.stats.scores import FAIR

FIELD = "evaluation.target"
SHOWN = 3
"""Sets of raters, and raters of a set, that an error names."""


def fair_gradings(
    gradings: pa.Table, rubric_of: Mapping[str, str], split_of: Mapping[str, str], at_random: bool
) -> pa.Table:
    """Rows of `gradings` by the rater 'fair', one for every response that a person scored, each with its standard error
    and the number of its ratings among the signals.

    gradings: response_id, item_id, rater_id, rater_kind, score; rubric_of: item -> rubric, whose responses share their
    steps; split_of: response -> split; at_random: as in `fit`. What a calibration may learn from rests on no score of
    the test split: its responses are fitted without those, and only those of the test with all. InputError where
    raters share no responses, directly or by way of others.
    """
    people = gradings.filter(pc.and_(pc.equal(gradings["rater_kind"], "human"), pc.is_valid(gradings["score"])))
    columns = (people[name].to_pylist() for name in ("response_id", "item_id", "rater_id", "score"))
    item_of: dict[str, str] = {}
    ratings = []
    for response, item, rater, score in zip(*columns, strict=True):
        item_of[response] = item
        ratings.append(Rating(response, rubric_of[item], rater, score))
    taught = [rating for rating in ratings if split_of[rating.response] != "test"]
    scored = _scored(taught, "in the train and calibration splits", at_random)
    if len(taught) < len(ratings):
        tested = _scored(ratings, "", at_random)
        scored |= {response: row for response, row in tested.items() if split_of[response] == "test"}
    rows = list[dict[str, Any]]()
    for response, (score, error, count) in scored.items():
        row: dict[str, Any] = {
            "response_id": response,
            "item_id": item_of[response],
            "rater_id": FAIR,
            "rater_kind": "adjudication",
        }
        row |= {"sample": 0, "score": score, "trait_scores": {}, "status": "scored"}
        rows.append(row | {"signals": {"standard_error": error, "ratings": float(count)}})
    return conform(Gradings, rows)


def _scored(ratings: Sequence[Rating], where: str, at_random: bool) -> dict[str, tuple[float, float, int]]:
    """Response -> (fair score, its standard error, the number of its ratings)."""
    if not ratings:
        return {}
    coded = design(ratings)
    sets = [] if at_random else linked(coded)
    if len(sets) > 1:
        shown = [
            ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            for names in sets[:SHOWN]
        ]
        rule = f"raters fall into {len(sets)} sets that share no response {where}".rstrip()
        hint = (
            "so nobody can tell a strict rater from weak responses: let a person of each set mark responses of "
            "another, use 'mean', or say evaluation.random_assignment: true if chance decided who marked what"
        )
        more = " …" if len(sets) > SHOWN else ""
        raise InputError(f"{rule}: {'; '.join(shown)}{more}", field=FIELD, hint=hint)
    fair = fair_scores(fit(coded, at_random))
    rows = zip(fair.score.tolist(), fair.se.tolist(), fair.ratings.tolist(), strict=True)
    return dict(zip(coded.responses, rows, strict=True))
