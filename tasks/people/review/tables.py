"""Tables of a run as review reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.cells import CellLabels, Cells, cell_labels, cells_of
from rubricflow.tasks.people.review.subject import Subject, digest


def rubrics(
    run: Run, items: TableRef, responses: TableRef, bundles: TableRef
) -> tuple[dict[str, Bundle], dict[str, str]]:
    """Rubric → bundle, and response → rubric."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubric = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
    rows = run.read(responses, ["response_id", "item_id"])
    pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return locked, {response: rubric[item] for response, item in pairs}


def all_cells(locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]) -> Cells:
    """Every response by every criterion of its rubric."""
    return cells_of(rubric_of, {name: bundle.criteria for name, bundle in locked.items()})


def annotator_labels(run: Run, cells: Cells, name: str, judgments: TableRef) -> CellLabels:
    """What an annotator says, under the name that the study gives it."""
    rows = run.read(judgments)
    place = rows.schema.get_field_index("rater_id")
    return cell_labels(cells, rows.set_column(place, "rater_id", pa.repeat(name, len(rows))))


def human_shares(
    run: Run, study: Study, people: TableRef, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]
) -> dict[str, float]:
    """Response → its human score as a share of the scale, where there is one."""
    target = target_scores(run.read(people), study.evaluation.target)
    scores = target.filter(pc.is_valid(target["score"])).select(["response_id", "score"])
    shares = {}
    for response, score in zip(*(column.to_pylist() for column in scores.columns), strict=True):
        scale = locked[rubric_of[response]].scale
        shares[response] = (score - scale.min) / (scale.max - scale.min)
    return shares


def current_digests(
    run: Run, responses: TableRef, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]
) -> dict[Subject, str]:
    """What an act on a label must have been about to count: response and criterion → digest of both."""
    rows = run.read(responses, ["response_id", "text"])
    digests: dict[Subject, str] = {}
    for response, text in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        for criterion in locked[rubric_of[response]].criteria:
            digests[response, criterion.id] = digest(text, criterion.text, criterion.levels)
    return digests
