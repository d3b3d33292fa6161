"""Pointwise: a call per criterion, so that a changed criterion costs one criterion, or per few criteria, so that the
response is read fewer times. All else is as in rulers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.request import IdentityKey
from rubricflow.tasks.grading.judge.protocol import Answer, Part
from rubricflow.tasks.grading.judge.protocols.rulers import artifact, check, outcome, repair, request, schema

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """As many criteria as the protocol puts into one call, in the bundle's order and all calls at once; the last call
    may hold fewer. A part is called by its criterion, or by its first and last: `C1..C4`."""
    return [] if before else _parts(IdentityKey(bundle))


@lru_cache(maxsize=1024)
def _parts(bundle: IdentityKey[Bundle]) -> list[Part]:
    criteria, size = bundle.value.criteria, bundle.value.protocol.criteria_per_call
    calls = [criteria[first : first + size] for first in range(0, len(criteria), size)]
    return [Part(_name(of_call), of_call) for of_call in calls]


def _name(criteria: Sequence[Criterion]) -> str:
    return "..".join(dict.fromkeys((criteria[0].id, criteria[-1].id)))
