"""Locking a rubric into a bundle."""

from __future__ import annotations

import math

from tasks.contracts.bundle import Bundle, Protocol, Rubric
from tasks.contracts.errors import ContractError


def lock(rubric: Rubric, protocol: Protocol) -> Bundle:
    """The bundle of a rubric under a protocol; ContractError where the protocol cannot judge the rubric."""
    judged = [trait.id for trait in rubric.traits if trait.source == "judged"]
    if judged and protocol.name in ("rulers", "pointwise"):
        raise ContractError(
            f"rubric '{rubric.rubric_id}': trait '{judged[0]}' is scored by the judge, which protocol "
            f"'{protocol.name}' does not ask for; derive it from criteria"
        )
    if protocol.final_score == "judged" and protocol.name != "dhs":
        raise ContractError(f"protocol '{protocol.name}' states no holistic score; choose another final_score")
    if protocol.name == "dhs" and protocol.final_score != "judged":
        raise ContractError("protocol 'dhs' decides no criterion; its final_score is 'judged'")
    if protocol.final_score == "trait_sum":
        scale, low, high = rubric.scale, sum(t.min for t in rubric.traits), sum(t.max for t in rubric.traits)
        if not (math.isclose(low, scale.min, abs_tol=1e-9) and math.isclose(high, scale.max, abs_tol=1e-9)):
            raise ContractError(
                f"rubric '{rubric.rubric_id}': its traits sum to {low:g}..{high:g}, its scale is "
                f"{scale.min:g}..{scale.max:g}"
            )
    return Bundle(
        text=rubric.text, scale=rubric.scale, traits=rubric.traits, criteria=rubric.criteria, protocol=protocol
    )
