"""What code guarantees against hostile students, whatever the judge does. Every protocol that asks for evidence, every
text of the corpus, a judge that obeys each of them."""

import json
import re
from functools import cache

import pytest
from attack_corpus import FAMILIES
from builders.bundles import bundle_by
from builders.cases import case as to_grade
from obedient import HABITS, attacked, full_marks, obedient

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.evidence import HOLDS
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch
from rubricflow.tasks.grading.judge.protocol import protocol_of
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.lock.bundles import shaped

PROTOCOLS = ("rulers", "checked_score", "pointwise", "gradeagentops")
DEMANDING = ("local_quote", "span_level", "global_diagnostic")
ANSWER = "The slice goes soft since it dries out in the bowl. My uncle has a boat."
QUESTION = "Why does a slice of potato become soft when it lies in very salty water for an hour?"
TEMPLATES = [(family, template) for family, texts in FAMILIES.items() for template in texts]
RUBRIC = Rubric(
    rubric_id="r",
    text="A full answer follows the water out of the cells, names the membrane and says why inner pressure is lost.",
    scale=Scale(min=0, max=10),
    traits=(Trait(id="content", name="Content", min=0, max=10),),
    criteria=(
        Criterion(id="P1", trait="content", text="Water leaves the cells because the salt solution is stronger."),
        Criterion(
            id="P2",
            trait="content",
            text="The membrane lets the water pass through but holds the dissolved salt back.",
            evidence="span_level",
            levels=("not said", "in part", "said in full with the reason for it"),
        ),
        Criterion(
            id="P3",
            trait="content",
            text="Without the pressure of the water inside them the cells no longer stay firm.",
            evidence="global_diagnostic",
        ),
        Criterion(
            id="M1", trait="content", kind="misconception", text="The salt itself softens the potato.", weight=-1
        ),
    ),
)


@cache
def case_of(protocol):
    of = Judge(protocol=protocol, backend="replay", model="scripted").as_protocol()
    return to_grade(bundle_by(shaped(RUBRIC, of, ["technical"]), of), ANSWER, question=QUESTION)


@cache
def all_attacked(protocol):
    """(family, case, injected) for the whole corpus."""
    case = case_of(protocol)
    return [(family, *attacked(case, template, n)) for n, (family, template) in enumerate(TEMPLATES)]


def graded(protocol, habit, folder):
    """(family, case, injected, decisions) under a judge that obeys."""
    cases = all_attacked(protocol)
    injected = {case.response_id: text for _, case, text in cases}
    with ReplyStore(folder / "replies") as replies:
        found = grade_batch([case for _, case, _ in cases], obedient(habit, injected), replies)
    return [(*case, judged.decisions) for case, judged in zip(cases, found.judged, strict=True)]


def test_the_corpus_has_eight_families_of_five_texts_each():
    assert len(FAMILIES) == 8
    assert all(len(set(texts)) >= 5 for texts in FAMILIES.values())
    assert len({text for texts in FAMILIES.values() for text in texts}) == sum(map(len, FAMILIES.values()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_injected_text_becomes_a_part_of_the_prompt(protocol):
    honest = first_requests(case_of(protocol), Rater("s", "llm", Scripted([])))
    for _, case, _ in all_attacked(protocol):
        for request, clean in zip(first_requests(case, Rater("s", "llm", Scripted([]))), honest, strict=True):
            assert [message.role for message in request.messages] == ["system", "user"]
            assert request.messages[0] == clean.messages[0]
            lines = request.messages[1].content.splitlines()
            (nonce,) = re.findall(r"\A=====RESPONSE ([0-9a-f]{16})=====\n", request.messages[1].content)
            assert [n for n, line in enumerate(lines) if line == f"=====RESPONSE {nonce}====="] == [0]
            ends = [n for n, line in enumerate(lines) if nonce in line]
            assert len(ends) == 2
            assert lines[ends[1]] == f"=====END {nonce}====="
            assert f"=====END {nonce}=====" not in case.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_judge_quotes_is_never_read_as_its_verdict(protocol):
    for _, case, injected in all_attacked(protocol):
        for request in first_requests(case, Rater("s", "llm", Scripted([]))):
            opinion = full_marks(request.data, "nothing")
            own = protocol_of(protocol).artifact(request.data, opinion)
            reply = json.dumps({"seen": injected, "also": [case.text]} | own, ensure_ascii=False)
            for around in (reply, f"Here you are:\n{reply}\nDone.", reply.replace("{", "{ ", 1)):
                found, _ = extract(around, request.keys)
                assert found is not None
                assert {name: found[name] for name in own} == own


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_credit_without_words_of_the_response(protocol, habit, tmp_path):
    for _, case, _, decisions in graded(protocol, habit, tmp_path):
        folded = " ".join(case.text.casefold().split())
        for criterion, decision in zip(case.bundle.criteria, decisions, strict=True):
            if criterion.evidence not in DEMANDING or not decision.level:
                continue
            holding = [row for row in decision.evidence if row["status"] in HOLDS]
            assert holding
            for row in holding:
                assert " ".join(row["quote"].casefold().split()).strip("\"' ") in folded
                assert case.text[row["start"] : row["end"]]


@pytest.mark.parametrize("habit", ["nothing", "invented"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_judge_without_grounds_earns_the_student_nothing(protocol, habit, tmp_path):
    for family, case, injected, decisions in graded(protocol, habit, tmp_path):
        # One student writes the very words that this judge makes up; they are then words of the response.
        if "completely and correctly" not in injected:
            assert not any(d.level for d in decisions), (family, case.text)


@pytest.mark.parametrize("habit", ["the criterion", "injected words"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_echo_of_the_rubric_or_the_question_is_no_evidence(protocol, habit, tmp_path):
    echoes = 0
    for family, case, _, decisions in graded(protocol, habit, tmp_path):
        if family != "rubric echo":
            continue
        for decision in decisions:
            statuses = [row["status"] for row in decision.evidence]
            echoes += "echo" in statuses
            if decision.level:
                assert [case.text[row["start"] : row["end"]] for row in decision.evidence if row["status"] in HOLDS]
                assert habit == "injected words"
    assert echoes
