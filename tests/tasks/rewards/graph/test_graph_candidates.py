"""Candidate pairs, held against all pairs looked through one by one."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.rewards.graph.subject import allowed, by_sign, candidates

ROLES: tuple[Role, ...] = get_args(Role)
# Written out from appendix A.3, not taken from the contract.
LICENSED = {
    "core": {"core", "additional", "penalty"},
    "applicability": {"additional", "penalty"},
    "additional": set(),
    "penalty": set(),
}


@given(st.lists(st.sampled_from(ROLES), max_size=9))
def test_the_pairs_are_those_that_the_roles_allow_row_by_row(given_roles: list[Role]) -> None:
    roles = {f"c{at}": role for at, role in enumerate(given_roles)}
    expected = [
        (parent, child)
        for parent in roles
        for child in roles
        if parent != child and roles[child] in LICENSED[roles[parent]]
    ]
    assert candidates(roles) == expected


@pytest.mark.parametrize("parent", ROLES)
@pytest.mark.parametrize("child", ROLES)
def test_an_applicability_criterion_activates_and_a_core_one_is_a_prerequisite(parent: Role, child: Role) -> None:
    found = allowed({"a": parent, "b": child}, ("a", "b"))
    kinds = {"core": ("weak_prerequisite", "strong_prerequisite"), "applicability": ("activation",)}
    assert found == (kinds[parent] if child in LICENSED[parent] else ())


def test_nothing_may_hold_between_a_criterion_and_itself() -> None:
    assert allowed({"a": "core"}, ("a", "a")) == ()


@pytest.mark.parametrize(("weight", "role"), [(-0.1, "penalty"), (0, "core"), (3, "core")])
def test_a_role_by_sign(weight: float, role: Role) -> None:
    assert by_sign(Criterion(id="a", trait="t", text="x", weight=weight)) == role
