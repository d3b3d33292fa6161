"""From a wrong rollout to a mended one, with a policy that replies by script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.methods import Edit, Revising
from rubricflow.tasks.methods.edit.locality import LINE, RUN, Unusable, breach, copied, mimicry, read_checklist, totals
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.revise import (
    Candidate,
    FailedRollout,
    Refusal,
    Reviser,
    Revision,
    beginning,
    diagnosis,
    read_proposal,
)
from rubricflow.tasks.methods.edit.rollout import Sample, line_ids, point_ids

SCHEME = "P1: roots absorb water (1 mark)\nP2: leaves release oxygen (1 mark)\nP3: light drives it (2 marks)"
SAMPLE = Sample("r1", "q1", "Explain it.", SCHEME, "The roots take in water and leaves give off oxygen.", 4, gold=2)
STEPS = ["P1 is met: 'take in water'.", "P2 looks missing.", "P3 is not met.", "The points add up to 1."]
ATTEMPT = FailedRollout(SAMPLE, 0, "\n".join([*STEPS, "Final mark: 1"]))
CHECKLIST = 'P1 | covered | "take in water"\nP2 | covered | "leaves give off oxygen"\nP3 | not covered | none'
MENDED = "P2 is met: 'leaves give off oxygen'."
PLAN = Revising(continuations=3, sub_steps=3)


class Scripted:
    """Replies by the first line of the prompt that a word names; keeps what it was asked."""

    def __init__(self, replies: dict[str, str | Sequence[str]]) -> None:
        self.replies = replies
        self.calls: list[tuple[list[str], list[str] | None, float, int]] = []

    def __call__(
        self,
        prompts: Sequence[str],
        *,
        begun: Sequence[str] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int = 0,
    ) -> list[str]:
        assert prompts, "the policy is not asked about nothing"
        self.calls.append((list(prompts), None if begun is None else list(begun), temperature, seed))
        (reply,) = {self.replies[kind(prompt)] for prompt in prompts if kind(prompt) in self.replies} or {""}
        return [reply] * len(prompts) if isinstance(reply, str) else list(reply)


def kind(prompt: str) -> str:
    return next(
        name
        for name, words in {
            "checklist": "You write a private note",
            "revise": "You mend one step",
            "rewrite": "You mend the reasoning",
            "intervene": "came to a wrong mark",
            "grade": "You mark students' answers",
        }.items()
        if words in prompt
    )


def mended(write: Scripted, *steps: int, attempt: FailedRollout = ATTEMPT, **options: bool) -> list[Revision]:
    chosen = [Candidate(step, "It went astray.") for step in steps]
    return Reviser(Prompts(), write, PLAN, 64, 5).revise([attempt], [chosen], **options)


RIGHT = ("P3 is not met.\nFinal mark: 3", "P3 is not met.\nSo two.\nFinal mark: 2\nThank you.", "\nFinal mark: 2")


def test_a_mended_rollout() -> None:
    write = Scripted({"checklist": CHECKLIST, "revise": MENDED, "grade": RIGHT})
    (found,) = mended(write, 1)
    assert found.refused is None
    assert found.reply is None
    assert found.step == 1
    assert found.rank == 0
    assert found.sub_steps == (MENDED,)
    assert found.begun == f"{STEPS[0]}\n{MENDED}\n"
    assert found.marks == (3, 2, 2)
    assert found.repaired == f"{STEPS[0]}\n{MENDED}\nP3 is not met.\nSo two.\nFinal mark: 2"
    assert [len(prompts) for prompts, *_ in write.calls] == [1, 1, 3]
    assert [temperature for _, _, temperature, _ in write.calls] == [0.0, 1.0, 1.0]
    assert len({seed for *_, seed in write.calls}) == 3
    assert write.calls[2][1] == [found.begun] * 3
    assert f">> {STEPS[1]} <<" in write.calls[1][0][0]
    assert "It went astray." in write.calls[1][0][0]


def test_a_chunk_is_asked_in_three_calls_with_one_checklist_for_each_response() -> None:
    other = FailedRollout(Sample("r2", "q1", "Explain it.", SCHEME, "water goes in", 4, gold=2), 0, ATTEMPT.text)
    attempts = [ATTEMPT, ATTEMPT._replace(number=1), other]
    chosen = [[Candidate(1), Candidate(2)], [Candidate(1)], []]
    write = Scripted({"checklist": CHECKLIST, "revise": MENDED, "grade": "Final mark: 2"})
    found = Reviser(Prompts(), write, PLAN, 64, 0).revise(attempts, chosen)
    assert [(one.attempt.number, one.rank, one.step) for one in found] == [(0, 0, 1), (0, 1, 2), (1, 0, 1)]
    assert [len(prompts) for prompts, *_ in write.calls] == [1, 3, 9]
    assert found[0].repaired == f"{found[0].begun}Final mark: 2"


def test_another_model_revises_and_the_policy_goes_on() -> None:
    other = Scripted({"checklist": CHECKLIST, "revise": MENDED, "intervene": f"Step 2: {MENDED}"})
    policy = Scripted({"grade": "Final mark: 2"})
    reviser = Reviser(Prompts(), policy, PLAN, 64, 5, other)
    (revised,) = reviser.revise([ATTEMPT], [[Candidate(1, "It went astray.")]])
    (intervened,) = reviser.intervene([ATTEMPT])
    assert revised.repaired == intervened.repaired == f"{revised.begun}Final mark: 2"
    assert [kind(prompts[0]) for prompts, *_ in other.calls] == ["checklist", "revise", "intervene"]
    assert [begun for _, begun, *_ in policy.calls] == [[revised.begun] * 3] * 2


def test_continuations_belong_to_their_own_revision() -> None:
    replies = [f"Final mark: {mark}" for mark in (0, 1, 3, 4, 4, 2)]
    (first, second) = mended(Scripted({"checklist": CHECKLIST, "revise": MENDED, "grade": tuple(replies)}), 1, 2)
    assert first.marks == (0, 1, 3)
    assert first.repaired is None
    assert second.marks == (4, 4, 2)
    assert second.repaired == f"{second.begun}Final mark: 2"


def test_an_unusable_checklist_stops_its_responses_revisions() -> None:
    write = Scripted({"checklist": "I cannot tell."})
    (found,) = mended(write, 1)
    assert (found.refused, found.checklist, found.marks) == ("checklist_empty", None, ())
    assert found.reply == "I cannot tell."
    assert len(write.calls) == 1


def test_a_checklist_may_list_the_points_word_for_word() -> None:
    lines = SCHEME.split("\n")
    ends = [line.partition(" | ")[2] for line in CHECKLIST.split("\n")]
    reply = "\n".join(f"{line} | {end}" for line, end in zip(lines, ends, strict=True))
    write = Scripted({"checklist": reply, "revise": MENDED, "grade": RIGHT})
    plan = PLAN.model_copy(update={"checklist": "verbatim"})
    (revision,) = Reviser(Prompts(), write, plan, 64, 5).revise([ATTEMPT], [[Candidate(1, "It went astray.")]])
    assert "word for word" in write.calls[0][0][0]
    assert revision.refused is None
    assert revision.checklist == reply.replace('"', "")
    assert read_checklist(CHECKLIST, SCHEME, SAMPLE.answer, verbatim=True) == (None, "checklist_empty")
    assert read_checklist(reply, SCHEME, SAMPLE.answer) == (None, "checklist_empty")
    with pytest.raises(ValueError, match="prompts: full"):
        Edit(policy="p", prompts="compact", revising=plan)


def test_a_long_scheme_gets_room_for_a_line_on_each_point() -> None:
    scheme = "\n".join(f"P{number}: a fact (1 mark)" for number in range(12))
    rooms = []

    def write(prompts: Sequence[str], *, max_tokens: int = 512, **_: object) -> list[str]:
        rooms.append(max_tokens)
        return ["P1 | not covered | none"] * len(prompts)

    samples = [SAMPLE, replace(SAMPLE, response_id="r2", scheme=scheme)]
    Reviser(Prompts(), write, PLAN, 64, 0).write_checklists(samples)
    Reviser(Prompts(), write, PLAN, 400, 0).write_checklists([SAMPLE])
    assert rooms == [12 * LINE, 400]


def test_without_the_checklist_nothing_private_is_asked_for() -> None:
    write = Scripted({"revise": MENDED, "grade": "Final mark: 2"})
    (found,) = mended(write, 1, with_checklist=False)
    assert found.repaired is not None
    assert found.checklist is None
    assert [kind(prompts[0]) for prompts, *_ in write.calls] == ["revise", "grade"]


@pytest.mark.parametrize("lead", ["1. ", "2) ", "Step 3: ", ">> 1. "])
def test_a_number_before_it_hides_no_step_of_the_attempt(lead: str) -> None:
    (found,) = mended(Scripted({"checklist": CHECKLIST, "revise": f"{lead}{STEPS[2]}"}), 1)
    assert found.refused == "repeats_step"


def test_a_number_that_belongs_to_a_step_stays() -> None:
    (found,) = mended(Scripted({"checklist": CHECKLIST, "revise": "2.5 litres are named.", "grade": RIGHT}), 1)
    assert found.sub_steps == ("2.5 litres are named.",)


def test_a_refused_revision_is_not_continued() -> None:
    write = Scripted({"checklist": CHECKLIST, "revise": f"{MENDED}\nFinal mark: 2"})
    (found,) = mended(write, 1)
    assert found.refused == "mark_line"
    assert found.reply == f"{MENDED}\nFinal mark: 2"
    assert not found.begun
    assert not found.marks
    assert found.sub_steps == (MENDED, "Final mark: 2"), "what was refused can be looked at"
    assert len(write.calls) == 2


def test_without_locality_the_rest_is_replaced() -> None:
    write = Scripted({"checklist": CHECKLIST, "rewrite": f"{MENDED}\nP3 is not met.\nFinal mark: 2"})
    (found,) = mended(write, 1, local=False)
    assert found.marks == (2,)
    assert found.repaired == f"{STEPS[0]}\n{MENDED}\nP3 is not met.\nFinal mark: 2"
    assert found.begun == found.repaired
    assert len(write.calls) == 2, "a rewrite with its mark needs no continuation"


def test_without_locality_a_rest_without_a_mark_is_continued() -> None:
    write = Scripted({"checklist": CHECKLIST, "rewrite": MENDED, "grade": "Final mark: 2"})
    (found,) = mended(write, 1, local=False)
    assert found.marks == (2, 2, 2)
    assert found.repaired == f"{STEPS[0]}\n{MENDED}\nFinal mark: 2"
    (wrong,) = mended(Scripted({"checklist": CHECKLIST, "rewrite": "P2 is met.\nFinal mark: 9"}), 1, local=False)
    assert wrong.marks == (None,)
    assert wrong.repaired is None
    (empty,) = mended(Scripted({"checklist": CHECKLIST, "rewrite": " \n"}), 1, local=False)
    assert empty.refused == "empty"


def test_a_mark_in_the_beginning_is_not_the_continuations() -> None:
    attempt = ATTEMPT._replace(text="P1 is met.\nFinal mark: 2\nP2 looks missing.\nFinal mark: 1")
    (found,) = mended(Scripted({"checklist": CHECKLIST, "revise": MENDED, "grade": "and so on"}), 2, attempt=attempt)
    assert found.marks == (None, None, None)
    assert found.repaired is None


def test_no_candidates_ask_nothing() -> None:
    assert mended(Scripted({})) == []
    assert Reviser(Prompts(), Scripted({}), PLAN, 8, 0).revise([], []) == []


def test_a_long_attempt_and_one_in_another_script() -> None:
    text = "\n".join([f"Aspect {step} speaks for it." for step in range(500)] + ["Final mark: 1"])
    write = Scripted({"checklist": CHECKLIST, "revise": MENDED, "grade": "Final mark: 2"})
    (found,) = mended(write, 499, attempt=ATTEMPT._replace(text=text))
    assert found.repaired is not None
    assert found.repaired.count("\n") == 500
    chinese = Sample("r3", "q1", "解释。", "P1: 根吸收水分 (1 mark)", "根从土壤里吸收水分。", 4, gold=2)
    attempt = FailedRollout(chinese, 0, "P1没有达到。所以不给分。\nFinal mark: 0")
    replies = {"checklist": "P1 | covered | 吸收水分", "revise": "P1达到了，学生写了吸收水分。"}
    write = Scripted({**replies, "grade": "给两分。\nFinal mark: 2"})
    (found,) = mended(write, 0, attempt=attempt)
    assert found.begun == "P1达到了，学生写了吸收水分。"
    assert found.repaired == "P1达到了，学生写了吸收水分。给两分。\nFinal mark: 2"


@pytest.mark.parametrize(
    ("text", "chosen", "begun"),
    [
        ("A.\nB.\nC.\nFinal mark: 1", 1, "A.\nx\ny\n"),
        ("A.\n\nB.\n\nC.\n\nFinal mark: 1", 1, "A.\n\nx\n\ny\n\n"),
        ("A. B. C.\nFinal mark: 1", 0, "x y "),
        ("A. B. C.\nFinal mark: 1", 2, "A. B. x y\n"),
        ("A", 0, "x\ny\n"),
    ],
)
def test_sub_steps_are_parted_as_the_steps_of_the_attempt(text: str, chosen: int, begun: str) -> None:
    assert beginning(text, chosen, ["x", "y"]) == begun


def test_the_diagnosis_does_not_give_the_gold_mark_away() -> None:
    told = {diagnosis(change, 2.1, 3.4) for change in (-0.5001, -0.61, -0.75, -0.99)}
    assert len(told) == 1, "the exact change would tell where between the two marks the gold mark lies"
    assert "2.1" in told.pop()
    assert diagnosis(-0.02, 1, 1.1).startswith(
        "The expected mark went from 1.0 to 1.1, slightly away from what is right"
    )
    assert "far away" in diagnosis(-1.0, 0, 1)


# The checklist.


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            'Here it is:\n- **P1** | Covered | "take in water"\n'
            "| P2 | NOT  covered | none |\nP9 | covered | water\np2 | not covered |\n\nThat is all.",
            "P1 | covered | take in water\nP2 | not covered | none",
        ),
        ("P1 | covered | they drink a lot", "P1 | not covered | none"),
    ],
)
def test_a_checklist_holds_the_schemes_points_with_quotes_of_the_answer(reply: str, text: str) -> None:
    assert read_checklist(reply, SCHEME, SAMPLE.answer) == (text, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "checklist_empty"),
        ("P1 is covered.", "checklist_empty"),
        ("P9 | covered | water", "checklist_empty"),
        ("P1 | perhaps | water", "checklist_unreadable"),
        (" | covered | water", "checklist_unreadable"),
        ("P1 | covered | water\nP1 | not covered | none", "checklist_contradictory"),
    ],
)
def test_what_is_no_checklist(reply: str, reason: str) -> None:
    assert read_checklist(reply, SCHEME, SAMPLE.answer) == (None, reason)


def test_levels_name_no_points() -> None:
    scheme = "Level 0: no fact (0 marks)\nLevel 1: one fact (1-2 marks)"
    assert point_ids(scheme) == ()
    assert line_ids(scheme) == ("Level 0", "Level 1")
    assert read_checklist("F1 | covered | roots", scheme, "roots drink") == ("F1 | covered | roots", None)


@settings(max_examples=15)
@given(st.text(max_size=80))
def test_any_reply_is_read(reply: str) -> None:
    text, reason = read_checklist(reply, SCHEME, SAMPLE.answer)
    assert bool(text) == (reason is None)
    assert reason is None or reason in get_args(Unusable)


# The locality constraint.


def broken(
    *revision: str, chosen: int = 1, sample: Sample = SAMPLE, checklist: str | None = CHECKLIST
) -> Refusal | None:
    return breach(revision, STEPS, chosen, sample, checklist, 3)


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        ((MENDED,), None),
        ((), "empty"),
        (("a b", "c d", "e f", "g h"), "too_many"),
        ((MENDED, "**Final Mark:** 2"), "mark_line"),
        (("final mark is two",), "mark_line"),
        (("p2  looks MISSING.",), "unchanged"),
        ((STEPS[1], "It says 'give off oxygen', so it is met."), None),
        ((MENDED, STEPS[2]), "repeats_step"),
        (("word " * 60,), None),
        (("word " * 61,), "too_long"),
        (("P2 is met, which makes a total of 2.",), "states_gold"),
        (("P2 is met. The correct mark is two.",), "states_gold"),
        (("P2 is met, 2/4.",), "states_gold"),
        (("P2 is met, so 2 out of 4.",), "states_gold"),
        (("P2 is met, as the gold mark shows.",), "states_gold"),
        (("P2 is met, that is 总分为2分",), "states_gold"),
        (("P2 is met, 总分是二分",), "states_gold"),
        (("P2 is met and so the total is 1.",), None),
        (("P2 is met, it earns 1 of 2 points.",), None),
        (("P2 is met by two words.",), None),
        (("P2 is met.", "P1 is met.", "P3 is not."), None),
        (("P1 | covered | water", "P2 | covered | oxygen"), "checklist_form"),
        (("P2 | covered",), "checklist_form"),
        (("P2 is met, as the checklist says.",), "checklist_form"),
    ],
)
def test_the_locality_constraint(revision: tuple[str, ...], reason: str | None) -> None:
    assert broken(*revision) == reason


def test_a_long_step_may_be_replaced_by_three_times_its_length() -> None:
    attempt = ["word " * 30, "P1 is met."]
    assert breach(("other " * 90,), attempt, 0, SAMPLE, None, 3) is None
    assert breach(("other " * 91,), attempt, 0, SAMPLE, None, 3) == "too_long"


def test_a_step_that_adds_up_may_be_mended_into_the_right_total() -> None:
    assert broken("The points add up to 1 + 1 + 0 = 2.", chosen=3) is None
    assert broken("The points add up to 2, the reference mark.", chosen=3) == "states_gold"


def test_totals_leave_names_and_fractions_alone() -> None:
    assert totals("P2 brings the total to 1.5 of F3", 4) == set()
    assert totals("total 1 + 0.5 = 1; 3 cells", 4) == {1}
    assert totals("3 / 5 and 3/4", 4) == {3}
    assert totals("Total: " + "9" * 5000, 4) == set()


# Mimicry.

NOTE = "P1 | covered | because it says in plain words that roots drink what the soil holds\nP2 | not covered | none"


def test_dense_copying_is_found_and_sharing_the_answers_words_is_not() -> None:
    seen = (SAMPLE.question, SCHEME, SAMPLE.answer, "\n".join(STEPS))
    copy = "It says in plain words that roots drink what the soil holds."
    assert copied(copy, NOTE, seen) == (12, 1.0)
    assert copied(copy, NOTE, (*seen, NOTE)) == (0, 0.0)
    assert mimicry([copy], NOTE, SCHEME, seen, STEPS[0]) == "copies_checklist"
    assert mimicry([copy], None, SCHEME, seen, STEPS[0]) is None
    quote = "P2 | covered | leaves give off oxygen into the wide air"
    assert mimicry(["P2 covered: leaves give off oxygen into the wide air."], quote, SCHEME, [quote[14:]], "P2") is None


def test_a_short_shared_run_in_a_long_revision_is_no_copy() -> None:
    revision = "The student writes about soil, " + "and more " * 8 + "it says in plain words that they drink"
    found = copied(revision, NOTE, ())
    assert RUN <= found[0] < 12
    assert 0 < found[1] < 0.5
    assert mimicry([revision], NOTE, SCHEME, (), "P1") is None


@pytest.mark.parametrize("longest", [5, 6])
def test_six_tokens_in_a_row_count(longest: int) -> None:
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"]
    assert copied(" ".join(words[:longest]), " ".join(words), ()) == ((6, 1.0) if longest == RUN else (0, 0.0))


def test_scripts_without_spaces() -> None:
    note = "P1 | covered | 因为学生清楚地写出根从土壤中吸收水分和养料"
    assert copied("学生清楚地写出根从土壤中吸收水分", note, ()) == (8, 1.0)
    assert copied("学生清楚地写出根从土", note, ()) == (0, 0.0)
    assert copied("学生清楚地写出根从土壤中吸收水分", note, ["学生清楚地写出根从土壤中吸收水分"]) == (0, 0.0)
    thai = "นักเรียนเขียนว่ารากดูดน้ำจากดินอย่างชัดเจน"
    assert copied(thai, f"P1 | covered | {thai}", ())[1] > 0.5


@settings(max_examples=15)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=30), st.lists(st.sampled_from("abcdefgh"), max_size=30))
def test_runs_against_brute_force(revision: list[str], note: list[str]) -> None:
    inside = [False] * len(revision)
    for start in range(len(revision)):
        for end in range(start + RUN, len(revision) + 1):
            if any(note[at : at + end - start] == revision[start:end] for at in range(len(note))):
                inside[start:end] = [True] * (end - start)
    found = copied(" ".join(revision), " ".join(note), ())
    assert found[1] == pytest.approx(sum(inside) / len(revision) if revision else 0.0)
    runs = "".join("x" if one else " " for one in inside).split()
    assert found[0] == max(map(len, runs), default=0)


def test_points_that_the_attempt_had_not_come_to() -> None:
    assert mimicry(["P1 and P2 and P3 are met."], None, SCHEME, (), "P1 looks met.") == "lists_points"
    assert mimicry(["P1 and P2 are met."], None, SCHEME, (), "P1 looks met.") is None
    assert mimicry(["P1, P2, P3 give 2."], None, SCHEME, (), "\n".join(STEPS)) is None
    levels = "Level 1: one (1-2 marks)\nLevel 2: two (3-4 marks)"
    assert mimicry(["Level 1 and Level 2 are near."], None, levels, (), "no level") is None


def test_a_form_that_the_attempt_uses_itself_may_be_kept() -> None:
    assert mimicry(["P1 | covered | water"], None, SCHEME, (), "P1 | not covered | none") is None
    assert mimicry(["P1 | covered | water"], None, SCHEME, (), "P1 is not covered") == "checklist_form"


# InT.


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Step 2: new text", (1, "new text", None)),
        ("\n**Step 2:** new text ", (1, "new text", None)),
        ("step 2. new: text", (1, "new: text", None)),
        ("Step 2:\nnew text", (None, "", "no_step")),
        ("Step 2 is wrong", (None, "", "no_step")),
        ("Step 3: x", (None, "", "out_of_range")),
        ("Step 0: x", (None, "", "out_of_range")),
        ("Step 1: x\nStep 2: y", (None, "", "several_steps")),
        ("步骤二：新", (None, "", "no_step")),
        ("Step " + "9" * 5000 + ": x", (None, "", "no_step")),
        ("", (None, "", "no_step")),
    ],
)
def test_the_named_step(reply: str, expected: tuple[int | None, str, str | None]) -> None:
    assert read_proposal(reply, 2) == expected


def test_an_intervention() -> None:
    write = Scripted({"intervene": f"Step 2: {MENDED}", "grade": RIGHT})
    stepless = ATTEMPT._replace(number=1, text="Final mark: 1")
    found, none = Reviser(Prompts(), write, PLAN, 64, 0).intervene([ATTEMPT, stepless])
    assert found.begun == f"{STEPS[0]}\n{MENDED}\n"
    assert found.marks == (3, 2, 2)
    assert found.repaired is not None
    assert (none.step, none.refused, none.marks) == (None, "no_step", ())
    assert [len(prompts) for prompts, *_ in write.calls] == [1, 3], "nothing is asked of an attempt without steps"
    assert "2: P2 looks missing." in write.calls[0][0][0]
    assert "mark is 2." in write.calls[0][0][0]
    assert Reviser(Prompts(), Scripted({}), PLAN, 64, 0).name_steps([stepless]) == [""]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("nothing", "no_step"),
        ("Step 2: Final mark: 2", "mark_line"),
        ("Step 2: P2 looks missing.", "unchanged"),
        ("Step 2: The correct mark is 2.", "states_gold"),
        ("Step 2: P1 | covered | water", None),
    ],
)
def test_refused_interventions(reply: str, reason: str | None) -> None:
    (found,) = Reviser(Prompts(), Scripted({"intervene": reply, "grade": "none"}), PLAN, 64, 0).intervene([ATTEMPT])
    assert found.refused == reason
    assert bool(found.marks) == (reason is None)
