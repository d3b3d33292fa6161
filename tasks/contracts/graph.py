"""The rubric graph: which criterion licenses which (GEAR, section 3.2), and how a study wants it made."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from pydantic import Field, model_validator

from tasks.contracts.engine import Engine, Sampling
from tasks.contracts.table import Frozen, Share

Role = Literal["core", "additional", "penalty", "applicability"]
"""core: a primary requirement; additional: a refinement that is not central; penalty: an error or omission that costs;
applicability: a condition that decides whether another criterion is relevant (appendix A.2)."""
Relation = Literal["weak_prerequisite", "strong_prerequisite", "activation"]
"""weak_prerequisite: without the parent the child still earns part of its own; strong_prerequisite: little of it;
activation: without the parent the child does not apply (appendix A.4)."""
PREREQUISITES: tuple[Relation, ...] = ("weak_prerequisite", "strong_prerequisite")
CANDIDATES: Mapping[tuple[Role, Role], tuple[Relation, ...]] = {
    ("core", "core"): PREREQUISITES,
    ("core", "additional"): PREREQUISITES,
    ("core", "penalty"): PREREQUISITES,
    ("applicability", "additional"): ("activation",),
    ("applicability", "penalty"): ("activation",),
}
"""Roles of parent and child → the relations that may hold between them; no others are proposed (appendix A.3)."""


class Node(Frozen):
    """A criterion in its role."""

    criterion_id: str
    """The criterion; of one with sub-points the whole."""
    role: Role
    """What it does in the rubric. Roles guide construction and do not enter a reward."""


class Edge(Frozen):
    """The parent licenses the child."""

    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Relation
    """How strongly."""


class Graph(Frozen):
    """A rubric's dependencies, acyclic. `graph_id` is the SHA-256 of this content and of nothing else."""

    nodes: tuple[Node, ...]
    """Every criterion of the rubric that is no sub-point, in the rubric's order."""
    edges: tuple[Edge, ...] = ()
    """In the order of their parents, then children, in the rubric."""

    @model_validator(mode="after")
    def _is_a_graph(self) -> Graph:
        names = {node.criterion_id for node in self.nodes}
        if len(names) < len(self.nodes):
            given = Counter(node.criterion_id for node in self.nodes)
            raise ValueError(f"criterion '{given.most_common(1)[0][0]}' is given twice")
        parents: dict[str, set[str]] = {}
        for edge in self.edges:
            for name in (edge.parent, edge.child):
                if name not in names:
                    raise ValueError(f"edge {edge.parent} → {edge.child}: there is no criterion '{name}'")
            if edge.parent == edge.child:
                raise ValueError(f"criterion '{edge.parent}' cannot license itself")
            if edge.parent in parents.setdefault(edge.child, set()):
                raise ValueError(f"edge {edge.parent} → {edge.child} is given twice")
            parents[edge.child].add(edge.parent)
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][1:]
            first = circle.index(min(circle))  # it may be found from any of its edges
            told = [*circle[first:], *circle[: first + 1]]
            raise ValueError(f"the edges go in a circle: {' → '.join(told)}") from None
        return self

    def canonical(self) -> str:
        """The content as JSON with sorted keys and no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def graph_id(self) -> str:
        """SHA-256 of the canonical content, 64 hex digits."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()


class Graphs(Frozen):
    """Where the rubric graphs come from."""

    file: str | None = None
    """YAML file with authored graphs under `graphs:`, each with its `rubric_id`, `nodes` and `edges`; rubrics that it
    does not name are annotated."""
    backend: Literal["embedded", "vllm", "openai", "replay"] = "embedded"
    """Who annotates the others. embedded: rules of thumb over the criteria's wording and the small sentence encoder,
    a heuristic; the others: a language model."""
    engine: Engine | None = None
    """With vllm or openai: the model."""
    model: str | None = None
    """With replay: whose replies of the reply store to use."""
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
        if self.backend in ("vllm", "openai") and self.engine is None:
            raise ValueError(f"graph backend '{self.backend}' needs an engine with the model's name")
        if self.backend == "replay" and self.model is None:
            raise ValueError("graph backend 'replay' needs the model whose replies to use")
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


Aggregation = Literal["flat", "hard_verdict", "hard_local", "hard_propagated", "gear"]
"""flat: every criterion for itself (Eq. 2); hard_verdict: a child counts if the judge decided that every parent holds,
whatever probability it gave (the published baseline, appendix E); hard_local: if every parent's own score reaches the
threshold; hard_propagated: if every parent itself still counts and reaches it; gear: dependency-adjusted marginals
(Eqs. 7-14)."""


class Learn(Frozen):
    """Edge-specific retention factors, fitted to human scores on the calibration split and measured on the test
    split."""

    target: str = "mean"
    """The human score fitted to: a rater id, or 'mean'."""
    folds: int = Field(default=5, ge=2)
    """Folds inside the calibration split that choose the strength of the penalty."""
    seed: int = 0
    """Seed of the folds."""


class Reward(Frozen):
    """How judgments become a reward."""

    retention: Retention
    """The retention factors; there is no default."""
    eta: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Suppression strength η, see `Retention.at`."""
    inference: Literal["topological", "exact"] = "topological"
    """The linear-time update (Eq. 12), or exact marginals (Eq. 10) where the graph is narrow enough."""
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
    draws: int = Field(default=1000, ge=0)
    """Bootstrap draws of the diagnostics."""
    seed: int = 42
    """Seed of the bootstrap and of the random graph."""
