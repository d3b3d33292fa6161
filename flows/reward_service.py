"""Rollouts of clients, judged by a reward: what `tasks.rewards.serve` needs of who judges; and rubrics that come with
their rollouts or in a plain list, which are locked and get a graph by the embedded annotator."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from rubricflow.flows.batch import JudgedBatch, PosedRollout, agreements, made
from rubricflow.flows.prepared_items import PreparedItem, StudyGraphs, graphs_by, prepared_items, stated_alone
from rubricflow.flows.recorder import read_record, record_criteria, record_quality
from rubricflow.flows.rollouts import RolloutReward
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.rubrics import STATED
from rubricflow.tasks.core.llm.calls import InFlight
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.rows import Judged
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.rewards.graph.build import build
from rubricflow.tasks.rewards.graph.subject import subjects
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
MOST_KEPT = 10_000
"""Items that came with rollouts and are kept ready; the one not asked for longest goes first."""
_STEP = 0.01
"""Of the scale that a bundle has to have; no reward depends on it."""
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
        self.name = name
        self._reward = reward
        self._inline = inline
        self.judge_urls = judge_urls
        questions = [PromptRow(item_id=key, prompt=item.row["question"]) for key, item in reward.items.items()]
        self._prompts = list(prompts) if prompts is not None else questions
        self.aggregation = reward.options.aggregation
        self.deadline_s = reward.options.deadline
        self._in_flight = InFlight()
        self._record = reward.options.record
        if record := self._record:
            record_criteria(record, {name: item.bundle for name, item in reward.items.items()})
            inline.keep = lambda bundles: record_criteria(record, bundles, shard=f"brought-{min(bundles)}")

    def kept_open(self) -> AbstractContextManager[None]:
        """For as long as it lasts the judge is open, with its connections kept between batches."""
        return self._reward.kept_open()

    @property
    def said_of_graphs(self) -> str | None:
        """What to know about the graphs: see `stated_alone`."""
        return stated_alone(self._reward.items.values())

    def prompts(self) -> list[PromptRow]:
        return self._prompts

    def recorded(self) -> TrainingRecord:
        """What earlier servers recorded of the same training."""
        return read_record(self._record)

    def record_quality(self, step: int, quality: Qualities) -> None:
        """Keep an evaluation of the policy on held-out items, where there is a record."""
        if self._record:
            record_quality(self._record, step, quality)

    def pose(self, rollouts: Sequence[SentRollout], step: int | None) -> list[PosedRollout | RolloutAnswer]:
        """The rollouts with their items, or why there is no reward where the rubric that came with one fails.

        InputError names the row of one that has no item, or whose rubric cannot be.
        """
        posed: list[PosedRollout | RolloutAnswer] = []
        for row, rollout in enumerate(rollouts, 1):
            if rollout.item_id is not None:
                posed.append(PosedRollout(self._reward.item(rollout.item_id, row), rollout.completion, step))
                continue
            assert rollout.question is not None  # `SentRollout` asks for both
            assert rollout.rubric is not None
            key = item_digest(rollout.question, rollout.context, rollout.rubric)
            listed = ListedItem.model_construct(
                item_id=key, prompt=rollout.question, context=rollout.context, criteria=rollout.rubric
            )
            try:
                posed.append(PosedRollout(self._inline.item(listed), rollout.completion, step))
            except InputError as error:
                raise InputError(str(error), row=row, field="rubric") from error
            except UserError as error:
                posed.append(unscored_answer("", "rubric", str(error)[:_MOST_SAID]))
            except Exception:  # a defect, which shall not cost the others of the batch their rewards
                _LOG.exception("the graph of a rubric failed")
                said = "the server failed at its graph; its log says why"
                posed.append(unscored_answer("", "rubric", said))
        return posed

    def judge(
        self, posed: Sequence[PosedRollout | RolloutAnswer], until: float, is_last: bool
    ) -> list[RolloutAnswer | Unfinished]:
        """The answers of those that are judged, in order."""
        ready = [rollout for rollout in posed if isinstance(rollout, PosedRollout)]
        judged = iter(self._judged(ready, until, is_last) if ready else ())
        return [next(judged) if isinstance(rollout, PosedRollout) else rollout for rollout in posed]

    def _judged(
        self, posed: Sequence[PosedRollout], until: float, is_last: bool
    ) -> Iterator[RolloutAnswer | Unfinished]:
        patience_s = 0.0 if is_last else PATIENCE_S
        batch, left = self._reward.judged_so_far(posed, until, self._in_flight, patience_s, is_last)
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
            paid[called.response_id] += made(called)
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
                    "leaked": appraisal.leaked,
                    "supported": appraisal.supported,
                    "violated": appraisal.violated,
                    "agreement": twice.get(judged.case.response_id),
                    "unscored": {"reason": trouble.reason, "said": trouble.said[:_MOST_SAID]} if trouble else None,
                    "decisions": _decisions(judged, rollout.item.bundle),
                    "shares": appraisal.shares,
                    "graph_by": rollout.item.row.get("graph_by"),
                    "dependencies": len(rollout.item.compiled.parent),
                    "calls": len(replies),
                    "prompt_tokens": sum(reply.prompt_tokens or 0 for reply in replies),
                    "completion_tokens": sum(reply.completion_tokens or 0 for reply in replies),
                }
            )
        return answers


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


class InlineRubrics:
    """Prepares listed items, whose graphs hold what their criteria state. Threads may ask at once."""

    def __init__(self, judge: Judge, settings: Reward, criteria_per_call: int | None) -> None:
        self._judge = judge
        self._settings = settings
        self._criteria_per_call = criteria_per_call
        self._lock = threading.Lock()
        self._ready: OrderedDict[str, PreparedItem] = OrderedDict()
        self.keep: Callable[[Mapping[str, Bundle]], None] = lambda bundles: None
        """Is told of the rubrics that were prepared, before anybody gets them."""

    def study_graphs(self, items: Sequence[ListedItem]) -> StudyGraphs:
        """Their rows, each with a rubric of its own, bundles and graphs. InputError for a rubric that cannot be
        locked."""
        rows: list[Record] = [
            {"item_id": item.item_id, "rubric_id": item.item_id, "question": item.question, "context": item.context}
            for item in items
        ]
        bundles = {item.item_id: self._bundle(item) for item in items}
        built = build(subjects(rows, bundles), {}, [], None)
        graphs = {graph.subject.rubric_id: graph.graph for graph in built}
        return graphs_by(rows, bundles, graphs, dict.fromkeys(graphs, STATED))

    def item(self, listed: ListedItem) -> PreparedItem:
        """What its rollouts are judged and rewarded by, made at the first one: a tenth of a second for a hundred
        criteria. Errors as of `study_graphs` and `prepared_items`."""
        with self._lock:
            if listed.item_id not in self._ready:
                graphs = self.study_graphs([listed])
                made = prepared_items(*graphs, self._settings, self._criteria_per_call)
                self.keep(graphs.bundles)
                self._ready |= made
            self._ready.move_to_end(listed.item_id)
            if len(self._ready) > MOST_KEPT:
                self._ready.popitem(last=False)
            return self._ready[listed.item_id]

    def _bundle(self, item: ListedItem) -> Bundle:
        """The item's rubric, locked. What earns needs a verified quote, unless the list says otherwise. What costs
        does not: a fault may be that something is missing, and a policy shall gain nothing by a quote that cannot be
        found."""
        criteria = tuple(
            Criterion(
                id=f"C{number}",
                trait="content",
                text=criterion.text,
                kind="criterion",
                weight=criterion.weight,
                evidence=criterion.evidence or ("local_quote" if criterion.weight > 0 else "weakly_groundable"),
            )
            for number, criterion in enumerate(item.criteria, 1)
        )
        rubric = Rubric(
            rubric_id=item.item_id,
            title=item.question[:200],
            text="",
            scale=Scale(min=0, max=1, step=_STEP),
            traits=(Trait(id="content", name="Content", min=0, max=1, step=_STEP),),
            criteria=criteria,
        )
        if problem := broken(rubric):
            raise InputError(f"the rubric of item '{item.item_id}' {problem}", field="rubric")
        return lock(rubric, self._judge.as_protocol(), evidence=self._judge.evidence)
