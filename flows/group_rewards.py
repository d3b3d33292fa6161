"""Rewards of rollouts by how they compare with the others of their group: a judge that compares answers in place of one
that scores criteria.

GRPO draws several rollouts of a prompt and learns from their differences; this judges the differences themselves:

    reward = GroupReward.of_study("study.yaml", "data/warehouse")  # judge: {protocol: pairwise, …} or groupwise
    GRPOTrainer(model, reward_funcs=reward, train_dataset=questions, ...)  # questions: columns `prompt`, `item_id`

A group is what one batch holds of an item.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Literal, NamedTuple

from scipy.stats import rankdata

from rubricflow.flows.batch import Cost, PosedRollout, Trouble, case_of_rollout, cost_of, patient, troubles
from rubricflow.flows.prepared_items import PreparedItem, rubrics_of_study
from rubricflow.flows.rollouts import Rollout
from rubricflow.flows.trainers import RubricReward, for_training, study_rater
from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, protocols_where
from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge.rows import Grading, Rater

By = Literal["score", "rank"]
_TAKEN = frozenset({"replies", "on_failure", "deadline", "most_unscored"})
"""Options of a reward that mean something where answers are compared."""


class GroupBatch(NamedTuple):
    """What became of a batch, in the order of its rollouts."""

    rewards: list[float | None]
    variances: list[float | None]
    """None: what the judge doubts of a comparison is in the reward itself."""
    cost: Cost


class GroupReward(RubricReward):
    """The reward of a rollout compared with the others of its group, from 0 to 1, as TRL and verl's batches call it: by
    'score', of pairs the share of the others that it is expected to beat, and of groups its score; by 'rank' the share
    of the others that it stands above, ties by half. A rollout without words loses to every one that has some, without
    asking: it has the lowest score, and one with words next to such alone has 1. One alone, and one that no verdict
    joins with most of the others, has none."""

    def __init__(
        self,
        items: Iterable[Fields],
        bundles: Mapping[str, Bundle],
        open_rater: Callable[[Replies], Rater],
        by: By = "score",
        **options: Any,
    ) -> None:
        """items: rows with item_id, rubric_id and question; bundles by rubric; open_rater: as of `RolloutReward`;
        options: replies, on_failure, deadline and most_unscored of `Options`.

        InputError for another option or way, an item without a bundle, and a protocol that does not compare.
        """
        if others := options.keys() - _TAKEN:
            rule = f"means nothing where answers are compared; there are {', '.join(sorted(_TAKEN))}"
            raise InputError(rule, field=min(others))
        if by not in ("score", "rank"):
            raise InputError(f"{by!r} is no way; there are score, rank", field="by")
        for name, bundle in bundles.items():
            if PROTOCOLS[bundle.protocol.name].compares is None:
                rule = f"rubric '{name}': protocol '{bundle.protocol.name}' compares no answers"
                able = protocols_where(lambda of: of.compares is not None)
                raise InputError(rule, field="judge.protocol", hint=f"use {able}, or RubricReward")
        self.items = {}
        for row in items:
            if row["rubric_id"] not in bundles:
                raise InputError(f"rubric '{row['rubric_id']}' of an item has no bundle")
            bundle = bundles[row["rubric_id"]]
            # No graph is looked at where answers are compared.
            self.items[row["item_id"]] = PreparedItem(row, bundle, bundle.bundle_id, None)  # type: ignore[arg-type]
        self._by: By = by
        self._prepare(f"group_{by}", open_rater, options)

    @classmethod
    def of_study(  # type: ignore[override]
        cls, study: str | Path, warehouse: str | Path, by: By = "score", **options: Any
    ) -> GroupReward:
        """The reward of a study file whose judge compares answers; replies are the warehouse's where not given. No
        graph is needed, nor a section `reward`. Errors as of `RubricReward.of_study`."""
        path = Path(study)
        opened = Warehouse.open(warehouse)
        settings = for_training(path, by_graph=False)
        items, bundles = rubrics_of_study(settings, path, opened)
        asking = partial(study_rater, settings.judge, path.parent)
        return cls(items, bundles, asking, by, **{"replies": opened.replies, **options})

    async def verl_score(self, *args: Any, **more: Any) -> float:
        """InputError: a solution by itself has no group; verl's manager `batch` calls `verl_scores`."""
        raise InputError("a solution by itself has nothing to be compared with; use verl_scores", field="solution_str")

    def _rewarded(self, rollouts: Sequence[Rollout], step: int | None) -> GroupBatch | None:  # type: ignore[override]
        """The batch, judged group by group; None where there is nothing to judge."""
        posed = [PosedRollout(self.item(rollout.item_id), rollout.text, step) for rollout in rollouts]
        if not posed:
            return None
        start, waves = perf_counter(), list[Wave]()
        with self._here.judging(self._open) as opened:
            # Names that say nothing of the process: the same group is asked the same.
            cases = [case_of_rollout(f"{number:06d}", rollout) for number, rollout in enumerate(posed)]
            who = patient(opened.rater, monotonic() + self.options.deadline)
            graded = self._graded(cases, who, opened.store, waves)
            rewards = group_rewards(graded.gradings, self._by)
            lost = troubles(graded)
            of_batch = next(iter(lost.values()), None)
            missing = [
                (lost.get(grading.case.response_id) or of_batch or Trouble(grading.reason or "not_compared", ""))
                if reward is None
                else None
                for grading, reward in zip(graded.gradings, rewards, strict=True)
            ]
            self._here.watch.note(missing)
        self.last = cost_of(rewards, waves, perf_counter() - start)
        return GroupBatch(rewards, [None] * len(rewards), self.last)


def group_rewards(gradings: Sequence[Grading], by: By) -> list[float | None]:
    """The reward of each of a batch's gradings, see `GroupReward`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, grading in enumerate(gradings):
        groups[grading.case.item_id].append(place)
    rewards: list[float | None] = [None] * len(gradings)
    for members in groups.values():
        wordless = [place for place in members if "short_answer_gate" in gradings[place].signals]
        worded = [place for place in members if place not in wordless]
        for place in members:
            score, (low, high, _) = gradings[place].scored.score, gradings[place].case.bundle.scale.bounds
            rewards[place] = None if score is None else (score - low) / (high - low)
        compared = [place for place in worded if rewards[place] is not None]
        if wordless and len(worded) == 1 and gradings[worded[0]].reason == "not_compared":
            compared = worded
            rewards[worded[0]] = 1.0  # nobody is asked: it stands above all the others
        elif len(compared) == 1 or (len(wordless) == 1 and not compared):
            rewards[(compared or wordless)[0]] = None
        elif PROTOCOLS[gradings[members[0]].case.bundle.protocol.name].compares == "pairs":
            for place in compared:
                beaten = (rewards[place] or 0.0) * (len(compared) - 1) + len(wordless)
                rewards[place] = beaten / (len(compared) + len(wordless) - 1)
        if by == "rank":
            places = [place for place in members if rewards[place] is not None]
            # Scores that mean the same may differ in their last digits.
            ranks = rankdata([round(rewards[place] or 0.0, 9) for place in places])
            for place, rank in zip(places, ranks.tolist(), strict=True):
                rewards[place] = (rank - 1) / max(1, len(places) - 1)
    return rewards
