"""The cells of a labelled data set, one per concept of a response, and the level that an annotator gives in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.store.warehouse import Run, pairs

NO_LEVEL = -1


@dataclass(frozen=True)
class Cells:
    """m cells: responses in the order of their ids, the concepts of each in their rubric's order."""

    responses: tuple[str, ...]
    """n ids, sorted."""
    criteria: tuple[str, ...]
    """Ids of all concepts of the study."""
    response: Ints
    """(m,) index into `responses`, never falling."""
    criterion: Ints
    """(m,) index into `criteria`."""
    top: Ints
    """(m,) M, the highest level."""

    def find(self, response_ids: pa.ChunkedArray, criterion_ids: pa.ChunkedArray) -> Ints:
        """The cell of each pair; -1 where there is none."""
        row = _index(response_ids, self.responses)
        column = _index(criterion_ids, self.criteria)
        code = np.where((row < 0) | (column < 0), -1, row * len(self.criteria) + column)
        codes, cells = self._codes
        if not len(codes):
            return np.full(len(code), -1)
        place = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        matching: Ints = np.where(codes[place] == code, cells[place], -1)
        return matching

    @cached_property
    def _codes(self) -> tuple[Ints, Ints]:
        """The cells' codes, rising, and the cell of each."""
        code = self.response * len(self.criteria) + self.criterion
        order = np.argsort(code)
        return code[order], order


@dataclass(frozen=True)
class CellLabels:
    """What one annotator gives in each of m cells."""

    rater_id: str
    level: Ints
    """(m,) NO_LEVEL where it gives none."""
    probability: Floats
    """(m,) that of its level; NaN where it gives none."""
    ungrounded: Bools
    """(m,) whether the level's evidence does not hold."""


def rubrics(
    run: Run, items: TableRef, responses: TableRef, bundles: TableRef
) -> tuple[dict[str, Bundle], dict[str, str]]:
    """Rubric → bundle, and response → rubric."""
    rubric = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
    item = pairs(run.read(responses, ["response_id", "item_id"]))
    return unlocked(run.read(bundles).to_pylist()), {response: rubric[name] for response, name in item}


def cells_of(rubric_of: Mapping[str, str], criteria: Mapping[str, Sequence[Criterion]]) -> Cells:
    """The cells of responses (response → rubric) under their rubrics (rubric → its concepts); a response without
    concepts has none and is left out."""
    names = tuple(dict.fromkeys(criterion.id for criterion in chain.from_iterable(criteria.values())))
    number = {name: i for i, name in enumerate(names)}
    concepts = {}
    for rubric, given in criteria.items():
        pairs = [(number[concept.id], concept.top) for concept in given]
        concepts[rubric] = np.array(pairs, np.int64).reshape(-1, 2)
    responses = tuple(sorted(response for response, rubric in rubric_of.items() if criteria[rubric]))
    of_responses = [concepts[rubric_of[response]] for response in responses]
    sizes = [len(given) for given in of_responses]
    criterion, top = np.concatenate([np.empty((0, 2), np.int64), *of_responses]).T
    return Cells(responses, names, np.repeat(np.arange(len(responses)), sizes), criterion, top)


def cell_labels(cells: Cells, judgments: pa.Table) -> CellLabels:
    """What the rows of table `judgments` of one rater come to; of several repetitions the first counts. Rows of no cell
    are passed over.

    ContractError where the rows have several raters or none, or a level lies off its scale.
    """
    raters = pc.unique(judgments["rater_id"]).to_pylist()
    if len(raters) != 1:
        raise ContractError(f"judgments of one annotator were wanted, not of {sorted(raters)}")
    rows = judgments.filter(pc.equal(judgments["sample"], 0))
    cell = cells.find(rows["response_id"], rows["criterion_id"])
    rows, cell = rows.filter(pa.array(cell >= 0)), cell[cell >= 0]
    level = np.full(len(cells.top), NO_LEVEL)
    level[cell] = pc.fill_null(rows["decision"], NO_LEVEL).to_numpy()
    if (level > cells.top).any():
        off = int(np.argmax(level > cells.top))
        where = f"{cells.criteria[cells.criterion[off]]} of response {cells.responses[cells.response[off]]}"
        raise ContractError(f"annotator {raters[0]}: level {level[off]} of {where} is above the highest")
    ungrounded = np.zeros(len(level), dtype=bool)
    ungrounded[cell] = pc.fill_null(pc.invert(rows["verified"]), False).to_numpy()
    probability = np.full(len(level), np.nan)
    probability[cell] = _of_level(rows["level_probabilities"], level[cell])
    return CellLabels(raters[0], level, probability, ungrounded & (level >= 0))


def _of_level(distributions: pa.ChunkedArray, level: Ints) -> Floats:
    """(k,) each row's probability of its level; NaN where the list is null or too short, or the level is none."""
    lists = distributions.combine_chunks()
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
    probability = np.full(len(level), np.nan)
    has = (level >= 0) & (level < length)
    starts = np.cumsum(length) - length
    probability[has] = values[(starts + level)[has]]
    return probability


def _index(ids: pa.ChunkedArray, among: Sequence[str]) -> Ints:
    places = pc.fill_null(pc.index_in(ids, value_set=pa.array(among, ids.type)), -1)
    index: Ints = places.to_numpy().astype(np.int64)
    return index
