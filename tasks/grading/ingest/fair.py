"""Fair scores as gradings: what an average rater would have given each response that a person scored."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.facet_likelihood import design, linked
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
    rows = gradings.to_pandas()
    people = rows[(rows["rater_kind"] == "human") & rows["score"].notna()]
    people = people.assign(rubric=people["item_id"].map(rubric_of), split=people["response_id"].map(split_of))
    taught = people[people["split"] != "test"]
    scored = _scored(taught, "in the train and calibration splits", at_random)
    if len(taught) < len(people):
        tested = _scored(people, "", at_random)
        scored |= {response: row for response, row in tested.items() if split_of[response] == "test"}
    item_of = dict(zip(people["response_id"], people["item_id"], strict=True))
    same = {"rater_id": FAIR, "rater_kind": "adjudication", "sample": 0, "trait_scores": {}, "status": "scored"}
    records = []
    for response, (score, error, count) in scored.items():
        signals = {"standard_error": error, "ratings": float(count)}
        record = {"response_id": response, "item_id": item_of[response], "score": score, "signals": signals}
        records.append(same | record)
    return conform(Gradings, records)


def _scored(people: pd.DataFrame, where: str, at_random: bool) -> dict[str, tuple[float, float, int]]:
    """Response -> (fair score, its standard error, the number of its ratings)."""
    if people.empty:
        return {}
    named = {"response_id": "response", "rubric": "group", "rater_id": "rater"}
    coded = design(people.rename(columns=named))
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
