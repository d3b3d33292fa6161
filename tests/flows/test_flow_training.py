"""Trainings of `tests/studies/policy.py`: what they are paid and what is kept of them, held against plain loops."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))

import knowledge

from rubricflow.flows.recorder import HELD_OUT, TRAINER
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import HeldOutQuality, Rewards
from rubricflow.tasks.core.store.warehouse import Warehouse

policy = pytest.importorskip("policy")
WORLD = "as measured"


def by_hand(item, credited, factors):
    """GEAR of verdicts: a criterion's share, times what is left for each parent."""
    shares = {}
    for name, parents in knowledge.FORMS[knowledge.parts(item)[0]].items():
        shares[name] = float(credited[name])
        for parent in parents:
            factor = factors.get((parent, name), 0.2)
            shares[name] *= factor + shares[parent] * (1 - factor)
    return shares


def test_a_training_is_paid_by_the_product_and_keeps_what_it_was_paid(tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "EVERY", 1)
    monkeypatch.setitem(policy.ARMS, "here", policy.Arm("gear", prompt="ruscarl"))
    for _ in range(2):  # the second time there is nothing to do
        policy.train(tmp_path, WORLD, "here", seed=0, steps=2, taught_steps=2)
    (kept,) = tmp_path.glob("*.parquet")
    held = pd.read_parquet(kept)
    assert sorted(held["step"].unique()) == [0, 1, 2]
    assert set(held["item_id"]) == set(knowledge.HELD_OUT)
    run = Warehouse.open(tmp_path / "warehouse").run(held["run"].iloc[0])
    answered = {row["response_id"]: row for row in run.table(Responses, TRAINER).to_pylist(maps_as_pydicts="strict")}
    paid = run.table(Rewards, TRAINER).to_pylist(maps_as_pydicts="strict")
    assert len(paid) == len(answered) == 2 * policy.BATCH
    assert {row["item_id"] for row in answered.values()} <= set(knowledge.TRAINED)
    verdicts = {}
    for row in run.table(Judgments, TRAINER).to_pylist():
        verdicts.setdefault(row["response_id"], {})[row["criterion_id"]] = row["decision"]
    for row in paid:
        answer = answered[row["response_id"]]
        credited = knowledge.credits(knowledge.WORLDS[WORLD], answer["item_id"], answer["text"])
        if not any(map(str.isalnum, answer["text"])):  # about an answer without words nobody is asked
            credited = dict.fromkeys(credited, False)
        assert verdicts[row["response_id"]] == credited
        shares = by_hand(answer["item_id"], credited, {})
        assert row["marginals"] == pytest.approx(shares)
        assert row["reward"] == pytest.approx(sum(shares.values()) / len(shares))
    quality = {(row["step"], row["item_id"]): row["quality"] for row in run.table(HeldOutQuality, HELD_OUT).to_pylist()}
    for (step, item), texts in held.groupby(["step", "item_id"])["text"]:
        exact = [knowledge.read(item, text).quality for text in texts]
        assert quality[step, item] == pytest.approx(np.mean(exact))


def test_learned_edges_hold_back_what_marks_call_wrong():
    graphs = {item: knowledge.graph(knowledge.parts(item)[0]) for item in knowledge.ITEMS}
    factors = policy.learned(WORLD, 0, graphs)
    assert set(factors) == set(knowledge.TRAINED)
    for item, of_item in factors.items():
        assert set(of_item) == {(edge.parent, edge.child) for edge in graphs[item].edges}
        # a reason without its fact is wrong by definition; where the judge missed the fact it is right
        assert all(0 <= factor < 0.5 for factor in of_item.values())


def test_criteria_left_out_count_for_nothing_and_are_the_same_within_a_group():
    graphs = {item: knowledge.graph(knowledge.parts(item)[0]) for item in knowledge.ITEMS}
    items = [knowledge.ITEMS[0]] * 3 + [knowledge.ITEMS[-1]] * 2
    texts = [knowledge.sentence(item, name) for item in items for name in ("weighs",)]
    texts[1] = " ".join(knowledge.sentence(items[1], name) for name in ("looks", "light", "tell"))
    with policy.rewarding("gear", (1.0, 1.0), "no false credit", graphs) as reward:
        dropping = policy.Dropping(reward, 0.5, seed=4)
        seen = set()
        for step in range(40):
            rewards = dropping([], texts, item_id=items, trainer_state=SimpleNamespace(global_step=step))
            assert rewards == dropping([], texts, item_id=items, trainer_state=SimpleNamespace(global_step=step))
            assert rewards[0] == rewards[2]
            credited = [
                knowledge.credits(knowledge.WORLDS["no false credit"], *pair) for pair in zip(items, texts, strict=True)
            ]
            shares = [list(by_hand(*pair, {}).values()) for pair in zip(items, credited, strict=True)]
            # some choice of criteria gives these rewards, the same for the three answers to one question
            size = len(shares[0])
            choices = [np.array([(bits >> n) & 1 for n in range(size)]) for bits in range(1, 2**size)]
            assert any(
                all(abs(stays @ np.array(shares[n]) / stays.sum() - rewards[n]) < 1e-9 for n in range(3))
                for stays in choices
            )
            seen.add(rewards[1])
    assert len(seen) > 3


def test_where_nothing_is_recorded_no_evaluation_can_be_kept():
    graphs = {item: knowledge.graph(knowledge.parts(item)[0]) for item in knowledge.ITEMS}
    with policy.rewarding("gear", (1.0, 1.0), WORLD, graphs) as reward, pytest.raises(InputError, match="record"):
        reward.held_out(3, {knowledge.HELD_OUT[0]: 0.5})
