"""What the server needs of who judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict

from tasks.serve.answered import RolloutAnswer
from tasks.serve.sent import SentRollout
from tasks.serve.training import Qualities, TrainingRecord
from tasks.serve.waves import Unfinished


class PromptRow(TypedDict):
    """A row of a trainer's data set."""

    item_id: str
    prompt: Any
    """A text, or a chat."""


class Service(Protocol):
    """Poses and judges rollouts. Threads may call it at once."""

    @property
    def name(self) -> str:
        """The study, or the rubric list."""

    @property
    def aggregation(self) -> str:
        """How the reward is put together."""

    @property
    def deadline_s(self) -> float:
        """Seconds that a request may take unless it says less."""

    def pose(self, rollouts: Sequence[SentRollout], step: int | None, until: float) -> list[Any | Unfinished]:
        """The rollouts with what they are judged by; InputError names the row of one that cannot be.

        A rubric that has to be made ready first is waited for by `Unfinished`, at most until the time of
        `time.monotonic`.
        """

    def judge(self, posed: Sequence[Any], until: float, is_last: bool) -> Sequence[RolloutAnswer | Unfinished]:
        """Their answers, in order; see `waves.Judge`. UserError where none can be judged: the judge or the disk has to
        be mended."""

    def prompts(self) -> list[PromptRow]:
        """The prompts of the items, for a trainer's data set."""

    def recorded(self) -> TrainingRecord:
        """What earlier servers recorded of the same training."""

    def record_quality(self, step: int, quality: Qualities) -> None:
        """Keep an evaluation of the policy on held-out items, where there is a record."""
