"""How a study's concepts are labelled: by two independent annotators, and by people where those are in doubt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from rubricflow.tasks.core.contracts.backends import BACKENDS, backends_serving
from rubricflow.tasks.core.contracts.schema import Frozen, Share
from rubricflow.tasks.core.contracts.settings.judge import Judge

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Doubt(Frozen):
    """Which labels people are asked about, and in which order."""

    probability: Share = 0.6
    """Below this probability of its level an annotator's label is doubtful."""
    human_gap: float = Field(default=0.3, gt=0, le=1)
    """Where the annotators' mean share of the levels lies further than this from the human score's share of its scale,
    the response is doubtful."""
    audit: Share = 0.05
    """Share of the responses without any doubt that are asked about all the same: only they tell how often annotators
    err together."""
    most: int | None = Field(default=None, ge=1)
    """Most cases in the queue; null for all that are doubtful."""
    seed: int = 0
    """Seed of the audit's draw."""


class Annotation(Frozen):
    """Two annotators, and what becomes of their doubts."""

    annotators: dict[Name, Judge]
    """Two annotators by name; each a judge of its own, of which the backend with its engine, sampling, truth, repair
    and recorded replies count. Neither sees what the other says."""
    doubt: Doubt = Doubt()
    """What is asked about."""

    @model_validator(mode="after")
    def _two(self) -> Annotation:
        if len(self.annotators) != 2:
            raise ValueError(f"there are two annotators, not {len(self.annotators)}")
        first, second = self.annotators.values()
        if first == second:
            raise ValueError("two annotators with the same settings are one and would agree with themselves")
        for name, judge in self.annotators.items():
            if "annotate" not in BACKENDS[judge.backend].serves:
                raise ValueError(
                    f"annotator '{name}': backend '{judge.backend}' gives no labels; use {backends_serving('annotate')}"
                )
            if judge.examples:
                raise ValueError(f"annotator '{name}': the examples that annotators see are those of the rubric")
        return self

    @property
    def asked(self) -> Judge:
        """The protocol that both annotators follow: their bundle is one."""
        first = next(iter(self.annotators.values()))
        return Judge(protocol="concepts", repair=first.repair, min_tokens=first.min_tokens, failed_quote="count")

    def judge(self, name: str) -> Judge:
        """An annotator as a judge under that protocol."""
        return self.annotators[name].model_copy(update={"protocol": "concepts"})
