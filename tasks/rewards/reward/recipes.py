"""Steps of three published ways to train with rubrics, with their aggregation replaced by any of ours.

Each function is one step of the host's pipeline and pure. What is the authors' and what is our reading stands with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import Batch

RAR_WEIGHTS: Mapping[str, float] = {"Essential": 1.0, "Important": 0.7, "Optional": 0.3, "Pitfall": 0.9}
"""RaR's categories and the weights that RaR-Explicit gives them (section 4.4). A pitfall is worded as what a good
answer does ("avoids …"), so it earns, too."""

Chat = Sequence[Fields]


def rar_explicit(batch: Batch, aggregation: Aggregation, threshold: float = 0.5) -> Floats:
    """The rewards of RaR-Explicit, (n,): a judge says yes or no to every criterion, and the yes are added up.

    Gunjal et al. 2025, arXiv 2507.17746, Eq. 1: r = Σ w c / Σ w with c in {0, 1}; weights as in `RAR_WEIGHTS`. That is
    `flat` where all weights are positive, as RaR's are. Ours: another aggregation in its place; a criterion with a
    probability counts as yes from the threshold on; a rubric with negative weights is divided by its positive ones; NaN
    where a criterion is unscored. With yes and no alone, GEAR is `hard_propagated` where every factor is 0.

    >>> import numpy as np
    >>> from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch
    >>> two = np.array([0, 1], np.int32)
    >>> rubric = CompiledGraph("r", "g", ("fact", "style"), np.array([1.0, 0.3]), two, two[:1], two[1:],
    ...                ("strong_prerequisite",), np.array([0.2]))
    >>> answers = batch([rubric], np.array([0]), np.array([0.1, 0.9]))
    >>> rar_explicit(answers, "flat").round(3), rar_explicit(answers, "gear").round(3)
    (array([0.231]), array([0.046]))
    """
    yes = (batch.local >= threshold).astype(float)
    verdicts = replace(batch, local=yes, decided=yes)
    return aggregate(verdicts, aggregation, threshold=threshold).reward


def merf_prompt(prompt: str | Chat, bundle: Bundle, graph: Graph | None = None) -> str | list[Record]:
    """The prompt with the rules of the reward written under it, as MeRF motivates its policy.

    Zhang et al. 2025, arXiv 2506.18485: the reward's specification is put into the prompt of every rollout, in words;
    the reward itself stays as it is. Ours: the rules are the rubric's criteria with their points and, with a graph,
    what they hang on, so that the policy is told what GEAR pays for; they end the last user turn; the wording. Whether
    they are shown at evaluation is the caller's choice. Line breaks are taken out of the rubric's texts, so that they
    cannot pass for turns. InputError for a chat without a user turn.

    >>> bundle = Bundle.model_validate({
    ...     "text": "", "scale": {"min": 0, "max": 1}, "traits": [{"id": "t", "name": "T", "min": 0, "max": 1}],
    ...     "criteria": [{"id": "fact", "trait": "t", "text": "Says that it is motion.", "weight": 2},
    ...                  {"id": "example", "trait": "t", "text": "Gives an example."}],
    ...     "protocol": {"name": "pointwise", "final_score": "weighted_points", "signals": ["score"]}})
    >>> graph = Graph.model_validate({
    ...     "nodes": [{"criterion_id": "fact", "role": "core"}, {"criterion_id": "example", "role": "additional"}],
    ...     "edges": [{"parent": "fact", "child": "example", "relation": "strong_prerequisite"}]})
    >>> print(merf_prompt("What is heat?", bundle, graph))
    What is heat?
    <BLANKLINE>
    How your answer is rewarded:
    - +2 points: Says that it is motion.
    - +1 points, little of it without 'Says that it is motion.': Gives an example.
    """
    parents: dict[str, list[str]] = {}
    for edge in graph.edges if graph else ():
        loss = f"{_WITHOUT[edge.relation]} without '{_line(bundle, edge.parent)}'"
        parents.setdefault(edge.child, []).append(loss)
    lines = []
    for criterion in bundle.whole:
        terms = [f"{criterion.weight:+g} points", *parents.get(criterion.id, ())]
        lines.append(f"- {', '.join(terms)}: {_line(bundle, criterion.id)}")
    return _under(prompt, "\n".join(["How your answer is rewarded:", *lines]))


_WITHOUT = {
    "weak_prerequisite": "a part of it",
    "strong_prerequisite": "little of it",
    "activation": "none of it",
}


def ruscarl_shares(members: int, step: int, steps: int, start: float = 0.2, steepness: float = 125.0) -> list[float]:
    """The share of the rubric that each member of a rollout group is shown at a step, in [0, 1].

    Zhou et al. 2025, arXiv 2508.16949, and the authors' code: member i of G sees (G − i) / (G − 1) of it, the first all
    and the last none, times 1 / (1 + exp(a (x − x₀))), where x in [0, 1] is the progress (step − 1) / (steps − 1); they
    recommend x₀ (start) 0.2 and a (steepness) 125. Ours: a group of one sees what the first would.

    >>> [round(share, 2) for share in ruscarl_shares(members=3, step=1, steps=101)]
    [1.0, 0.5, 0.0]
    >>> [round(share, 2) for share in ruscarl_shares(members=3, step=21, steps=101)]
    [0.5, 0.25, 0.0]
    """
    progress = min(1.0, max(0.0, (step - 1) / (steps - 1))) if steps > 1 else 0.0
    fade = 0.5 * (1 - math.tanh(0.5 * steepness * (progress - start)))  # the sigmoid; exp overflows
    return [fade * (members - 1 - i) / (members - 1) if members > 1 else fade for i in range(members)]


def ruscarl_prompt(prompt: str | Chat, bundle: Bundle, share: float, rng: random.Random) -> str | list[Record]:
    """The prompt with a share of the rubric as scaffold.

    Zhou et al. 2025, arXiv 2508.16949, and the authors' code: a random sample of round(share · k) criteria, what earns
    marks as points to meet and what costs marks as points to avoid, without their weights; the reward is the rubric's,
    and the policy is updated on the prompt without the scaffold. Ours: how that reward is put together
    (`RubricReward`), the place (under the last user turn; the authors': a system message) and the wording. InputError
    as for `merf_prompt`.

    >>> bundle = Bundle.model_validate({
    ...     "text": "", "scale": {"min": 0, "max": 1}, "traits": [{"id": "t", "name": "T", "min": 0, "max": 1}],
    ...     "criteria": [{"id": "fact", "trait": "t", "text": "Says that it is motion.", "weight": 2},
    ...                  {"id": "example", "trait": "t", "text": "Gives an example."}],
    ...     "protocol": {"name": "pointwise", "final_score": "weighted_points", "signals": ["score"]}})
    >>> print(ruscarl_prompt("What is heat?", bundle, 0.5, random.Random(0)))
    What is heat?
    <BLANKLINE>
    A good answer:
    - Gives an example.
    """
    drawn = set(rng.sample(range(len(bundle.whole)), round(share * len(bundle.whole))))
    shown = [criterion for place, criterion in enumerate(bundle.whole) if place in drawn]
    parts = {
        "A good answer:": [c for c in shown if c.weight > 0],
        "It does not:": [c for c in shown if c.weight < 0],
        "Some of this depends on:": [c for c in shown if c.weight == 0],
    }
    lines = []
    for title, criteria in parts.items():
        if criteria:
            lines += [title, *(f"- {_plain(criterion)}" for criterion in criteria)]
    return _under(prompt, "\n".join(lines))


def _line(bundle: Bundle, criterion_id: str) -> str:
    return next(_plain(criterion) for criterion in bundle.whole if criterion.id == criterion_id)


def _plain(criterion: Criterion) -> str:
    """A criterion's text on one line."""
    return " ".join(criterion.text.split())


def _under(prompt: str | Chat, text: str) -> str | list[Record]:
    """The prompt with a text under it; the same one for an empty text."""
    if isinstance(prompt, str):
        return f"{prompt}\n\n{text}" if text else prompt
    turns = [dict(turn) for turn in prompt]
    last = next((turn for turn in reversed(turns) if turn["role"] == "user"), None)
    if last is None:
        raise InputError("the chat has no user turn to write under", field="prompt")
    if text:
        content = last["content"]
        last["content"] = (
            f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
        )
    return turns
