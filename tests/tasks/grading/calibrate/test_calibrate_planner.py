"""Which responses to mark next."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.calibrate.next_labels import by_chance, design, proposals


def drawn_design(seed, n=40, features=3, items=2):
    rng = np.random.default_rng(seed)
    return design(rng.normal(size=(n, features)), rng.integers(items, size=n))


def mean_variance(given, taught, over):
    """x' (X'X + penalty)^-1 x, averaged, by the formula itself."""
    known = given.terms[taught]
    inverse = np.linalg.inv(known.T @ known + np.diag(given.penalty))
    return float(np.mean([x @ inverse @ x for x in given.terms[over]]))


def some(n, k):
    return np.arange(n) < k


class TestProposals:
    @pytest.mark.parametrize("seed", range(5))
    def test_the_chosen_is_the_best_of_all_tried_one_by_one(self, seed):
        given, taught = drawn_design(seed), some(40, 5)
        askable = ~taught
        for proposal in proposals(given, taught, askable, askable, np.arange(40), 12):
            before = mean_variance(given, taught, ~some(40, 5))
            after = {
                row: mean_variance(given, taught | (np.arange(40) == row), ~some(40, 5))
                for row in np.flatnonzero(askable)
            }
            if proposal.sampled == "chosen":
                assert after[proposal.row] == pytest.approx(min(after.values()))
            assert proposal.gain == pytest.approx(1 - after[proposal.row] / before)
            taught[proposal.row], askable[proposal.row] = True, False

    @given(st.integers(0, 50), st.integers(0, 30), st.integers(0, 45), st.integers(1, 4))
    def test_asks_once_about_each_that_can_be_asked_about_and_a_longer_list_begins_as_a_shorter(
        self, seed, labels, count, items
    ):
        given, taught = drawn_design(seed, items=items), some(40, labels)
        askable = ~taught & (np.arange(40) % 7 > 0)
        order = np.random.default_rng(seed).permutation(40)
        found = proposals(given, taught, askable, askable, order, count)
        rows = [proposal.row for proposal in found]
        assert len(set(rows)) == len(rows) == min(count, askable.sum())
        assert askable[rows].all() if rows else True
        assert proposals(given, taught, askable, askable, order, count // 2) == found[: count // 2]

    @given(st.integers(0, 50))
    def test_what_is_drawn_comes_in_the_order_by_chance(self, seed):
        order = np.random.default_rng(seed).permutation(40)
        found = proposals(drawn_design(seed), some(40, 6), ~some(40, 6), ~some(40, 6), order, 30)
        place = {row: at for at, row in enumerate(order.tolist())}
        drawn = [place[proposal.row] for proposal in found if proposal.sampled == "drawn"]
        assert drawn == sorted(drawn)
        passed = set(order[: max(drawn) + 1].tolist()) - set(range(6))
        assert passed <= {proposal.row for proposal in found}

    def test_what_may_not_be_chosen_is_drawn(self):
        given, askable = drawn_design(1), ~some(40, 3)
        odd = askable & (np.arange(40) % 2 > 0)
        found = proposals(given, ~askable, askable, odd, np.arange(40), 30)
        chosen = [proposal.row for proposal in found if proposal.sampled == "chosen"]
        assert chosen
        assert odd[chosen].all()
        none = proposals(given, ~askable, askable, np.zeros(40, dtype=bool), np.arange(40), 30)
        assert [(proposal.row, proposal.sampled) for proposal in none] == [(row, "drawn") for row in range(3, 33)]

    def test_fewer_are_chosen_the_more_labels_there_are(self):
        given = drawn_design(0, n=600, features=8)
        shares = []
        for labels in (5, 50, 400):
            asked = ~some(600, labels)
            found = proposals(given, ~asked, asked, asked, np.arange(600), 10)
            shares.append(sum(proposal.sampled == "chosen" for proposal in found) / len(found))
        assert shares[0] > shares[1] > shares[2]
        assert shares[0] > 1 / 3
        assert shares[2] == 0

    def test_the_drawn_stand_for_the_others_and_the_chosen_do_not(self):
        """How far out a response lies, in standard deviations from what is to be expected, over 150 sets."""
        far = {"drawn": [], "chosen": []}
        for seed in range(150):
            given, taught = drawn_design(seed, n=200, features=4, items=1), some(200, 10)
            out = (given.terms[:, 1:] ** 2).sum(axis=1)
            order = np.random.default_rng([seed, 1]).permutation(200)
            for proposal in proposals(given, taught, ~taught, ~taught, order, 20):
                far[proposal.sampled].append((out[proposal.row] - out[~taught].mean()) / out[~taught].std())
        drawn, chosen = (np.mean(far[how]) * np.sqrt(len(far[how])) for how in ("drawn", "chosen"))
        assert abs(drawn) < 3
        assert chosen > 10

    def test_without_features_labels_or_responses(self):
        nothing = design(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
        assert proposals(nothing, some(0, 0), some(0, 0), some(0, 0), np.arange(0), 20) == []
        constant = design(np.ones((10, 2)), np.zeros(10, dtype=np.int64))
        assert constant.terms.shape == (10, 1)
        assert len(proposals(constant, some(10, 0), ~some(10, 0), ~some(10, 0), np.arange(10), 20)) == 10


class TestByChance:
    @given(st.sets(st.text(max_size=5), max_size=20), st.integers(0, 3))
    def test_the_order_goes_by_id_and_seed_alone(self, names, seed):
        ids = sorted(names)
        ordered = [ids[at] for at in by_chance(ids, seed)]
        assert ordered == [ids[::-1][at] for at in by_chance(ids[::-1], seed)]

    def test_is_not_the_order_of_the_split(self):
        ids = [f"r{i}" for i in range(500)]
        of_split = sorted(ids, key=lambda name: hashlib.sha256(f"0:{name}".encode()).digest())
        place = {name: at for at, name in enumerate(of_split)}
        mine = [place[ids[at]] for at in by_chance(ids, 0)]
        assert abs(np.corrcoef(mine, np.arange(500))[0, 1]) < 0.15
