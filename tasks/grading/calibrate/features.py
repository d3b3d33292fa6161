"""Machine gradings to a feature matrix: the signals that the bundle's protocol names, one column each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale, Trait
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Bools, Floats

COUNTS = frozenset({"invalid_evidence", "weak"})
LONE = frozenset({"length", "confidence", "uncertainty", "tie", "contradicted", "disagreement"}) | COUNTS
"""Signals besides the score; the others are the score, or what one is made of."""


@dataclass(frozen=True)
class Features:
    """Features of gradings.

    names: of the columns, in order; matrix: (n, d), NaN where a grading lacks one; usable: (n,), whether the grading
    has a score and every feature; left_out: signals or features that no grading gives or that cannot be pooled.
    """

    names: tuple[str, ...]
    matrix: Floats
    usable: Bools
    left_out: tuple[str, ...]


def features(parts: Sequence[tuple[pa.Table, Bundle]], pooled: bool) -> Features:
    """Features of the gradings of some items, stacked in their order; what no scored grading gives is left out.

    parts: one or more (gradings, bundle), see `matrix`; exactly one where not pooled.
    """
    names, left_out = feature_names([bundle for _, bundle in parts], pooled)
    full = np.concatenate([matrix(gradings, bundle, names, pooled) for gradings, bundle in parts])
    scored = np.concatenate([is_scored(gradings) for gradings, _ in parts])
    # Without any scored grading nothing is known to be missing.
    is_given = np.isfinite(full[scored]).any(axis=0) | (not scored.any())
    given_names = [name for name, there in zip(names, is_given, strict=True) if there]
    left_out += [name for name, there in zip(names, is_given, strict=True) if not there]
    given_columns = without_absent_counts(full[:, is_given], given_names)
    return Features(tuple(given_names), given_columns, scored & np.isfinite(given_columns).all(axis=1), tuple(left_out))


def feature_names(bundles: Sequence[Bundle], pooled: bool) -> tuple[list[str], list[str]]:
    """Names of the features that the bundles' protocol asks for, and the signals that cannot be pooled.

    Bundles of one study share their protocol. Pooled, traits have columns of their own where all bundles have the same
    trait ids, else their means `trait.mean` and `mean.mean`; criteria need one bundle for all.
    """
    first = bundles[0]
    ids = [{trait.id for trait in graded_traits(bundle)} for bundle in bundles]
    # A trait called 'mean' would be taken for the mean of the traits.
    share_traits = not pooled or (all(own == ids[0] for own in ids) and "mean" not in ids[0])
    traits = [trait.id for trait in graded_traits(first)] if share_traits else ["mean"]
    names = []
    unpooled: list[str] = []
    for signal in dict.fromkeys(first.protocol.signals):
        match signal:
            case "trait_scores":
                names += [f"trait.{trait}" for trait in traits]
            case "trait_means":
                names += [f"mean.{trait}" for trait in traits]
            case "criteria" if any(bundle != first for bundle in bundles):
                unpooled.append(signal)
            case "criteria":
                names += [f"criterion.{criterion.id}" for criterion in first.criteria]
            case "jurors":
                names += [f"juror.{juror}" for juror in first.protocol.jurors]
            case _:
                names.append(signal)
    return names, unpooled


def matrix(gradings: pa.Table, bundle: Bundle, names: Sequence[str], pooled: bool) -> Floats:
    """The named features of one item's gradings, shape (n, len(names)), NaN where a grading lacks one.

    gradings: columns `score`, `trait_scores` and `signals`. Scores and traits are in the bundle's units or, pooled,
    shares of their ranges, 0 .. 1. The other signals stay as they are: shares, flags, and length and counts, which
    have no upper end. ContractError for a trait or criterion that the bundle does not have.
    """
    graded = graded_traits(bundle)
    score = floats(gradings["score"])
    traits = map_columns(gradings["trait_scores"], [trait.id for trait in graded])
    means = map_columns(gradings["signals"], [f"mean.{trait.id}" for trait in graded])
    if pooled:
        score = shares(score, bundle.scale)
        for index, trait in enumerate(graded):
            traits[:, index] = shares(traits[:, index], trait)
    columns = {"score": score}
    for index, trait in enumerate(graded):
        columns |= {f"trait.{trait.id}": traits[:, index], f"mean.{trait.id}": means[:, index]}
    if pooled and graded:
        columns |= {"trait.mean": traits.mean(axis=1), "mean.mean": means.mean(axis=1)}
    signals = [name for name in names if name not in columns]
    allowed = LONE | {f"criterion.{criterion.id}" for criterion in bundle.criteria}
    allowed |= {f"juror.{juror}" for juror in bundle.protocol.jurors}
    if unknown := [name for name in signals if name not in allowed]:
        raise ContractError(f"bundle {bundle.bundle_id[:12]} gives no feature '{unknown[0]}'")
    columns |= dict(zip(signals, map_columns(gradings["signals"], signals).T, strict=True))
    return np.stack([columns[name] for name in names], axis=1) if names else np.empty((len(gradings), 0))


def without_absent_counts(values: Floats, names: Sequence[str]) -> Floats:
    """The matrix with 0 for an absent count: a response for which the judge quoted nothing has no invalid quote, and
    one without weak evidence no weak decision."""
    counts = np.array([name in COUNTS for name in names], dtype=np.bool_)
    return np.where(np.isnan(values) & counts, 0.0, values)


def is_scored(gradings: pa.Table) -> Bools:
    """Whether each grading was judged and has a score, shape (n,); a prechecked one was not judged."""
    scored = pc.and_(pc.equal(gradings["status"], "scored"), pc.is_valid(gradings["score"]))
    return np.asarray(scored.to_numpy(), dtype=np.bool_)


def is_weak(gradings: pa.Table) -> Bools:
    """Whether a decision of each grading stands that no quote grounds and none must (Rulers, Table 5), shape (n,)."""
    return map_columns(gradings["signals"], ["weak"])[:, 0] > 0


def floats(column: pa.ChunkedArray) -> Floats:
    """A numeric column, shape (n,), NaN where null."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def shares(scores: Floats, scale: Scale) -> Floats:
    """Scores as shares of their scale, 0 at its lowest and 1 at its highest."""
    return (scores - scale.min) / (scale.max - scale.min)


def map_columns(column: pa.ChunkedArray, names: Sequence[str]) -> Floats:
    """The values of some keys of a map column, shape (n, len(names)), NaN where a row lacks the key."""
    values = np.empty((len(column), len(names)))
    for place, name in enumerate(names):
        values[:, place] = pc.map_lookup(column, name, "first").to_numpy()
    return values


def graded_traits(bundle: Bundle) -> list[Trait]:
    """The traits that can get a score: judged ones and those that a criterion counts for."""
    return [trait for trait in bundle.traits if trait.source == "judged" or any(bundle.of_trait(trait.id))]
