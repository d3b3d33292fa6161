"""The least rubric that can be locked: what a test does not name is the same everywhere."""

from __future__ import annotations

from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Rubric, Scale, Trait

THREE = ("absent", "in part", "present")
"""Anchors of a criterion that may be met in part."""


def scale(*ends: float) -> Scale:
    """Lowest score, highest score and, where it is not 1, the step."""
    return Scale(**dict(zip(("min", "max", "step"), ends, strict=False)))


def trait(trait_id: str = "t", *ends: float, **changes: Any) -> Trait:
    """A trait with a range like a scale's, 0..10 where none is named."""
    return Trait(**{**scale(*ends or (0, 10)).model_dump(), "id": trait_id, "name": trait_id.upper()} | changes)


def criterion(name: str = "P", trait: str = "t", **changes: Any) -> Criterion:
    return Criterion(**{"id": name, "trait": trait, "text": f"names {name}"} | changes)


def bundle(
    *criteria: Criterion,
    ends: tuple[float, ...] = (0, 10),
    traits: tuple[Trait, ...] = (),
    composites: tuple[Criterion, ...] = (),
    text: str = "",
    **protocol: Any,
) -> Bundle:
    """A bundle on the scale `ends`; without `traits` it has those that the criteria name, with the same range.

    protocol: what is said of it beside its name (rulers), its formula (trait_mean) and its signals (trait_scores).
    """
    named = dict.fromkeys(one.trait for one in criteria)
    return Bundle(
        text=text,
        scale=scale(*ends),
        traits=traits or tuple(trait(name, *ends) for name in named),
        criteria=criteria,
        composites=composites,
        protocol=Protocol(**{"name": "rulers", "final_score": "trait_mean", "signals": ("trait_scores",)} | protocol),
    )


def bundle_by(rubric: Rubric, protocol: Protocol) -> Bundle:
    """A rubric as it stands, under a protocol."""
    same = {name: getattr(rubric, name) for name in ("text", "scale", "traits", "criteria", "examples")}
    return Bundle(**same, protocol=protocol)
