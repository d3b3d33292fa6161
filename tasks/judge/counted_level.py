"""Which of the levels or scores that a contract admits counts, by the bundle's `level`: the one that the reply states,
the one that was likeliest where it was written, or the expected one.

A reply is drawn token by token, so that of a number with several digits the greedy one need not be likeliest: where 7
has .23, 1 has .07 and 10 has .18, the first digit is a 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.contracts.bundle import Protocol, Scale


def level(protocol: Protocol, likely: Sequence[float] | None, stated: int) -> int:
    """The level that counts: the likeliest unless stated ones do, of several as likely the stated or else the lowest.

    likely: probability of each level, None where it is not known. An expected level is no level, so that the likeliest
    stands for it.
    """
    if protocol.level == "stated" or not likely:
        return stated
    most = max(likely)
    return stated if likely[stated] == most else likely.index(most)


def value(protocol: Protocol, likely: Sequence[float] | None, stated: float, scale: Scale) -> float:
    """The score that counts, within the scale; an expected one need not be on a step of it.

    likely: probability of each score of the scale, lowest first.
    """
    if protocol.level == "stated" or not likely or len(likely) != scale.levels:
        return stated
    if protocol.level == "expected":
        weighted_steps = sum(step * chance for step, chance in enumerate(likely))
        return scale.min + scale.step * weighted_steps / sum(likely)
    step = level(protocol, likely, round((stated - scale.min) / scale.step))
    return round(scale.min + scale.step * step, 12)


def confidence(protocol: Protocol, likely: Sequence[float], stated: float, scale: Scale) -> float:
    """Probability of the score that counts; of the likeliest where an expected one counts, which has none."""
    return max(likely) if protocol.level == "expected" else likely[round((stated - scale.min) / scale.step)]
