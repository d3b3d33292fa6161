"""What the phases of edit make of tables and policies: samples, rows, selection over all rollouts, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.methods import Edit, Revising
from rubricflow.tasks.core.contracts.tables.edit import (
    Arm,
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Revisions,
    Rollouts,
    Steps,
)
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.methods.edit.belief import Support
from rubricflow.tasks.methods.edit.measures import difference_rows, marks_of, metric_rows, pairs, probe_rows, spaced
from rubricflow.tasks.methods.edit.phases import (
    grading_row,
    is_wrong,
    learning_row,
    pooled,
    revised,
    revision_row,
    rolled,
    rollout_row,
    selected,
    separated,
    step_rows,
    steps_to_mend,
)
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.revise import FailedRollout, Reviser
from rubricflow.tasks.methods.edit.rollout import GradingSamples, Sample, grading_samples
from rubricflow.tasks.methods.edit.workspace import TrainingProgress

TEXT = "P1 is met.\nP2 is not.\nSo one.\nFinal mark: 1"


def bundle(top: float = 3, low: float = 0, step: float = 1) -> Bundle:
    points = tuple(Criterion(id=f"P{n}", trait="content", text=f"names {n}") for n in (1, 2, 3))
    trait = Trait(id="content", name="Content", min=low, max=top)
    protocol = Protocol(name="dhs", final_score="judged", signals=("score",))
    scale = Scale(min=low, max=top, step=step)
    return Bundle(text="", scale=scale, traits=(trait,), criteria=points, protocol=protocol)


def made(
    rows: Sequence[tuple[str, str, str]], gold: dict[str, float], one: Bundle | None = None, context: str | None = None
) -> GradingSamples:
    items = [{"item_id": name, "question": f"{name}?", "context": context, "rubric_id": "r"} for name in ("q1", "q2")]
    responses = [{"response_id": a, "item_id": b, "text": f"text {a}", "split": c} for a, b, c in rows]
    return grading_samples(responses, items, {"r": one or bundle()}, gold)


def sample(number: int = 0, gold: int | None = 2, top: int = 3) -> Sample:
    return Sample(f"r{number}", "q1", "Why?", "P1: names light (1 mark)", "light", top, gold)


def told(text: str, number: int = 0, gold: int | None = 2) -> FailedRollout:
    return FailedRollout(sample(number, gold), 0, text)


SPLIT = (
    ("b", "q1", "train"),
    ("a", "q1", "test"),
    ("c", "q2", "test"),
    ("d", "q1", "calibration"),
    ("e", "q1", "train"),
)


def test_samples_are_ordered_and_test_items_seen_or_not() -> None:
    found = made(SPLIT, {"a": 1, "b": 3, "c": 0, "e": 2}, context="A passage.")
    assert [(one.response_id, one.gold) for one in found.train] == [("b", 3), ("e", 2)]
    assert [one.response_id for one in found.test] == ["a", "c"]
    assert found.part == {"a": "seen", "c": "unseen", "b": "train", "e": "train"}
    first = found.test[0]
    assert (first.question, first.answer, first.top) == ("q1?\n\nA passage.", "text a", 3)
    assert first.scheme.startswith("P1: names 1 (1 mark)\n")


def test_training_responses_without_gold_are_left_out_and_counted_and_test_ones_stay() -> None:
    found = made(SPLIT, {"b": 3})
    assert [one.response_id for one in found.train] == ["b"]
    assert found.unlabelled == 1
    assert [one.gold for one in found.test] == [None, None]


@pytest.mark.parametrize(
    ("gold", "one", "said"),
    [
        ({"b": 1.5}, None, "response 'b' has the target score 1.5; a mark is a whole number from 0 to 3"),
        ({"b": 1, "c": 4.0}, None, "response 'c' has the target score 4; a mark is a whole number from 0 to 3"),
        ({"b": 1, "c": -1.0}, None, "response 'c' has the target score -1"),
        ({}, None, "none of the responses to train on has a target score"),
        ({"b": 1}, bundle(top=4, low=1), "marks are whole numbers from 0; this scale is 1 to 4"),
        ({"b": 1}, bundle(step=0.5), "this scale is 0 to 3 in steps of 0.5"),
    ],
)
def test_a_target_that_is_no_mark_is_refused(gold: dict[str, float], one: Bundle | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(SPLIT, gold, one)


@pytest.mark.parametrize(
    ("split", "said"), [("train", "no response in the test split"), ("test", "there is no response to train on")]
)
def test_an_empty_split_is_refused(split: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made([("a", "q1", split)], {"a": 1})


def test_rollouts_are_asked_for_sample_by_sample() -> None:
    asked: list[Any] = []

    def write(prompts: Sequence[str], **more: Any) -> list[str]:
        asked.append((list(prompts), more))
        return [f"reply {n}\nFinal mark: {n}" for n in range(len(prompts))]

    two = [sample(0), sample(1)]
    found = rolled(write, Prompts(), two, 2, temperature=0.7, max_tokens=9, seed=5)
    assert [(one.sample, one.number) for one in found] == [(two[0], 0), (two[0], 1), (two[1], 0), (two[1], 1)]
    ((prompts, more),) = asked
    assert prompts == [Prompts().grade(one.sample) for one in found]
    assert more == {"temperature": 0.7, "max_tokens": 9, "seed": 5}
    assert rolled(write, Prompts(), [], 2, temperature=0.7, max_tokens=9, seed=5) == []


@pytest.mark.parametrize(
    ("text", "mark", "reason", "steps", "status"),
    [
        (TEXT, 1, None, 3, "scored"),
        ("So one.", None, "no_mark", 1, "unscored"),
        ("Final mark: 7", None, "off_scale", 0, "unscored"),
        ("", None, "no_mark", 0, "unscored"),
        ("要点一：提到光。要点二没有。\nFinal mark: 2", 2, None, 2, "scored"),
        ("\n".join(["So."] * 500), None, "no_mark", 500, "unscored"),
    ],
)
def test_a_rollout_is_a_row_and_a_grading(text: str, mark: int | None, reason: str, steps: int, status: str) -> None:
    row = rollout_row("edit_rl", 3, "unseen", told(text), 0.5)
    assert (row["mark"], row["unmarked"], row["steps"]) == (mark, reason, steps)
    assert conform(Rollouts, [row]).num_rows == 1
    grading = grading_row(row, "x")
    assert (grading["rater_id"], grading["rater_kind"], grading["status"]) == ("edit_rl-3", "trained", status)
    assert grading["score"] == mark
    assert (grading["unscored_reason"] is None) == (mark is not None)
    assert conform(Gradings, [grading]).num_rows == 1
    assert is_wrong(told(text)) == (mark != 2)


def test_step_rows_hold_signals_and_spans() -> None:
    belief = np.array([[0.25, 0.25, 0.25, 0.25], [0, 0.5, 0.5, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    support = Support(*(np.array([1.0, 2.0, 3.0]) * k for k in (1, 10, 100)))
    rows = list(step_rows("base", 1, told(TEXT), belief, support))
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert [None if row["start"] is None else TEXT[row["start"] : row["end"]] for row in rows] == [
        None, "P1 is met.", "P2 is not.", "So one.",
    ]  # fmt: skip
    assert [row["expected"] for row in rows] == [1.5, 1.5, 2.0, 1.0]
    assert [row["error"] for row in rows] == [1.0, 0.5, 0.0, 1.0]  # from the gold mark 2
    assert [row["change"] for row in rows] == [None, 0.5, 0.5, -1.0]
    assert [row["grounding_answer"] for row in rows] == [None, 10.0, 20.0, 30.0]
    assert conform(Steps, rows).num_rows == 4
    bare = list(step_rows("edit_sft", 1, told(""), belief[:1]))
    assert [(row["step"], row["change"], row["grounding_prefix"]) for row in bare] == [(0, None, None)]


def steps_of(texts: Sequence[str], seed: int) -> pa.Table:
    """Rows of rollouts with signals drawn at random."""
    draw = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        count = len(text.split("\n")) if text else 0
        support = Support(*draw.normal(size=(3, count)))
        rows += step_rows("base", 0, told(text, number), draw.dirichlet(np.ones(4), count + 1), support)
    return conform(Steps, rows)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 99), st.sampled_from([0.0, 0.25, 0.6, 1.0]))
def test_selection_over_all_rollouts_is_that_of_a_plain_loop(counts: list[int], seed: int, below: float) -> None:
    texts = ["\n".join(f"step {n}" for n in range(count)) for count in counts]
    plan = Revising(candidates=2, near_tie=0.05, weak_below=below)
    wrong = [(f"r{number}", 0) for number in range(0, len(texts), 2)]
    whole = selected(steps_of(texts, seed), wrong, plan)
    assert conform(Steps, whole).num_rows == sum(counts) + len(counts)
    rows = [row for row in whole.to_pylist() if row["step"]]
    tenth = [-(-10 * row["step"] // counts[int(row["response_id"][1:])]) for row in rows]
    for row, mine in zip(rows, tenth, strict=True):
        same = [other["grounding_prefix"] for other, at in zip(rows, tenth, strict=True) if at == mine]
        assert row["prefix_residual"] == pytest.approx(row["grounding_prefix"] - np.mean(same))
    names = ("grounding_scheme", "grounding_answer", "prefix_residual")
    limits = {name: np.quantile([row[name] for row in rows], below) if rows else 0 for name in names}
    for number in range(len(texts)):
        mine = [row for row in rows if row["response_id"] == f"r{number}"]
        if (f"r{number}", 0) not in wrong:
            assert {row["fate"] for row in mine} <= {None}
            continue
        top = sorted((row for row in mine if row["change"] < -0.05), key=lambda row: row["change"])[:2]
        weak = [row for row in top if all(row[name] < limits[name] for name in names)]
        assert [row["step"] for row in mine if row["fate"] == "chosen"] == sorted(row["step"] for row in weak)
        found = steps_to_mend(whole.to_pylist()).get((f"r{number}", 0), [])
        assert [one.step + 1 for one in found] == [row["step"] for row in weak]
    assert {row["fate"] for row in whole.to_pylist() if row["step"] == 0} == {None}


def test_kinds_of_steps_are_told_apart_by_the_study_s_pattern() -> None:
    texts = ["P1: met\nP2: not met\ntotal 1", "P1: met\nin total 1"]
    whole = selected(steps_of(texts, 3), [], Revising())
    rows = separated(whole, {(f"r{number}", 0): text for number, text in enumerate(texts)}, "total|level", 7)
    assert {(row["seed"], row["unit"], row["grounding"], row["synthesis"]) for row in rows} == {
        (7, "step", 4, 1),
        (7, "rollout", 2, 1),
    }
    answer = [row["grounding_answer"] for row in whole.to_pylist() if row["step"]]
    other = [value for at, value in enumerate(answer) if at != 2]
    lower = sum(answer[2] < value for value in other)
    (found,) = [row["effect"] for row in rows if (row["signal"], row["unit"]) == ("answer", "step")]
    assert found == pytest.approx((2 * lower - len(other)) / len(other))


def scripted(prompts: Sequence[str], *, begun: Sequence[str] | None = None, **_: Any) -> list[str]:
    """Continues to the gold mark 2, and writes a checklist; of all else it says that the second step is wrong."""
    if begun:
        return ["Final mark: 2" for _ in prompts]
    if prompts[0].startswith("CHECKLIST"):
        return ["P1 | covered | light" for _ in prompts]
    return ["Step 2: P2 is met after all." for _ in prompts]


def test_every_pool_is_made_by_its_own_way() -> None:
    attempts = [told(TEXT, 0), told(TEXT, 1)]
    steps = selected(steps_of([TEXT.rpartition("\n")[0]] * 2, 1), [("r0", 0), ("r1", 0)], Revising(weak_below=1))
    found = steps_to_mend(steps.to_pylist())
    prompts, listed = Prompts("compact"), ("no_signals", "no_locality")
    arms: tuple[Arm, ...] = ("int_sft", "no_signals", "no_checklist", "no_locality")
    for arm in arms:
        made = revised(arm, attempts, found, Reviser(prompts, scripted, Revising(), 9, 0))
        rows = conform(Revisions, [revision_row(arm, 0, one) for one in made]).to_pylist()
        assert {row["checklist"] for row in rows} == {"P1 | covered | light" if arm in listed else None}
        pool, _ = pooled(arm, rows, attempts, 0.5, 0)
        assert all(one.origin == ("intervention" if arm == "int_sft" else "repaired") for one in pool)
        rows = [{"arm": arm, "seed": 0, **one._asdict()} for one in pool]
        assert conform(Demonstrations, rows).num_rows
    with pytest.raises(InputError, match="the pool is empty: none of 2 wrong rollouts had a step to mend"):
        pooled("edit_sft", [], attempts, 0.5, 0)


def graded(arm: Arm, seed: int, marks: Sequence[int | None]) -> list[dict[str, Any]]:
    """Greedy rollouts with these marks on samples with the gold marks 0, 1, 2, 3, …, the second half unseen."""
    rows = []
    for number, mark in enumerate(marks):
        text = "" if mark is None else f"Final mark: {mark}"
        part: Any = "seen" if number < len(marks) // 2 else "unseen"
        rows.append(rollout_row(arm, seed, part, told(text, number, number % 4), 0.0))
    return rows


def test_arms_are_measured_by_part_and_compared_in_pairs() -> None:
    base, right = [1, 1, 2, 2, None, 0, 3, 3], [0, 1, 2, 3, 0, 1, 2, 3]
    of: dict[tuple[Arm, int], Any] = {("base", 0): graded("base", 0, base)}
    of |= {("edit_sft", seed): graded("edit_sft", seed, right) for seed in (0, 1)}
    metrics = list(metric_rows(of, 50, 0))
    assert conform(ArmMetrics, metrics).num_rows == 3 * 2 * 5
    value = {(row["arm"], row["seed"], row["part"], row["metric"]): row["value"] for row in metrics}
    assert value["base", 0, "seen", "accuracy"] == 0.5
    assert value["base", 0, "unseen", "unmarked"] == 0.25
    assert value["edit_sft", 1, "unseen", "qwk"] == 1
    gaps = list(difference_rows(of, 50, 0))
    assert conform(ArmDifferences, gaps).num_rows == 2 * 2 * 5
    assert {(row["arm"], row["against"], row["seed"]) for row in gaps} == {
        ("edit_sft", "base", 0),
        ("edit_sft", "base", 1),
    }
    accuracy = [row["value"] for row in gaps if (row["part"], row["metric"]) == ("seen", "accuracy")]
    assert accuracy == [0.5, 0.5]
    assert conform(Learning, [learning_row(row, 4) for row in metrics if row["seed"] == 0]).num_rows


def test_a_part_without_gold_marks_has_no_figures() -> None:
    rows = [rollout_row("base", 0, "seen", told("Final mark: 1", 0, None), 0.0)]
    assert marks_of(rows, "seen") is None
    assert not list(metric_rows({("base", 0): rows}, 10, 0))


def test_each_arm_is_compared_with_base_its_start_and_its_rivals() -> None:
    arms = Edit(policy="x", arms=("base", "edit_rl", "int_rl", "no_signals", "edit_rl_on_base")).arms_in_order()
    assert set(pairs(arms)) == {
        ("edit_sft", "base"), ("edit_rl", "base"), ("int_sft", "base"), ("int_rl", "base"), ("no_signals", "base"),
        ("edit_rl_on_base", "base"), ("edit_rl", "edit_sft"), ("int_rl", "int_sft"), ("edit_rl", "int_rl"),
        ("edit_rl", "edit_rl_on_base"), ("edit_sft", "int_sft"), ("edit_sft", "no_signals"),
    }  # fmt: skip
    assert not [pair for pair in pairs(arms) if pair[0] == pair[1]]


def test_probed_rollouts_are_spread_and_rows_say_where_there_is_nothing() -> None:
    many = [{"part": "seen", "at": at} for at in range(1000)]
    found = spaced(many, "seen")
    assert (len(found), found[0]["at"], found[-1]["at"]) == (200, 0, 999)
    assert spaced(many, "unseen") == []
    one = np.array([[0.5, 0.5]])
    rows = list(probe_rows("edit_rl", 0, "seen", [one], [one]))
    assert conform(ArmMetrics, rows).num_rows == 5
    assert {row["metric"]: row["value"] for row in rows}["probe_kl"] == 0
    assert [row["note"] for row in rows if row["metric"] == "probe_jsd_late"] == ["no boundary there"]


def test_progress_counts_what_this_session_did(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress("seed 0: rollouts", 960, 320)
    progress.reached(330)
    assert capsys.readouterr().out == ""  # too soon
    progress.reached(960)
    assert capsys.readouterr().out.startswith("edit: seed 0: rollouts 960 of 960, ")


def test_a_chunk_that_takes_long_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(100, 1000))  # one to begin with, and one for each look
    monkeypatch.setattr("rubricflow.tasks.methods.edit.workspace.time.monotonic", lambda: next(seconds))
    progress = TrainingProgress("seed 0: rollouts", 960, 320)
    for _ in range(91):
        progress.look()
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["edit: seed 0: rollouts 320 of 960, 0/s"] * 3
