"""What the policy is asked: templates in prompts/<set>/*.txt, filled in one pass, student text fenced.

Two sets say the same: `full` to language models, `compact` to the laboratory's small decoder, which knows no prose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from tasks.edit.checklist import line_ids
from tasks.edit.rollout import Sample
from tasks.text.templates import Templates

FOLDER = Path(__file__).with_name("prompts")
MASK = "[MASK]"
"""What an input is replaced by in the grounding audit (Eq. 3)."""
Masked = Literal["none", "scheme", "answer"]
PromptSet = Literal["full", "compact"]


@dataclass(frozen=True)
class Prompts:
    """One set of prompts."""

    name: PromptSet = "full"

    @cached_property
    def _templates(self) -> Templates:
        return Templates(FOLDER / self.name)

    def grade(self, sample: Sample, masked: Masked = "none") -> str:
        """The grading prompt q, ρ, a; with the scheme or the answer replaced by `MASK` for the audit.

        The fence's nonce is that of the unmasked answer, so that nothing but the masked input differs.
        """
        values = self._values(sample)
        if masked != "none":
            values[masked] = MASK
        return self._templates.fill("grade", values)

    def checklist(self, sample: Sample) -> str:
        """Asks for every marking point with a verdict and a quote; the gold mark is given (section 2.2). ValueError
        without one.

        The lines are named one by one: a small model that is shown a form alone copies it, or numbers as it likes.
        """
        if sample.gold is None:
            raise ValueError(f"{sample.response_id}: a checklist needs the gold mark")
        lines = ", ".join(line_ids(sample.scheme)) or "every point"
        return self._templates.fill("checklist", self._values(sample) | {"gold": str(sample.gold), "points": lines})

    def revise(self, sample: Sample, attempt: Sequence[str], chosen: int, diagnosis: str, checklist: str | None) -> str:
        """Asks for 1-3 sub-steps in place of step `chosen` (0-based) of an attempt (appendix F).

        diagnosis: what the internal signals say of the step. checklist: None for the ablation without it.
        """
        return self._templates.fill("revise", self._attempted(sample, attempt, chosen, diagnosis, checklist))

    def rewrite(
        self, sample: Sample, attempt: Sequence[str], chosen: int, diagnosis: str, checklist: str | None
    ) -> str:
        """Asks for the whole rest from step `chosen` on: the ablation without the locality constraint."""
        return self._templates.fill("rewrite", self._attempted(sample, attempt, chosen, diagnosis, checklist))

    def intervene(self, sample: Sample, attempt: Sequence[str]) -> str:
        """Asks for the number of the first wrong step and one step in its place, the gold mark given (InT)."""
        if sample.gold is None:
            raise ValueError(f"{sample.response_id}: an intervention needs the gold mark")
        numbered = "\n".join(f"{number}: {step}" for number, step in enumerate(attempt, 1))
        return self._templates.fill(
            "intervene", self._values(sample, numbered) | {"attempt": numbered, "gold": str(sample.gold)}
        )

    def _values(self, sample: Sample, attempt: str = "") -> dict[str, str]:
        """attempt: the policy saw the fence of the answer alone when it wrote it, and may have been told to repeat
        it."""
        nonce = hashlib.sha256((sample.answer + attempt).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return {
            "question": sample.question,
            "scheme": sample.scheme,
            "answer": sample.answer,
            "top": str(sample.top),
            "nonce": nonce,
        }

    def _attempted(
        self, sample: Sample, attempt: Sequence[str], chosen: int, diagnosis: str, checklist: str | None
    ) -> dict[str, str]:
        steps = [f">> {step} <<" if number == chosen else step for number, step in enumerate(attempt)]
        marked = "\n".join(steps)
        shown = "none" if checklist is None else checklist
        return self._values(sample, marked) | {"attempt": marked, "diagnosis": diagnosis, "checklist": shown}
