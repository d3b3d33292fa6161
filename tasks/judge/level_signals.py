"""The calibration features that come from a grading's levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.contracts.bundle import Bundle
from tasks.judge.score import expected_share, trait_means


def level_signals(
    bundle: Bundle, levels: Mapping[str, int | None], chances: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """`criterion.<id>`, the share of its highest level that a criterion reaches, and `mean.<trait>`, the share of its
    points, each in [0, 1]; nothing of what is not decided, unless the protocol takes that for level 0.

    levels: by criterion; chances: the probability of each level of a criterion, for those whose expected level counts
    in place of the one decided.
    """
    criteria = {criterion.id: criterion for criterion in bundle.criteria}
    shares = dict.fromkeys(criteria, 0.0) if bundle.protocol.unscored == "zero" else {}
    counting = dict(shares)
    for name, level in levels.items():
        if level is None:
            continue
        likely = chances.get(name)
        expected = sum(step * chance for step, chance in enumerate(likely)) if likely else float(level)
        shares[name] = expected / criteria[name].top
        counting[name] = expected_share(bundle, criteria[name], level, likely)
    signals = {f"criterion.{name}": share for name, share in shares.items()}
    return signals | {f"mean.{name}": mean for name, mean in trait_means(bundle, counting).items()}
