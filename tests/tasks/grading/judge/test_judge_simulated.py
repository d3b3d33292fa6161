"""The simulated rater: what it knows, how it errs, and that neither order nor batch matters."""

import json
import math

import numpy as np
import pytest
from builders import rows
from builders.bundles import THREE, bundle_by, criterion, scale, trait
from builders.cases import case
from builders.rows import grading, judgment
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge, Truth
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import task as door
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.protocol import NOTHING, Shown, protocol_of
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.simulated import (
    HumanMarks,
    Simulated,
    answer,
    level_probabilities,
)
from rubricflow.tasks.grading.lock.bundles import shaped

TEXT = "Water leaves every cell of it. The skin lets no salt pass. It hangs limp then. I like crisps."
RUBRIC = Rubric(
    rubric_id="r",
    scale=scale(0, 10),
    traits=(trait("content"),),
    criteria=(
        criterion("P1", "content", text="Water leaves the cell", levels=THREE, weight=3),
        criterion("P2", "content", text="The skin holds the salt back", levels=THREE),
        criterion("M1", "content", kind="misconception", text="Salt makes it limp", weight=-2),
    ),
)
EXACT = {"noise": 0.0, "invented": 0.0, "broken": 0.0}
PROTOCOLS = (
    *("rulers", "checked_score", "pointwise", "dhs", "gradeagentops"),
    *("mts", "checkeval", "autoscore", "unlocked", "concepts"),
)
GRADINGS = [grading("r0", rater, score, rater_kind="human") for rater, score in (("key", 7.0), ("strict", 0.0))]
MARKS = [
    judgment("r0", name, level, rater, rater_kind="human")
    for rater, levels in (("key", (2, 1, 0)), ("strict", (0, 0, 1)))
    for name, level in zip(("P1", "P2", "M1"), levels, strict=True)
]
SAID = HumanMarks({"P1": 2, "P2": 1, "M1": 0}, {"P1": 2, "P2": 2, "M1": 1}, {}, 7.0)


def bundle_of(protocol, **more):
    of = Judge(protocol=protocol, backend="simulated", truth=Truth(rater="key"), **more).as_protocol()
    return bundle_by(shaped(RUBRIC, of, ["technical"]), of)


def cases_of(bundle, count):
    seen = {"question": "Why?", "reference_answer": "key", "bundle_id": "b"}
    return [case(bundle, f"{TEXT} Number {n}.", f"r{n}", "i", **seen) for n in range(count)]


def graded(cases, truth, said, folder):
    backend = Simulated(truth, said)
    with ReplyStore(folder / backend.model) as replies:
        return grade_batch(cases, Rater("simulated:test", "simulated", backend), replies)


def requests_of(case, shown=NOTHING):
    protocol = protocol_of(case.bundle.protocol.name)
    who = Rater("simulated:test", "simulated", Simulated(Truth(rater="key"), {}))
    return [protocol.request(case, part, (), shown, who) for part in protocol.parts(case.bundle, ())]


def seen(truth, said, count=600, protocol="rulers", shown=NOTHING):
    """(levels of P1, probabilities of P1) over responses of which the same is known."""
    cases = cases_of(bundle_of(protocol), count)
    replies = [answer(requests_of(case, shown)[0], truth, {c.response_id: said for c in cases}) for case in cases]
    levels = [json.loads(reply.text)["decisions"]["P1"]["level"] for reply in replies]
    return np.array(levels), np.array([reply.level_probabilities["P1"] for reply in replies])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_error_every_protocol_gets_a_usable_reply_and_no_violation(protocol, tmp_path):
    bundle = bundle_of(protocol)
    found = graded(cases_of(bundle, 3), Truth(rater="key", **EXACT), {f"r{n}": SAID for n in range(3)}, tmp_path)
    assert [grading.status for grading in found.gradings] == ["scored"] * 3
    violations = {v for called in found.called for a in called.answer.attempts for v in a.checked.violations}
    assert violations <= {"contradicted_score:score_content"}  # the marks that it knows do not add up to its score
    assert not [
        grading.signals["invalid_evidence"] for grading in found.gradings if "invalid_evidence" in grading.signals
    ]


def test_without_error_levels_are_the_marks_and_a_holistic_score_the_score(tmp_path):
    truth = Truth(rater="key", **EXACT)
    (judged,) = graded(cases_of(bundle_of("rulers"), 1), truth, {"r0": SAID}, tmp_path).judged
    assert {d.criterion_id: d.level for d in judged.decisions} == SAID.levels
    (grading,) = graded(cases_of(bundle_of("dhs"), 1), truth, {"r0": SAID}, tmp_path).gradings
    assert grading.scored.score == SAID.score


@given(st.floats(-1, 2), st.integers(1, 5), st.floats(0.02, 2))
def test_probabilities_are_bayes_with_normal_noise(place, top, noise):
    found = level_probabilities(place, top, noise)
    logs = [-0.5 * ((place - (j + 0.5) / (top + 1)) / noise) ** 2 for j in range(top + 1)]
    total = np.logaddexp.reduce(logs)
    assert found == pytest.approx([math.exp(x - total) for x in logs], abs=1e-9)
    assert math.fsum(found) == pytest.approx(1)


def test_noise_and_severity_do_what_they_say():
    said = HumanMarks({"P1": 1}, {"P1": 2}, {}, 5.0)
    exact, _ = seen(Truth(rater="key", **EXACT), said, 50)
    noisy, mild, strict = (
        seen(Truth(rater="key", **EXACT | {"noise": 0.3}, severity=severity), said)[0] for severity in (0.0, 0.3, -0.3)
    )
    assert set(exact) == {1}
    assert np.mean(noisy == 1) == pytest.approx(0.42, abs=0.06)  # P(|z| < (1/6)/0.3)
    assert strict.mean() < noisy.mean() - 0.3 < noisy.mean() + 0.3 < mild.mean()


def test_it_moves_towards_the_exemplars_that_it_is_shown():
    said = {"r0": HumanMarks({}, {}, {}, 5.0), "low": HumanMarks(score=0.0), "high": HumanMarks(score=10.0)}
    scores = []
    for source in ("low", "high"):
        (request,) = requests_of(cases_of(bundle_of("dhs"), 1)[0], Shown("", (f"exemplar:{source}", "card:P1")))
        truth = Truth(rater="key", anchoring=0.5, **EXACT)
        scores.append(json.loads(answer(request, truth, said).text)["score"])
    assert scores == [3.0, 8.0]  # 5 and half of the way to 0 and to 10, half up


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(0, 5))
def test_neither_order_nor_batch_matters(luck, seed):
    said = {f"r{n}": HumanMarks({"P1": n % 3}, {"P1": 2}, {}, float(n)) for n in range(8)}
    backend = Simulated(Truth(rater="key", invented=0.5, broken=0.5, seed=seed), said)
    requests = [requests_of(case)[0] for case in cases_of(bundle_of("rulers"), 8)]
    together = {requests[i].subject: reply for i, reply in backend.answer(requests)}
    mixed = luck.sample(requests, len(requests))
    assert {mixed[i].subject: reply for i, reply in backend.answer(mixed)} == together
    assert all(dict(backend.answer([request]))[0] == together[request.subject] for request in requests)


def test_what_is_not_known_is_an_error_and_nobody_known_is_refused(tmp_path):
    (request,) = requests_of(cases_of(bundle_of("rulers"), 1)[0])
    assert answer(request, Truth(rater="key"), {}).error.startswith("not_known: rater 'key'")
    with pytest.raises(InputError, match="rater 'nobody'"):
        rater(Judge(backend="simulated", truth=Truth(rater="nobody")), tmp_path, None)


def test_all_it_makes_is_labelled_and_its_name_covers_what_it_knows(tmp_path):
    plan = Judge(backend="simulated", truth=Truth(rater="key"))
    made = rater(plan, tmp_path, None, marks={"r0": SAID})
    assert made.kind == "simulated"
    assert made.rater_id.startswith("simulated:")
    other = [
        Simulated(Truth(rater="key", seed=1), {"r0": SAID}),
        Simulated(Truth(rater="key"), {"r0": HumanMarks(score=1.0)}),
    ]
    assert len({made.backend.model, *(backend.model for backend in other)}) == 3


def test_the_door_tells_it_what_its_human_rater_said(tmp_path):
    bundle = bundle_of("rulers")
    run = Warehouse.open(tmp_path / "house").run("run")
    data = {Items: [rows.item("i")], Responses: [rows.response("r0", "i", text=TEXT)]}
    run.commit("ingest", "all", data | {Gradings: GRADINGS, Judgments: MARKS})
    run.commit("lock", "all", {Rubrics: [rows.rubric()], Bundles: [rows.locked(bundle)]})
    of_people = run.ref(Gradings, "ingest"), run.ref(Judgments, "ingest")
    refs = run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Bundles, "lock")
    plan = Judge(backend="simulated", truth=Truth(rater="key", **EXACT))
    judged = door.judge.fn(run, plan, tmp_path, *refs, people=of_people)
    made = run.read(judged.judgments).to_pylist()
    assert {row["criterion_id"]: row["decision"] for row in made} == {"P1": 2, "P2": 1, "M1": 0}
    assert {row["rater_kind"] for row in made} == {"simulated"}


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_invented_quotes_and_broken_replies_come_at_their_rates(rate, tmp_path):
    said = {f"r{n}": SAID for n in range(400)}
    truth = Truth(rater="key", noise=0.0, invented=rate, broken=0.0)
    found = graded(cases_of(bundle_of("rulers"), 400), truth, said, tmp_path)
    invented = sum(grading.signals.get("fabricated", 0) for grading in found.gradings)
    assert invented / sum(grading.signals["quotes"] for grading in found.gradings) == pytest.approx(rate, abs=0.05)
    truth = Truth(rater="key", noise=0.0, invented=0.0, broken=rate)
    cases = cases_of(bundle_of("rulers"), 400)
    exact = {case.response_id: answer(requests_of(case)[0], Truth(rater="key", **EXACT), said).text for case in cases}
    broken = [answer(requests_of(case)[0], truth, said).text != exact[case.response_id] for case in cases]
    assert np.mean(broken) == pytest.approx(rate, abs=0.07)
