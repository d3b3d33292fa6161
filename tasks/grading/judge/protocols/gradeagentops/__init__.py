"""GradeAgentOps: one call for subscores, covered points and misconceptions, each point with the student's words; what
fails is mended field by field within two budgets (sections 2.3 and 2.4).

The contract and what a reply claims are in contract.py, the verifier and the probabilities in settlement.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.extract import said
from rubricflow.tasks.core.llm.request import Message, Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import form
from rubricflow.tasks.grading.judge import mend
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.itemised import follow_up, mendable
from rubricflow.tasks.grading.judge.memory import CHARACTERS_PER_TOKEN, numbered, numbered_names
from rubricflow.tasks.grading.judge.mend import NOT_READ, incomplete, reason_of, unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.protocols.gradeagentops import contract, settlement
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import (
    PUBLISHED,
    STATUSES,
    Claims,
    Demand,
    everything,
    merge,
    read,
)
from rubricflow.tasks.grading.judge.protocols.gradeagentops.settlement import (
    Settlement,
    confidence,
    likely,
    restated,
    settled,
)
from rubricflow.tasks.grading.judge.rows import Case, Decision, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.schema import MAX_PROSE
from rubricflow.tasks.grading.judge.score import Scored, round_half_up, score

_ITEMISED = frozenset({"points", "subscores"})


class Carried(NamedTuple):
    """What a repair's check carries over: the claims so far, and what the repair was asked for."""

    claims: Claims
    demand: Demand


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """The whole artifact, once."""
    return [] if before else [Part(ALL, bundle.criteria, numbered(bundle).traits)]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the whole artifact."""
    system = contract.system(case.bundle, case.question, case.context, case.reference_answer)
    keys = everything(case.bundle).fields
    return build(case, part, rater, system, schema(case.bundle, part), keys, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Settlement` on all that was claimed up to this reply; none where no artifact was ever read."""
    question: Question = request.data
    carried: Carried | None = question.settled
    # Either form with all that was asked for; failing that one with some of it, so that what is there need not be asked
    # for again: in a repair any field, in a first reply one that only this contract has.
    published = request.keys - {"points"} | PUBLISHED if "points" in request.keys else request.keys
    some = request.keys | published if carried else {"subscores", "points", "covered"}

    def serves(artifact: Mapping[str, Any]) -> bool:
        return not some.isdisjoint(artifact) or request.keys <= artifact.keys()

    artifact, note, _ = verdict_in(request, reply, _ITEMISED, serves)
    if artifact is not None:
        artifact = restated(artifact, reply, question.bundle)
    lost = () if artifact is not None else (unread(note),)
    if carried:
        new = read(artifact or {}, carried.demand, question.bundle)
        claims = merge(carried.claims, new, carried.demand) if artifact is not None else carried.claims
    elif artifact is not None:
        claims = read(artifact, everything(question.bundle), question.bundle)
    else:
        return Checked(None, lost)
    verdict = settlement.settle(claims, question.bundle, subject_of(question))
    return incomplete(Checked(verdict, (*lost, *verdict.violations)), note)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The request for what failed and nothing else, or for the whole artifact where none was ever read.

    A prompt that would outgrow the context leaves out what memory showed, and then the end of the reply that failed.
    """
    bundle: Bundle = request.data.bundle
    last = history[-1]
    last = replace(last, checked=replace(last.checked, violations=mendable(last.checked.violations, bundle)))
    role = mend.next_role([*history[:-1], last], bundle.protocol.repair)
    verdict: Settlement | None = last.checked.value
    if role is None or (role == "semantic_repair" and bundle.protocol.failed_quote == "count"):
        return None
    if verdict is None:
        demand = everything(bundle)
    elif role == "contract_repair":
        demand = settlement.broken(bundle, verdict.claims)
    else:
        demand = settlement.ungrounded(bundle, verdict)
    gold, banned, _ = numbered(bundle)
    asked = {gold[n].id for n in demand.points} | {banned[n].id for n in demand.misconceptions}
    criteria = tuple(criterion for criterion in bundle.criteria if criterion.id in asked)
    mends = contract.fields(bundle, demand)
    if role == "semantic_repair" and verdict is not None:
        mends = tuple(criterion.id for criterion in criteria)
    carried = None if verdict is None else Carried(verdict.claims, demand)
    question = replace(request.data, criteria=criteria, traits=demand.traits, role=role, settled=carried)
    names = numbered_names(bundle)
    failures = []
    for violation in last.checked.violations:
        # It names what is of its own kind, and that nothing could be read.
        kind, separator, field = violation.partition(":")
        is_semantic = mend.kind_of((violation,)) == "semantic"
        if is_semantic == (role == "semantic_repair") or kind in NOT_READ:
            is_criterion = kind in mend.SEMANTIC or kind.endswith("_point")
            failures.append(kind + separator + (names.get(field, field) if is_criterion else field))

    def showing(previous: str) -> Request:
        task = mend.task(role, [names.get(name, name) for name in mends], failures, previous)
        shape = contract.schema(bundle, demand)
        mending = follow_up(request, question, shape, mends, f"{task}\n{form(shape)}")
        return replace(mending, keys=demand.fields)

    previous = said(last.reply.text)[: mend.MAX_PREVIOUS]
    fitting = showing(previous)
    if _excess(fitting) > 0:
        fitting = _without_memory(fitting)
    if (excess := _excess(fitting)) > 0:
        fitting = _without_memory(showing(previous[: max(0, len(previous) - excess)]))
    return fitting


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """Decisions, subscores and the final score that they make; none where coverage or a subscore is not known."""
    ((_, answer),) = answers
    verdict: Settlement | None = answer.value
    if verdict is None:
        reason = reason_of(answer)
        failed = {"contract_fail": 1.0} if reason != "no_reply" else {}
        decisions = [Decision(c.id, None, reason=reason) for c in case.bundle.criteria]
        return Outcome(Judged(case, decisions, {}), Grading(case, Scored(None), failed, reason=reason))
    probable = likely(answer, case.bundle)
    verdict = settled(verdict, probable, case.bundle)
    levels = {d.criterion_id: d.level for d in verdict.decisions}
    scored = score(case.bundle, levels, verdict.traits)
    if not verdict.is_covered:
        scored = replace(scored, score=None)
    signals = {name: float(count) for name, count in verdict.signals.items()}
    signals |= {f"criterion.{name}": float(level) for name, level in levels.items() if level is not None}
    signals |= {f"mean.{name}": mean for name, mean in scored.means.items()}
    signals |= {"tie": float(scored.tie)}
    mended = any(attempt.request.role == "semantic_repair" for attempt in answer.attempts)
    fails = any(mend.kind_of((violation,)) == "semantic" for violation in verdict.violations)
    if mended and fails and answer.attempts[-1].reply.text is not None:
        signals["semantic_exhausted_but_accepted"] = 1.0
    judged = Judged(case, verdict.decisions, probable.criteria)
    mean_probability = confidence(verdict, probable, case.bundle)
    unscored = reason_of(answer) if scored.score is None else None
    return Outcome(judged, Grading(case, scored, signals, mean_probability, unscored))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion in the words of the contract, as far as it was asked for."""
    bundle = question.bundle
    demand: Demand = question.settled.demand if question.settled else everything(bundle)
    gold, banned, _ = numbered(bundle)
    subscores = {trait.id: round_half_up(opinion.traits[trait.id], trait) for trait in demand.traits}
    misconceptions = []
    for number in demand.misconceptions:
        if opinion.levels[banned[number].id]:
            quotes = _quotes(opinion, banned[number])
            misconceptions += [{"misconception": number, "quote": quote} for quote in quotes]
    points = {str(number): _claim(opinion, gold[number]) for number in demand.points}
    fields: dict[str, Any] = {
        "points": points,
        "misconceptions": misconceptions,
        "rationale": opinion.because[:MAX_PROSE],
        "subscores": {name: contract.plain(score) for name, score in subscores.items()},
    }
    if "final_score" in demand.fields:
        fields["final_score"] = contract.plain(settlement.mean_of(bundle, subscores))
    return {name: fields[name] for name in contract.in_order(demand)}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The whole contract."""
    return _whole_schema(bundle)


_whole_schema = cached_by_identity(lambda bundle: contract.schema(bundle, everything(bundle)))


def _quotes(opinion: Opinion, criterion: Criterion) -> list[str]:
    """The quote for a criterion: the contract has room for one."""
    return [quote["quote"] for quote in opinion.evidence.get(criterion.id, ())][:1]


def _claim(opinion: Opinion, point: Criterion) -> dict[str, str]:
    """What is said of a point."""
    is_covered = bool(opinion.levels[point.id])
    claim = {"status": STATUSES[is_covered]}
    if point.evidence != "none":
        claim["quote"] = "".join(_quotes(opinion, point)) if is_covered else ""
    return claim


def _excess(request: Request) -> int:
    """Characters by which a prompt with its longest reply would outgrow the context."""
    context = request.data.bundle.protocol.context_tokens
    if context is None:
        return 0
    used = sum(len(message.content) for message in request.messages)
    return used - CHARACTERS_PER_TOKEN * int(context - request.sampling.longest)


def _without_memory(request: Request) -> Request:
    """A repair without what memory showed."""
    (system, user), sizes = request.messages, dict(request.characters)
    if "memory" not in sizes:
        return request
    content = user.content[sizes.pop("memory") + 1 :]
    question = replace(request.data, shown=())
    return replace(request, messages=(system, Message("user", content)), data=question, memory=(), characters=sizes)
