"""What is read from a log, whatever tool wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import did_you_mean, quoted
from rubricflow.tasks.core.store.files import digest_of

VERDICTS: Mapping[str, str] = {
    "answer_id": "the answer that was judged: the case's id, with subject and draw where a case has several answers",
    "case_id": "the question or test case, as the tool calls it",
    "subject": "the model or prompt that answered; null where the log does not say",
    "group": "the task, class or slice of the case; null where the log does not say",
    "criterion": "what was judged; '' for the whole answer",
    "sample": "number of the repetition of this judgment, from 0",
    "verdict": "the verdict as written, as text; null where there is none",
    "score": "the verdict as a number; null unless status is scored",
    "status": "scored, refused (the judge gave none), failed (an error, or a verdict that cannot be read) or unscored",
    "explanation": "what the judge said for it; null for nothing",
    "question": "the question as text; null where the log does not hold it",
    "answer": "the answer as text, of a conversation its last message; null where the log does not hold it",
    "turns": "the conversation that the answer ends, as the log's own list of messages in JSON; null for none",
    "input_tokens": "tokens that the answer's model read, judge not counted; null where the log does not say",
    "output_tokens": "tokens that it wrote; null where the log does not say",
    "reference": "the tool's own id of what was judged (sample, trace, span or run), for writing scores back; or null",
}
"""Columns of `Log.verdicts` and what they hold. Key: answer_id, criterion, sample."""
LABELS = ("answer_id", "criterion", "rater", "score", "split")
"""Columns of people's labels: criterion '' for the whole answer; split 'chosen' where it was labelled because it
teaches most, null where it was drawn by chance."""


class JudgeFacts(NamedTuple):
    """What a log tells of its judge."""

    tool: str
    """Which tool's form the log has."""
    version: str | None
    """Of the tool; null where the log does not say."""
    told: Mapping[str, str]
    """'model', 'prompt', 'rubric' or 'settings…' → what the log says of it, where it is the same for all cases; where
    criteria differ, 'criterion: model' and so on."""

    @property
    def digest(self) -> str:
        """SHA-256 of what is told. The tool's version is no part: it judges nothing."""
        return digest_of(dict(self.told))

    def changes(self, now: JudgeFacts) -> list[str]:
        """What differs in a later log's judge, in words; empty for the same judge."""
        lines = []
        for name in sorted(self.told.keys() | now.told.keys()):
            before = self.told.get(name)
            after = now.told.get(name)
            if before != after:
                lines.append(f"{name}: {_short(before)} → {_short(after)}")
        return lines


def _short(text: str | None) -> str:
    """A fact for a message; of a long one its beginning with a digest, as two prompts may begin alike."""
    if text is None:
        return "not told"
    return repr(text) if len(text) <= 60 else f"{text[:40]!r}… ({digest_of(text)[:8]})"


class LogScale(NamedTuple):
    """The scale of a criterion's scores."""

    lowest: float
    highest: float
    told: bool
    """Whether the tool or the log says so; else it is what was seen."""


class Log(NamedTuple):
    """A log, of one file or several."""

    files: tuple[str, ...]
    verdicts: pd.DataFrame
    """Columns `VERDICTS`, in the order of the log."""
    labels: pd.DataFrame
    """Columns `LABELS`; no row where the log holds no people's scores."""
    judge: JudgeFacts
    scales: Mapping[str, LogScale]
    """By criterion; of those without any score nothing."""
    remarks: tuple[str, ...]
    """Sentences for people."""

    def of(self, criterion: str) -> Log:
        """What the log holds of one criterion; InputError where it has none of that name."""
        if criterion not in self.scales:
            raise InputError(
                f"there is no criterion {quoted(criterion)} with a score; there are {', '.join(self.scales)}",
                file=self.files[0],
                hint=did_you_mean(criterion, self.scales),
            )
        verdicts = self.verdicts[self.verdicts["criterion"] == criterion].reset_index(drop=True)
        labels = self.labels[self.labels["criterion"] == criterion].reset_index(drop=True)
        return self._replace(verdicts=verdicts, labels=labels, scales={criterion: self.scales[criterion]})
