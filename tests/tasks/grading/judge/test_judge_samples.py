"""Repeated samples through the door: everything is asked anew with the next seed, and told apart in every table."""

import json
from pathlib import Path

import pytest
from builders.bundles import THREE, bundle, criterion
from builders.cases import to_judge

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import parse
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.task import judge

BUNDLE = bundle(criterion("P", levels=THREE))


def by_seed(request):
    """Another level for every other seed."""
    quote = [{"unit": "s1", "quote": "plants need light"}]
    level = 1 + request.sampling.seed % 2
    return json.dumps({"decisions": {"P": {"evidence": quote, "level": level}}})


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The tables of two responses judged three times, and the backend."""
    backend = Scripted(by_seed)
    rater = Rater("scripted:test", "llm", backend, sampling=Sampling(seed=7, temperature=0.5))
    monkeypatch.setattr(shard_judge, "rater", lambda *given: rater)
    run = Warehouse.open(tmp_path / "house").run("run")
    refs = to_judge(run, BUNDLE, {"i": dict.fromkeys("ab", "plants need light")})
    plan = Judge(backend="replay", model="scripted", samples=3)
    made = judge.fn(run, plan, tmp_path, *refs)
    return {ref.table: run.read(ref).to_pylist() for ref in made[:3]}, backend


def test_each_sample_is_a_row_of_its_own_in_every_table(judged):
    tables, _ = judged
    for rows in tables.values():
        assert sorted((row["response_id"], row["sample"]) for row in rows) == [
            (name, sample) for name in ("a", "b") for sample in range(3)
        ]


def test_each_sample_has_the_next_seed_and_the_answer_to_it(judged):
    tables, _ = judged
    assert {row["sample"]: row["seed"] for row in tables["attempts"]} == {0: 7, 1: 8, 2: 9}
    assert {row["sample"]: row["score"] for row in tables["gradings"]} == {0: 10.0, 1: 5.0, 2: 10.0}


def test_a_rater_that_is_asked_once_is_the_rater_itself():
    rater = Rater("r", "llm", Scripted([]))
    assert repeated(rater, 1) == [rater]


@pytest.mark.parametrize(
    ("more", "said"),
    [({"backend": "openai", "engine": {"model": "m"}}, "temperature"), ({"keep": "an-earlier-run"}, "keep")],
)
def test_samples_that_could_not_differ_are_refused(more, said):
    with pytest.raises(InputError, match=said):
        parse(Judge, {"samples": 2} | more, Path("study.yaml"))
