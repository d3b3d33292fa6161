"""Locking a rubric into a bundle."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from tasks.contracts.bundle import Bundle, Protocol, Rubric
from tasks.contracts.errors import ContractError
from tasks.contracts.protocols import PROTOCOLS
from tasks.lock.rubric import parted
from tasks.lock.shape import shaped, without_evidence


def lock(
    rubric: Rubric,
    protocol: Protocol,
    item_types: Collection[str] = ("item",),
    evidence: Literal["typed", "off"] = "typed",
) -> Bundle:
    """The bundle of a rubric, as the protocol judges it, in which a criterion with sub-points is made of these and not
    decided itself; ContractError where the protocol cannot judge the rubric.

    item_types: of the items that are scored with it. evidence: with 'off' no criterion demands any.
    """
    registered = PROTOCOLS[protocol.name]
    rubric = shaped(rubric, protocol, item_types)
    if evidence == "off":
        rubric = without_evidence(rubric)
    judged = [trait.id for trait in rubric.traits if trait.source == "judged"]
    holistic = registered.final_score == "judged"
    if judged and not (holistic or "traits" in registered.decides):
        raise ContractError(
            f"rubric '{rubric.rubric_id}': trait '{judged[0]}' is scored by the judge, which protocol "
            f"'{protocol.name}' does not ask for; derive it from criteria"
        )
    if protocol.final_score == "judged" and not holistic:
        raise ContractError(f"protocol '{protocol.name}' states no holistic score; choose another final_score")
    if holistic and protocol.final_score != "judged":
        raise ContractError(f"protocol '{protocol.name}' decides no criterion; its final_score is 'judged'")
    if judged and protocol.final_score == "weighted_points" and "criteria" not in registered.decides:
        raise ContractError(f"protocol '{protocol.name}' scores traits; its final_score is trait_mean or trait_sum")
    if protocol.final_score == "trait_sum":
        traits = [trait for trait in rubric.traits if trait.source == "judged"] or rubric.traits
        scale = rubric.scale
        low, high = sum(trait.min for trait in traits), sum(trait.max for trait in traits)
        if not (math.isclose(low, scale.min, abs_tol=1e-9) and math.isclose(high, scale.max, abs_tol=1e-9)):
            raise ContractError(
                f"rubric '{rubric.rubric_id}': its traits sum to {low:g}..{high:g}, its scale is "
                f"{scale.min:g}..{scale.max:g}"
            )
    decided, composites = parted(rubric)
    if holistic and not registered.decides and len({criterion.weight for criterion in decided}) > 1:
        protocol = protocol.model_copy(update={"show_weights": True})  # the score that is asked for depends on them
    return Bundle(
        text=rubric.text,
        scale=rubric.scale,
        traits=rubric.traits,
        criteria=decided,
        composites=composites,
        examples=rubric.examples if registered.shows_examples else (),
        protocol=protocol,
    )
