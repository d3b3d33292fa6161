"""What the evaluation reads a batch at a time is what the tables hold, however they are cut into shards."""

from __future__ import annotations

import math

from builders.rows import grading, item, response
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.evaluate.raters import MARK, read_marks

TRAITS = st.dictionaries(st.sampled_from(["form", "content"]), st.integers(0, 3).map(float))
SCORES = st.none() | st.integers(0, 6).map(float)
ANSWERS = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2"]),
        st.sampled_from([None, "anna", "ben"]),
        st.sampled_from([None, "early", "late"]),
        st.dictionaries(st.sampled_from(["h1", "h2", "a machine"]), st.tuples(SCORES, TRAITS), max_size=3),
    ),
    max_size=8,
)


def written(run: Run, answers, cut: int):
    """The tables of a run in two shards, cut at a row; and what persons said, as plain rows."""
    responses, gradings, plain = [], [], []
    for number, (item_id, author, period, marks) in enumerate(answers):
        key = f"r{number}"
        groups = {} if period is None else {"period": period}
        responses.append(response(key, item_id) | {"author_id": author, "groups": groups})
        for rater, (score, traits) in marks.items():
            row = grading(key, rater, score, item_id=item_id, trait_scores=traits)
            gradings.append(row)
            if row["rater_kind"] == "human":
                scores = traits | ({} if score is None else {"": score})
                plain.append((key, item_id, f"rubric-{item_id}", rater, period, author or key, scores))
    items = [item(name, rubric_id=f"rubric-{name}") for name in ("q1", "q2")]
    run.commit("ingest", "00", {Items: items, Responses: responses[:cut], Gradings: gradings[cut:]})
    run.commit("ingest", "01", {Items: [], Responses: responses[cut:], Gradings: gradings[:cut]})
    return plain


@settings(max_examples=12)
@given(answers=ANSWERS, cut=st.integers(0, 8))
def test_marks_are_those_of_the_plain_rows_however_the_tables_are_cut(tmp_path_factory, answers, cut):
    run = Warehouse.open(tmp_path_factory.mktemp("w")).run("small")
    plain = written(run, answers, cut)
    marks = read_marks(run, *(run.ref(row, "ingest") for row in (Items, Responses, Gradings)))
    names = ("response_id", "item_id", "rubric_id", "rater_id", "period", "cluster")
    rows = list(marks[[*names]].astype(object).where(marks[[*names]].notna(), None).itertuples(index=False, name=None))
    traits = {name.removeprefix(MARK): marks[name] for name in marks.columns if name.startswith(MARK)}
    scores = [
        {trait: column[place] for trait, column in traits.items() if not math.isnan(column[place])}
        for place in range(len(rows))
    ]
    marked = [(*row, own) for row, own in zip(rows, scores, strict=True)]
    assert sorted(marked, key=_of_whom) == sorted(plain, key=_of_whom)


def _of_whom(row):
    """Response and rater."""
    return row[0], row[3]


def test_no_table_of_responses_or_scores_is_read_whole(tmp_path, monkeypatch):
    run = Warehouse.open(tmp_path).run("small")
    written(run, [("q1", "anna", None, {"h1": (1.0, {}), "h2": (2.0, {})})], 1)
    refs = [run.ref(row, "ingest") for row in (Items, Responses, Gradings)]
    whole, read = [], Run.read
    monkeypatch.setattr(Run, "read", lambda run, ref, *more: whole.append(ref.table) or read(run, ref, *more))
    read_marks(run, *refs)
    assert whole == ["items"]
