"""Where a study's rubric graphs come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.contracts.backends import lack, serves
from tasks.contracts.schema import Frozen
from tasks.contracts.settings.engine import Engine, Sampling


class Graphs(Frozen):
    """Where the rubric graphs come from."""

    file: str | None = None
    """YAML file with authored graphs under `graphs:`, each with its `rubric_id`, `nodes` and `edges`; rubrics that it
    does not name are annotated."""
    backend: Annotated[str, serves("graph")] = "embedded"
    """Who annotates the others. embedded: rules of thumb over the criteria's wording and the small sentence encoder,
    a heuristic; the others: a language model."""
    engine: Engine | None = None
    """With vllm or openai: the model."""
    model: str | None = None
    """With replay: whose replies of the reply store to use."""
    replies: str | None = None
    """With replay: a file of recorded replies, as `Judge.replies`; `model: graph` where a judge's are in it too."""
    sampling: Sampling = Sampling(top_p=0.9, top_k=20, max_tokens=2048)
    """How replies are drawn."""
    profile: Literal["general", "health", "writing", "law"] = "general"
    """What the annotator is told to look for (appendix A.6)."""
    pairs_per_call: int = Field(default=8, ge=1)
    """Candidate pairs in one call; a call that fails is halved until what fails stands alone."""
    votes: str | None = None
    """Table of human votes on roles and edges (CSV, TSV, JSONL or Parquet), which win over the annotator."""

    @model_validator(mode="after")
    def _is_complete(self) -> Graphs:
        if problem := lack(self):
            raise ValueError(f"graph {problem}")
        return self
