"""How a study's judgments become rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rubricflow.tasks.core.contracts.backends import PromptedModel, serves
from rubricflow.tasks.core.contracts.schema import Frozen, Natural, Share
from rubricflow.tasks.core.contracts.settings.engine import Sampling

# Where a study's rubric graphs come from.


class Graphs(PromptedModel):
    """Where the rubric graphs come from. Of a file of recorded replies that holds a judge's, too, those of `model:
    graph` are taken."""

    file: str | None = None
    """YAML file with authored graphs under `graphs:`, each with its `rubric_id`, `nodes` and `edges`; rubrics that it
    does not name are annotated."""
    backend: Annotated[str, serves("graph")] = "stated"
    """Who annotates the others. stated: nobody; a graph then holds what its criteria state themselves, where one names
    another as its condition, and rewards are flat but for that; the others: a language model, which is asked about
    every rubric in as many orders as `orders` says."""
    orders: int = Field(default=2, ge=2)
    """In how many orders the model is asked about a rubric: its own, backwards, and further ones drawn by chance. An
    edge stays where all replies name it."""
    examples: int = Field(default=0, ge=0)
    """How many of the graphs of `file`, the first ones, the model is shown when it is asked about the other rubrics."""
    sampling: Sampling = Sampling(top_p=0.9, top_k=20, max_tokens=2048)
    """How replies are drawn."""
    profile: Literal["general", "health", "writing", "law", "work"] = "general"
    """What the annotator is told to look for (appendix A.6). work: requirements on something that is made step by step,
    like software or an experiment."""
    votes: str | None = None
    """Table of human votes on roles and edges (CSV, TSV, JSONL or Parquet), which win over the annotator."""

    @model_validator(mode="after")
    def _shows_what_it_has(self) -> Graphs:
        if self.examples and not self.file:
            raise ValueError("graph.examples needs graph.file, whose graphs are shown")
        return self


class Retention(Frozen):
    """How much of a child's event probability is left where its parent is unsupported, by relation (GEAR, Eq. 6). The
    paper's values are 0.6, 0.2 and 0; none is taken silently."""

    weak_prerequisite: Share
    """λ of a weak prerequisite, in [0, 1]."""
    strong_prerequisite: Share
    """λ of a strong one."""
    activation: Share
    """λ of an activation."""

    def at(self, eta: float) -> Retention:
        """λ^η with 0⁰ = 1: η = 0 suppresses nothing, 1 is as given, more suppresses more (Eq. 17)."""
        return Retention(**{name: value**eta for name, value in self.model_dump().items()})


Inference = Literal["topological", "exact"]
"""topological: the published linear-time update (Eq. 12), which takes the parents of a criterion for independent;
exact: exact marginals (Eq. 10), refused where a graph is too wide for them."""


class Learn(Frozen):
    """Edge-specific retention factors, fitted on the calibration split and measured on the test split."""

    by: Literal["scores", "marks"] = "scores"
    """What is fitted to. scores: the scores that people gave responses; marks: their marks of single criteria. Of the
    responses in which a child is credited and its parent is not, the factor of the edge is the share in which the
    credit is right by their marks, shrunk to that of its relation; an edge whose credit is right more often than not is
    not kept, and has factor 1."""
    target: str = "mean"
    """The human score fitted to: a rater id, or 'mean'; of marks whose they are, a rater id."""
    folds: int = Field(default=5, ge=2)
    """Folds inside the calibration split that choose the strength of the penalty; of scores."""
    seed: int = 0
    """Seed of the folds."""

    @model_validator(mode="after")
    def _names_a_rater(self) -> Learn:
        if self.by == "marks" and self.target == "mean":
            raise ValueError("learn.by: marks needs learn.target, the rater whose marks they are")
        return self


class Reward(Frozen):
    """How judgments become a reward."""

    retention: Retention
    """The retention factors; there is no default."""
    eta: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Suppression strength η, see `Retention.at`."""
    inference: Inference = "topological"
    """How marginals are computed."""
    local: Literal["probability", "decision"] = "probability"
    """A criterion's own score: the expected share of its levels where the rater gave probabilities and its share of the
    levels reached where not; or always the latter."""
    threshold: float = Field(default=0.5, gt=0, le=1)
    """From this score on a criterion counts as supported: for hard gating, and to tell violated from satisfied
    dependencies."""
    rater: str | None = None
    """Whose judgments are rewarded: a rater of the data; the study's judge where not given."""
    edge_retention: str | None = None
    """Table with rubric_id, parent, child and retention, in place of the relation's factor: what `learn` wrote."""
    learn: Learn | None = None
    """Whether edge-specific factors are fitted."""
    draws: Natural = 1000
    """Bootstrap draws of the diagnostics."""
    seed: int = 42
    """Seed of the bootstrap and of the random graph."""
