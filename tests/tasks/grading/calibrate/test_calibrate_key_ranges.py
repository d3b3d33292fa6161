"""Packs by their keys: every grading in exactly one of them, as a pass over all gradings in order cuts them."""

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from builders.rows import grading
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.calibrate.predictions import GRADING, KEYS, gradings_of, packs

ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)
ITEMS = st.dictionaries(ID, st.dictionaries(ID, st.integers(1, 5), max_size=12), max_size=5)
"""Item → response → samples."""


def written(folder, items, order, shards):
    """The gradings in shards, in the order of `order`, each with a score of its own; responses are their item's."""
    rows = [
        grading(f"{response}@{item}", "m", 0.0, item_id=item, sample=sample)
        for item, responses in items.items()
        for response, samples in responses.items()
        for sample in range(samples)
    ]
    order.shuffle(rows)
    run = Warehouse.open(folder / "house").run("run")
    for number in range(shards):
        mine = [row | {"score": float(place)} for place, row in enumerate(rows)][number::shards]
        run.commit("judge", f"{number:05d}", {Gradings: mine})
    return run, run.ref(Gradings, "judge")


@settings(max_examples=15)
@given(ITEMS, st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 9))
def test_a_pack_read_by_its_keys_is_what_a_pass_over_all_gradings_gives(items, order, shards, rows):
    with tempfile.TemporaryDirectory() as folder:
        run, gradings = written(Path(folder), items, order, shards)
        parted = list(packs(run, gradings, rows))
        read = [gradings_of(run, gradings, pack) for pack in parted]
        assert [pack.rows for pack in parted] == [len(table) for table in read]
        whole = run.read(gradings, GRADING).sort_by([(name, "ascending") for name in KEYS])
        together = pa.concat_tables(read) if read else whole
        assert together["response_id"].equals(whole["response_id"])
        assert sorted(map(str, together.to_pylist())) == sorted(map(str, whole.to_pylist()))
        of_packs = [table["response_id"].unique() for table in read]
        assert sum(map(len, of_packs)) == len(whole["response_id"].unique())
        assert sum(pack.rows for pack in parted) == gradings.rows
        assert not [pack for pack in parted[:-1] if pack.rows < rows]


def test_gradings_that_came_or_went_since_are_named(tmp_path):
    run, gradings = written(tmp_path, {"i": {"a": 1, "b": 2}}, random.Random(0), 1)
    (pack,) = packs(run, gradings, 9)
    with pytest.raises(StoreError, match="predictions-00000 has 3 rows, not 4"):
        gradings_of(run, gradings, pack._replace(rows=4))
