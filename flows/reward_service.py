"""Rollouts of clients, judged by a reward: what `tasks.rewards.serve` needs of who judges."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from typing import NamedTuple

from rubricflow.flows.batch import JudgedBatch, PosedRollout, PreparedItem, made
from rubricflow.flows.checks import meant
from rubricflow.flows.inline_rubrics import InlineRubrics
from rubricflow.flows.judged_again import agreements
from rubricflow.flows.recorder import read_record, record_criteria, record_quality
from rubricflow.flows.rollouts import RolloutReward
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import ContractError, InputError, UserError
from rubricflow.tasks.core.llm.calls import InFlight
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.rows import Judged
from rubricflow.tasks.rewards.reward.leakage import appraisals
from rubricflow.tasks.rewards.serve.answered import (
    DecisionAnswer,
    Qualities,
    QuoteAnswer,
    RolloutAnswer,
    TrainingRecord,
    unscored_answer,
)
from rubricflow.tasks.rewards.serve.sent import ListedItem, SentRollout, item_digest
from rubricflow.tasks.rewards.serve.waves import PromptRow, Unfinished

PATIENCE_S = 3.0
"""Seconds without any reply after which a joint batch is over; the calls that are open go on without it."""
_MOST_SAID = 300
_LOG = logging.getLogger(__name__)


class RewardService:
    """A reward and what else its clients may ask for."""

    def __init__(
        self,
        name: str,
        reward: RolloutReward,
        inline: InlineRubrics,
        prompts: Sequence[PromptRow] | None = None,
        judge_urls: Sequence[str] = (),
    ) -> None:
        """prompts: of the items, as trainers want them; the questions where not given. judge_urls: the servers that
        have the judge, if any do."""
        self.name, self._reward, self._inline, self.judge_urls = name, reward, inline, judge_urls
        questions = [PromptRow(item_id=key, prompt=item.row["question"]) for key, item in reward.items.items()]
        self._prompts = list(prompts) if prompts is not None else questions
        self._in_flight = InFlight()
        record = reward.record
        if record is not None:
            record_criteria(record, {name: item.bundle for name, item in reward.items.items()})
            inline.keep = lambda bundles: record_criteria(record, bundles, shard=f"brought-{min(bundles)}")

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

    def pose(
        self, rollouts: Sequence[SentRollout], step: int | None, until: float
    ) -> list[PosedRollout | InlineRollout | Unfinished]:
        """The rollouts with their items; InputError names the row of one that has none, or whose rubric cannot be."""
        posed: list[PosedRollout | InlineRollout | Unfinished] = []
        for row, rollout in enumerate(rollouts, 1):
            if rollout.item_id is not None:
                known = self._reward.items.get(rollout.item_id)
                if known is None:
                    hint = meant(rollout.item_id, self._reward.items)
                    raise InputError(f"there is no item '{rollout.item_id}'", row=row, field="item_id", hint=hint)
                posed.append(PosedRollout(known, rollout.completion, step))
                continue
            assert rollout.question is not None  # `SentRollout` asks for both
            assert rollout.rubric is not None
            key = item_digest(rollout.question, rollout.context, rollout.rubric)
            listed = ListedItem(key, rollout.question, rollout.context, rollout.rubric, rollout.question)
            try:
                item = self._inline.asked(listed, until)
            except (InputError, ContractError) as error:
                raise InputError(str(error), row=row, field="rubric") from error
            waiting = InlineRollout(item, rollout.completion, step)
            posed.append(waiting if item.done() else Unfinished(waiting, (item,)))
        return posed

    def judge(
        self, posed: Sequence[PosedRollout | InlineRollout], until: float, is_last: bool
    ) -> list[RolloutAnswer | Unfinished]:
        """The answers of those that are judged, in order."""
        known = [rollout.posed() if isinstance(rollout, InlineRollout) else rollout for rollout in posed]
        ready = [rollout for rollout in known if isinstance(rollout, PosedRollout)]
        judged = iter(self._judged(ready, until, is_last) if ready else ())
        return [next(judged) if isinstance(rollout, PosedRollout) else rollout for rollout in known]

    def _judged(
        self, posed: Sequence[PosedRollout], until: float, is_last: bool
    ) -> Iterator[RolloutAnswer | Unfinished]:
        patience_s = 0.0 if is_last else PATIENCE_S
        batch, left = self._reward.judged_so_far(posed, until, self._in_flight, patience_s, is_last=is_last)
        done = [rollout for place, rollout in enumerate(posed) if place not in left]
        answers = iter(self._answers(batch, done) if batch else ())
        for place, rollout in enumerate(posed):
            if place in left:
                awaited, paid = left[place]
                yield Unfinished(rollout._replace(paid=rollout.paid + paid), awaited)
            else:
                yield next(answers)

    def _answers(self, batch: JudgedBatch, posed: Sequence[PosedRollout]) -> list[RolloutAnswer]:
        flat, gear = (self._reward.aggregated(batch.local, name) for name in ("flat", "gear"))
        worth = appraisals(batch.local.batch, flat, gear, self._reward.threshold)
        paid: defaultdict[str, list[Reply]] = defaultdict(list)
        for called in [*batch.graded.called, *(batch.repeats.called if batch.repeats else ())]:
            paid[called.case.response_id] += made(called)
        twice = agreements(batch.graded.judged, batch.repeats.judged if batch.repeats else ())
        rows = zip(batch.graded.judged, posed, worth, batch.rewards, batch.variances, batch.missing, strict=True)
        answers: list[RolloutAnswer] = []
        for judged, rollout, appraisal, reward, variance, trouble in rows:
            replies = [*rollout.paid, *paid[judged.case.response_id]]
            answers.append(
                {
                    "item_id": judged.case.item_id,
                    "reward": reward,
                    "reward_variance": variance,
                    "flat": None if reward is None else appraisal.flat,
                    "gear": None if reward is None else appraisal.gear,
                    "false_credit": None if reward is None else appraisal.false_credit,
                    "leaked": {str(relation): share for relation, share in appraisal.leaked.items()},
                    "supported": appraisal.supported,
                    "violated": appraisal.violated,
                    "agreement": twice.get(judged.case.response_id),
                    "unscored": {"reason": trouble.reason, "said": trouble.said[:_MOST_SAID]} if trouble else None,
                    "decisions": _decisions(judged, rollout.item.bundle),
                    "shares": {
                        name: {"own": share.local, "licensed": share.licensed}
                        for name, share in appraisal.shares.items()
                    },
                    "calls": len(replies),
                    "prompt_tokens": sum(reply.prompt_tokens or 0 for reply in replies),
                    "completion_tokens": sum(reply.completion_tokens or 0 for reply in replies),
                }
            )
        return answers


class InlineRollout(NamedTuple):
    """A rollout with a rubric of its own, which is being prepared."""

    item: Future[PreparedItem]
    text: str
    step: int | None

    def posed(self) -> PosedRollout | RolloutAnswer:
        """The rollout with its item; why there is no reward where that is not there."""
        try:
            return PosedRollout(self.item.result(timeout=0), self.text, self.step)
        except (TimeoutError, CancelledError):
            return unscored_answer("", "deadline", "the graph of its rubric was not built in time")
        except UserError as error:
            return unscored_answer("", "rubric", str(error)[:_MOST_SAID])
        except Exception:  # a defect, which shall not cost the others of the batch their rewards
            _LOG.exception("the graph of a rubric failed")
            return unscored_answer("", "rubric", "the server failed at its graph; its log says why")


def _decisions(judged: Judged, bundle: Bundle) -> list[DecisionAnswer]:
    criteria = {criterion.id: criterion for criterion in bundle.criteria}
    return [
        {
            "criterion_id": decision.criterion_id,
            "text": criteria[decision.criterion_id].text,
            "weight": criteria[decision.criterion_id].weight,
            "level": decision.level,
            "top": criteria[decision.criterion_id].top,
            "probabilities": judged.probabilities.get(decision.criterion_id),
            "verified": decision.verified,
            "unscored": decision.reason,
            "evidence": [
                QuoteAnswer(quote=row["quote"], start=row["start"], end=row["end"], status=row["status"])
                for row in decision.evidence
            ],
        }
        for decision in judged.decisions
    ]
