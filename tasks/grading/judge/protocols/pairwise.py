"""Which of two answers to one question is better, or neither."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, record
from rubricflow.tasks.grading.judge.comparing import TIE
from rubricflow.tasks.grading.judge.itemised import repair_whole
from rubricflow.tasks.grading.judge.mend import unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, AskingProtocol, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.schema import PROSE


class ComparingProtocol(AskingProtocol):
    """A verdict on answers that are shown together, numbered from 1 as they stand; it is mended as a whole."""

    field: str
    """What of the reply is the verdict."""

    @property
    def keys(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.field})

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(ALL)]

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        return build(self, case, part._replace(answers=max(1, len(case.answers))), rater, shown)

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """See `read`; an object that stands in one of the answers is no verdict."""
        artifact, note, _ = verdict_in(request, reply)
        return Checked(None, (unread(note),)) if artifact is None else self.read(artifact[self.field], request.data)

    @abstractmethod
    def read(self, stated: Any, question: Question) -> Checked[Any]:
        """What a stated verdict is worth."""

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        """The same again with what failed; None where the bundle's budget is spent."""
        return repair_whole(request, history, self.field)


class PairwiseProtocol(ComparingProtocol):
    """The number of the better answer, or a tie."""

    field = "winner"

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return record({"comparison": PROSE, self.field: {"type": "string", "enum": ["1", "2", TIE]}})

    def read(self, stated: Any, question: Question) -> Checked[int | str]:
        """The place of the winner, from 0, or a tie; violation `malformed:winner`."""
        numbers: dict[str, int | str] = {"1": 0, "2": 1, TIE: TIE}
        verdict = numbers.get(str(stated).strip().casefold())
        return Checked(None, ("malformed:winner",)) if verdict is None else Checked(verdict, ())


PROTOCOL = PairwiseProtocol()
