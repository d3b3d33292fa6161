"""A trained grader as a rater: what it is shown, what becomes of what it says, and when it does not fit."""

import json
from dataclasses import dataclass, field, replace

import pytest
from builders import bundles

from rubricflow.tasks.core.contracts.backends import GraderOutput
from rubricflow.tasks.core.contracts.bundle import Criterion, Protocol
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch
from rubricflow.tasks.grading.judge.protocol import ALL, Part, protocol_of
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Rater

PLAN = Judge(backend="trained", protocol="bottleneck", grader="g.safetensors")
CRITERIA = (
    Criterion(id="fact", trait="t", text="States the cause.", levels=("no", "in part", "yes")),
    Criterion(id="flow", trait="t", text="Reads well.", evidence="global_diagnostic"),
)
BUNDLE = bundles.bundle(*CRITERIA, ends=(0, 4)).model_copy(update={"protocol": PLAN.as_protocol()})
LEVELS = {"fact": [0.1, 0.3, 0.6], "flow": [0.8, 0.2]}


@dataclass
class Fake:
    """A grader that says the same of everything and notes what it was shown."""

    levels: dict = field(default_factory=lambda: LEVELS)
    grades: dict = field(default_factory=lambda: {0.0: 0.1, 3.0: 0.7, 4.0: 0.2})
    name: str = "rec_cbm:tiny:0123456789ab"
    shown: list = field(default_factory=list)

    @property
    def concepts(self):
        return {name: len(likely) for name, likely in self.levels.items()}

    @property
    def scores(self):
        return list(self.grades)

    def __call__(self, answered):
        self.shown += answered
        return [GraderOutput(self.levels, self.grades, max(self.grades, key=self.grades.get)) for _ in answered]


@pytest.fixture
def grade(tmp_path, case_of):
    def run(grader, *texts, bundle=BUNDLE, replies=None, **more):
        cases = [case_of(bundle, text, f"r{i}", **more) for i, text in enumerate(texts)]
        with ReplyStore(replies or ":memory:") as store:
            return grade_batch(cases, rater(PLAN, tmp_path, store, grader=grader), store)

    return run


def test_what_it_says_becomes_decisions_and_a_score(grade):
    found = grade(Fake(), "Plants need light.").tables()
    fact, flow = found[Judgments].to_pylist()
    assert [(d["criterion_id"], d["decision"], d["stated"]) for d in (fact, flow)] == [("fact", 2, 2), ("flow", 0, 0)]
    assert (fact["verified"], fact["evidence"], fact["action"]) == (None, [], "none")
    assert fact["level_probabilities"] == LEVELS["fact"]
    assert (fact["rater_kind"], fact["rater_id"]) == ("trained", "trained:rec_cbm:tiny:0123456789ab:bottleneck")
    (row,) = found[Gradings].to_pylist(maps_as_pydicts="strict")
    assert (row["score"], row["status"], row["unscored_reason"]) == (3, "scored", None)
    assert row["confidence"] == pytest.approx(0.7)
    signals = row["signals"]
    assert signals["criterion.fact"] == pytest.approx(0.75)
    assert signals["criterion.flow"] == pytest.approx(0.2)
    assert signals["mean.t"] == pytest.approx(0.475)
    assert signals["grade_probability"] == pytest.approx(0.7)
    assert "off_step" not in signals
    assert found[Attempts].to_pylist()[0]["prompt"] is None


def test_a_score_between_two_steps_stands_and_is_marked(grade):
    (row,) = grade(Fake(grades={0.5: 0.2, 2.5: 0.8}), "Light.").tables()[Gradings].to_pylist(maps_as_pydicts="strict")
    assert (row["score"], row["signals"]["off_step"]) == (2.5, 1)


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        (Fake({"fact": [0.5, 0.5], "flow": [1, 0]}), "'fact' has 2 levels in it and 3 in the rubric"),
        (Fake({"fact": [1, 0, 0]}), "it has no concept 'flow'"),
        (Fake(LEVELS | {"depth": [1, 0]}), "the rubric has no criterion 'depth'"),
        (Fake(grades={0.0: 0.5, 5.0: 0.5}), "it gives 5, which is off the scale 0 to 4"),
    ],
)
def test_a_grader_of_another_rubric_is_refused(grade, grader, message):
    with pytest.raises(InputError, match=rf"judge\.grader': the grader was trained with another rubric: {message}"):
        grade(grader, "Light.")
    assert not grader.shown


def test_without_a_grader_there_is_no_rater(tmp_path):
    with ReplyStore(":memory:") as store, pytest.raises(InputError, match=r"judge\.grader': backend 'trained' has no"):
        rater(PLAN, tmp_path, store)


GOOD = {"levels": {"fact": 1, "flow": 0}, "score": 2, "probability": 0.5}


@pytest.mark.parametrize(
    ("said", "violations"),
    [
        (GOOD, ()),
        (GOOD | {"score": 4.5}, ("score_off_scale",)),
        (GOOD | {"score": None}, ("malformed_score",)),
        (GOOD | {"probability": "high"}, ("malformed_probability",)),
        (GOOD | {"levels": {"fact": 3}}, ("level_off_scale:fact", "missing_decision:flow")),
        (GOOD | {"levels": {"fact": True, "flow": 0.5}}, ("malformed_decision:fact", "malformed_decision:flow")),
        (GOOD | {"levels": []}, ("missing_decision:fact", "missing_decision:flow")),
        ({"score": 1}, ("unreadable:missing_keys",)),
    ],
)
def test_a_reply_is_whole_or_none(case_of, said, violations):
    (request,) = first_requests(case_of(BUNDLE), Rater("t", "trained", None))
    checked = protocol_of("bottleneck").check(request, Reply(text=json.dumps(said)))
    assert checked.violations == violations
    assert (checked.value is None) == bool(violations)
    assert protocol_of("bottleneck").repair(request, ()) is None


def test_a_call_that_fails_leaves_everything_unscored(grade_all, case_of):
    found = grade_all([case_of(BUNDLE)], [Reply(error="timeout: x")])
    assert [(d["decision"], d["unscored_reason"]) for d in found.judgments] == [(None, "no_reply")] * 2
    assert (found.gradings[0]["score"], found.gradings[0]["unscored_reason"]) == (None, "no_reply")


def test_the_bundle_can_be_proved_though_its_criteria_demand_quotes_elsewhere():
    assert prove_bundle(BUNDLE, "Why?", None, "Light.") == []


def test_every_fact_that_a_grader_reads_makes_another_question_only_for_it(case_of):
    other = BUNDLE.model_copy(
        update={"protocol": Protocol(name="rulers", final_score="trait_mean", signals=("trait_scores",))}
    )
    for bundle, differs in ((BUNDLE, True), (other, False)):
        (first,) = first_requests(case_of(bundle), Rater("t", "trained", None))
        for change in ({"reference_answer": "R"}, {"context": "C"}):
            assert (replace(first.data, **change).digest != first.data.digest) == differs
    schema = protocol_of("bottleneck").schema(BUNDLE, Part(ALL, CRITERIA))
    assert schema["properties"]["levels"]["properties"]["fact"] == {"type": "integer", "minimum": 0, "maximum": 2}
