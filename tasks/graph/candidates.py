"""The pairs of criteria that may depend on each other at all (GEAR, appendix A.3)."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.contracts.bundle import Criterion
from tasks.contracts.graph import CANDIDATES, Relation, Role

Pair = tuple[str, str]
"""(parent, child), by id."""


def by_sign(criterion: Criterion) -> Role:
    """The role of a criterion of which nobody says more: penalty for a negative weight, core otherwise."""
    return "penalty" if criterion.weight < 0 else "core"


def roles_by_sign(criterion: Criterion) -> tuple[Role, ...]:
    """The roles that a criterion can have by the sign of its weight: what costs points is a penalty and nothing that a
    response should meet; both kinds may state a condition (GEAR, appendix A.2)."""
    return ("penalty", "applicability") if criterion.weight < 0 else ("core", "additional", "applicability")


def allowed(roles: Mapping[str, Role], pair: Pair) -> tuple[Relation, ...]:
    """The relations that the roles of a pair allow; none for a criterion with itself."""
    parent, child = pair
    return () if parent == child else CANDIDATES.get((roles[parent], roles[child]), ())


def candidates(roles: Mapping[str, Role]) -> list[Pair]:
    """The ordered pairs that the roles allow, row by row: by parent, then by child.

    roles: criterion → role, in the rubric's order.
    """
    pairs = list[Pair]()
    for parent, role in roles.items():
        licensed = {child_role for parent_role, child_role in CANDIDATES if parent_role == role}
        pairs += [(parent, child) for child, other in roles.items() if other in licensed and parent != child]
    return pairs
