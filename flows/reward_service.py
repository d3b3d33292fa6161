"""Rollouts of clients, judged by a reward: what `tasks.serve` needs of who judges."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager

from flows.batch import JudgedBatch, PosedRollout
from flows.checks import meant
from flows.failures import Trouble
from flows.inline_rubrics import InlineRubrics
from flows.prepared import PreparedItem
from flows.repeated_judging import Agreement, agreements
from flows.rollouts import RolloutReward, VariedReward
from flows.training_record import read_record, record_criteria, record_quality
from tasks.contracts.bundle import Criterion
from tasks.contracts.errors import InputError
from tasks.judge.decision import Decision
from tasks.judge.rows import Judged
from tasks.llm.request import Reply
from tasks.reward.appraisal import Appraisal, CriterionShares, appraisals
from tasks.serve.answered import DecisionAnswer, QuoteAnswer, RolloutAnswer, ShareAnswer
from tasks.serve.listed import ListedItem, item_digest
from tasks.serve.sent import SentRollout
from tasks.serve.service import PromptRow
from tasks.serve.training import Qualities, TrainingRecord

MOST_INLINE = 10_000
"""Rubrics that came with rollouts and are kept ready; the one not asked for longest goes first."""
_MOST_SAID = 300


class RewardService:
    """A reward and what else its clients may ask for."""

    def __init__(
        self, name: str, reward: RolloutReward, inline: InlineRubrics, prompts: Sequence[PromptRow] | None = None
    ) -> None:
        """prompts: of the items, as trainers want them; the questions where not given."""
        self.name, self._reward, self._inline = name, reward, inline
        questions = [PromptRow(item_id=key, prompt=item.row["question"]) for key, item in reward.items.items()]
        self._prompts = list(prompts) if prompts is not None else questions
        self._brought: OrderedDict[str, PreparedItem] = OrderedDict()
        self._lock = threading.Lock()
        if reward.record is not None:
            record_criteria(reward.record, reward.items)

    @property
    def aggregation(self) -> str:
        """How the reward is put together."""
        return self._reward.aggregation

    @property
    def deadline_s(self) -> float:
        """Seconds that a request may take unless it says less."""
        return self._reward.deadline

    def kept_open(self) -> AbstractContextManager[None]:
        """For as long as it lasts the judge is open, with its connections kept between batches."""
        return self._reward.kept_open()

    def prompts(self) -> list[PromptRow]:
        """The prompts of the items."""
        return self._prompts

    def recorded(self) -> TrainingRecord:
        """What earlier servers recorded of the same training."""
        return read_record(self._reward.record)

    def record_quality(self, step: int, quality: Qualities) -> None:
        """Keep an evaluation of the policy on held-out items, where there is a record."""
        if self._reward.record is not None:
            record_quality(self._reward.record, step, quality)

    def pose(self, rollouts: Sequence[SentRollout], step: int | None) -> list[PosedRollout]:
        """The rollouts with their items; InputError names the row of one that has none."""
        brought = self._with_own_rubrics(rollouts)
        posed = []
        for row, rollout in enumerate(rollouts, 1):
            item = brought[row] if row in brought else self._item(rollout.item_id, row)
            posed.append(PosedRollout(item, rollout.completion, step))
        return posed

    def judge(self, posed: Sequence[PosedRollout], until: float) -> list[RolloutAnswer]:
        """Their answers, in order."""
        batch = self._reward.judged(posed, until)
        flat, gear = (self._reward.aggregated(batch.local, name) for name in ("flat", "gear"))
        worth = appraisals(batch.local.batch, flat, gear, self._reward.threshold)
        paid = _calls(batch)
        twice = agreements(batch.graded.judged, batch.repeats.judged if batch.repeats else ())
        rewards = map(VariedReward, batch.rewards, batch.variances)
        return [
            _answer(
                judged,
                posed_rollout.item,
                appraisal,
                reward,
                trouble,
                paid[judged.case.response_id],
                twice.get(judged.case.response_id),
            )
            for judged, posed_rollout, appraisal, reward, trouble in zip(
                batch.graded.judged, posed, worth, rewards, batch.missing, strict=True
            )
        ]

    def _item(self, item_id: str | None, row: int) -> PreparedItem:
        item = self._reward.items.get(item_id or "")
        if item is None:
            hint = meant(item_id, self._reward.items)
            raise InputError(f"there is no item '{item_id}'", row=row, field="item_id", hint=hint)
        return item

    def _with_own_rubrics(self, rollouts: Sequence[SentRollout]) -> dict[int, PreparedItem]:
        """Row, from 1 → the item of a rollout that brings its question and rubric."""
        listed = {row: _listed(rollout) for row, rollout in enumerate(rollouts, 1) if rollout.item_id is None}
        if not listed:
            return {}
        with self._lock:
            wanted = {item.item_id: item for item in listed.values()}
            missing = [item for key, item in wanted.items() if key not in self._brought]
            if missing:
                prepared = self._inline.prepared(missing)
                self._brought.update(prepared)
                if self._reward.record is not None:
                    record_criteria(self._reward.record, prepared, shard=f"brought-{min(prepared)}")
            for key in wanted:
                self._brought.move_to_end(key)
            items = {row: self._brought[item.item_id] for row, item in listed.items()}
            while len(self._brought) > MOST_INLINE:
                self._brought.popitem(last=False)
        return items


def _listed(rollout: SentRollout) -> ListedItem:
    assert rollout.question is not None  # `SentRollout` asks for both
    assert rollout.rubric is not None
    key = item_digest(rollout.question, rollout.context, rollout.rubric)
    return ListedItem(key, rollout.question, rollout.context, rollout.rubric, rollout.question)


def _answer(
    judged: Judged,
    item: PreparedItem,
    appraisal: Appraisal,
    rewarded: VariedReward,
    trouble: Trouble | None,
    replies: Sequence[Reply],
    agreement: Agreement | None,
) -> RolloutAnswer:
    criteria = {criterion.id: criterion for criterion in item.bundle.criteria}
    decisions = [
        _decision(decision, criteria[decision.criterion_id], judged.probabilities.get(decision.criterion_id))
        for decision in judged.decisions
    ]
    has_reward = rewarded.reward is not None
    return {
        "item_id": judged.case.item_id,
        "reward": rewarded.reward,
        "reward_variance": rewarded.variance,
        "flat": appraisal.flat if has_reward else None,
        "gear": appraisal.gear if has_reward else None,
        "false_credit": appraisal.false_credit if has_reward else None,
        "leaked": {str(relation): share for relation, share in appraisal.leaked.items()},
        "supported": appraisal.supported,
        "violated": appraisal.violated,
        "agreement": {"same": agreement.same, "compared": agreement.compared} if agreement else None,
        "unscored": {"reason": trouble.reason, "said": trouble.said[:_MOST_SAID]} if trouble else None,
        "decisions": decisions,
        "shares": {name: _share(share) for name, share in appraisal.shares.items()},
        "calls": len(replies),
        "prompt_tokens": sum(reply.prompt_tokens or 0 for reply in replies),
        "completion_tokens": sum(reply.completion_tokens or 0 for reply in replies),
    }


def _share(shares: CriterionShares) -> ShareAnswer:
    return {"own": shares.local, "licensed": shares.licensed}


def _decision(decision: Decision, criterion: Criterion, probabilities: list[float] | None) -> DecisionAnswer:
    return {
        "criterion_id": criterion.id,
        "text": criterion.text,
        "weight": criterion.weight,
        "level": decision.level,
        "top": criterion.top,
        "probabilities": probabilities,
        "verified": decision.verified,
        "unscored": decision.reason,
        "evidence": [
            QuoteAnswer(quote=row["quote"], start=row["start"], end=row["end"], status=row["status"])
            for row in decision.evidence
        ],
    }


def _calls(batch: JudgedBatch) -> defaultdict[str, list[Reply]]:
    """Response → the replies to the calls that were made for it."""
    paid: defaultdict[str, list[Reply]] = defaultdict(list)
    repeats = batch.repeats.called if batch.repeats else []
    for called in [*batch.graded.called, *repeats]:
        attempts = called.answer.attempts
        paid[called.case.response_id] += [attempt.reply for attempt in attempts if not attempt.stored]
    return paid
