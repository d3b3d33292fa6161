"""The task on which policies are trained (`tests/studies/knowledge.py`): its exact judge, and the judge that errs."""

import random
import sys
from collections import Counter
from itertools import permutations, product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "studies"))

import knowledge as world

from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import batch, compile_graph

MEASURED = world.WORLDS["as measured"]
EVERY_FORM = [item for item in world.ITEMS if item.endswith("cobalt")]


def sentences(item):
    """Criterion → its sentences; of a fact all four values."""
    form, thing = item.split()
    return {
        name: [world.REASONS[name]]
        if name in world.REASONS
        else [f"{thing} {name} {value} ." for value in world.VALUES[name]]
        for name in world.FORMS[form]
    }


@pytest.mark.parametrize("item", EVERY_FORM)
def test_what_is_earned_are_the_met_criteria_all_of_whose_ancestors_are_met(item):
    form, thing = item.split()
    known = nx.DiGraph([(parent, name) for name, of in world.FORMS[form].items() for parent in of])
    said = sentences(item)
    for chosen in product((None, True, False), repeat=len(said)):
        met = {}
        texts = []
        for (name, ways), how in zip(said.items(), chosen, strict=True):
            is_fact = name not in world.REASONS
            right = f"{thing} {name} {world.right(thing, name)} ." if is_fact else ways[0]
            if how is not None and (how or is_fact):
                texts.append(right if how else next(way for way in ways if way != right))
            met[name] = how is True
        read = world.read(item, " ".join(texts))
        expected = {name: met[name] and all(map(met.get, nx.ancestors(known, name))) for name in met}
        assert dict(read.earned) == expected
        assert read.quality == pytest.approx(sum(expected.values()) / len(expected))


def test_telling_two_values_of_a_fact_is_telling_none():
    thing, item = "cobalt", "describe cobalt"
    right = world.sentence(item, "looks")
    other = world.sentence(item, "looks", next(v for v in world.VALUES["looks"] if v != world.right(thing, "looks")))
    for text in (f"{right} {other}", f"{other} {right}", other):
        assert world.read(item, text).there["looks"] is None
    assert world.read(item, f"{right} {right}").earned["looks"]
    assert not world.read(item, right[:-2]).earned["looks"]


@pytest.mark.parametrize("item", EVERY_FORM)
def test_no_answer_that_has_room_is_better_than_the_best(item):
    form = item.split()[0]
    said = [world.sentence(item, name) for name in world.FORMS[form]]
    for room in (4, 8, 16):
        answers = permutations(said, room // 4)
        assert world.best(form, room) == max(world.read(item, " ".join(answer)).quality for answer in answers)


def test_every_fact_of_a_held_out_question_is_asked_for_in_another():
    asked = Counter()
    for item in world.TRAINED:
        form, thing = item.split()
        asked.update((thing, name) for name in world.FORMS[form] if name in world.VALUES)
    for item in world.HELD_OUT:
        form, thing = item.split()
        assert all(asked[thing, name] for name in world.FORMS[form] if name in world.VALUES)


def test_the_judge_errs_at_the_rates_that_it_is_given():
    luck = random.Random(3)
    seen = {name: [0, 0] for name in ("hit", "wrong", "absent", "licensed", "unlicensed")}
    passed = {}
    for number in range(4000):
        item = luck.choice(world.ITEMS)
        chosen = luck.sample(list(sentences(item).items()), 3)
        said = [world.sentence(item, name) if luck.random() < 0.6 else luck.choice(ways) for name, ways in chosen]
        # ten words, at which no length is added; no answer comes twice, whose verdicts would be the same
        text = " ".join([*said[:2], "so", str(number)] if luck.random() < 0.5 else [said[2], "so " * 5, str(number)])
        read, credited = world.read(item, text), world.credits(MEASURED, item, text)
        assert credited == world.credits(MEASURED, item, text)
        for name, there in read.there.items():
            if there is None:
                passed.setdefault((item, name), []).append(credited[name])
                continue
            kind = "absent" if not there else "hit"
            if there and name in world.REASONS:
                kind = "licensed" if read.earned[name] else "unlicensed"
            seen[kind][0] += credited[name]
            seen[kind][1] += 1
    for kind in ("hit", "absent", "licensed", "unlicensed"):
        yes, n = seen[kind]
        assert n > 100
        assert binomtest(yes, n, getattr(MEASURED, kind)).pvalue > 1e-4, kind
    groups = [group for group in passed.values() if len(group) > 5]
    shares = np.array([np.mean(group) for group in groups])
    # 64 criteria whose rates spread by sqrt(alike · p · (1 − p)) about p
    assert abs(shares.mean() - MEASURED.wrong) < 4 * shares.std() / len(shares) ** 0.5
    assert shares.std() > 0.5 * (MEASURED.alike * MEASURED.wrong * (1 - MEASURED.wrong)) ** 0.5


def test_wrong_facts_pass_oftener_in_longer_answers():
    short, long = (
        np.mean(
            [
                world.credits(MEASURED, item, f"{world.sentence(item, name, value)} {'so ' * words}")[name]
                for item in world.ITEMS
                for name in world.FORMS[world.parts(item)[0]]
                if name in world.VALUES
                for value in world.VALUES[name]
                if value != world.right(world.parts(item)[1], name)
            ]
        )
        for words in (1, 36)
    )
    assert short + 0.1 < long


def test_where_the_judge_credits_nothing_false_gear_pays_what_flat_pays_but_for_misses():
    strict = world.WORLDS["no false credit"]._replace(hit=1.0, licensed=1.0)
    luck = random.Random(5)
    for item in EVERY_FORM:
        graph = world.graph(item.split()[0])
        compiled = compile_graph(item, world.bundle(item), graph, world.SETTINGS.retention)
        texts = [world.imperfect(item, luck, world.WORLDS["room for all"]) for _ in range(60)]
        verdicts = [list(world.credits(strict, item, text).values()) for text in texts]
        answers = batch([compiled], np.zeros(len(texts), np.int32), np.array(verdicts, float).ravel())
        exact = [world.read(item, text).quality for text in texts]
        for aggregation in ("flat", "gear", "hard_local", "hard_verdict", "hard_propagated"):
            assert aggregate(answers, aggregation).reward == pytest.approx(exact)


def test_a_guessed_graph_has_the_precision_and_recall_that_it_is_given():
    luck, hits, named, there = random.Random(0), 0, 0, 0
    for _ in range(400):
        for form in world.FORMS:
            right = {(edge.parent, edge.child) for edge in world.graph(form).edges}
            guess = {(edge.parent, edge.child) for edge in world.guessed(form, luck).edges}
            hits, named, there = hits + len(right & guess), named + len(guess), there + len(right)
            names = list(world.FORMS[form])
            assert all(names.index(parent) < names.index(child) for parent, child in guess)
    assert hits / there == pytest.approx(0.87, abs=0.015)
    assert hits / named == pytest.approx(0.70, abs=0.015)
