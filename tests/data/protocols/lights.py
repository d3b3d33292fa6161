"""Lights: the judge shows a red, amber or green light, which is the lowest, the middle or the highest score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import record
from rubricflow.tasks.grading.judge.mend import unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import Opinion, Part, Question
from rubricflow.tasks.grading.judge.protocols.dhs import HolisticProtocol

LIGHTS = ("red", "amber", "green")


class Lights(HolisticProtocol):
    """One light in place of one score."""

    keys = frozenset({"light"})

    def schema(self, bundle: Bundle, part: Part) -> dict[str, Any]:
        """The contract of one light."""
        return record({"light": {"type": "string", "enum": list(LIGHTS)}})

    def check(self, request: Request, reply: Reply) -> Checked[float]:
        """The score that the light stands for. Violations: those of `unread`, `malformed_light`."""
        artifact, note, _ = verdict_in(request, reply)
        if artifact is None:
            return Checked(None, (unread(note),))
        if artifact["light"] not in LIGHTS:
            return Checked(None, ("malformed_light",))
        low, high, _ = request.data.bundle.scale.bounds
        return Checked(low + (high - low) * LIGHTS.index(artifact["light"]) / 2, ())

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        """Nothing: the first light counts."""
        return None

    def artifact(self, question: Question, opinion: Opinion) -> dict[str, Any]:
        """An opinion as the light closest to its score."""
        low, high, _ = question.bundle.scale.bounds
        return {"light": LIGHTS[round(2 * (opinion.score - low) / (high - low))]}


PROTOCOL = Lights()
