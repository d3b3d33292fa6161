"""A score for each of several answers to one question, shown together."""

from __future__ import annotations

from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.schema import JsonDict, record
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.protocol import Part, Question
from rubricflow.tasks.grading.judge.protocols.pairwise import ComparingProtocol
from rubricflow.tasks.grading.judge.schema import PROSE


class GroupwiseProtocol(ComparingProtocol):
    """One score an answer, all in one reply."""

    field = "scores"

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        score = contract.stated(bundle.scale)["properties"]["score"]
        return record({"comparison": PROSE, self.field: record({str(n + 1): score for n in range(part.answers)})})

    def read(self, stated: Any, question: Question) -> Checked[tuple[float, ...]]:
        """The scores in the order shown: all of them, or none, since they are held against one another. Violations:
        `malformed:scores`, `score_off_scale`."""
        wanted = [str(number + 1) for number in range(question.answers)]
        numbers: list[Any] = [stated.get(name) for name in wanted] if isinstance(stated, dict) else [None]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            return Checked(None, ("malformed:scores",))
        low, high, _ = question.bundle.scale.bounds
        if not all(low - 1e-9 <= number <= high + 1e-9 for number in numbers):
            return Checked(None, ("score_off_scale",))
        return Checked(tuple(map(float, numbers)), ())


PROTOCOL = GroupwiseProtocol()
