"""Pointwise: a call per criterion, so that a changed criterion costs one criterion, or per few criteria, so that the
response is read fewer times. All else is as in rulers."""

from __future__ import annotations

from collections.abc import Sequence

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.grading.judge.protocol import Answer, Part
from rubricflow.tasks.grading.judge.protocols.rulers import artifact, check, outcome, repair, request, schema

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """As many criteria as the protocol puts into one call, in the bundle's order and all calls at once; the last call
    may hold fewer. A part is called by its criterion, or by its first and last: `C1..C4`."""
    return [] if before else _parts(bundle)


@cached_by_identity
def _parts(bundle: Bundle) -> list[Part]:
    criteria, size = bundle.criteria, bundle.protocol.criteria_per_call
    calls = [criteria[first : first + size] for first in range(0, len(criteria), size)]
    return [Part("..".join(dict.fromkeys((call[0].id, call[-1].id))), call) for call in calls]
