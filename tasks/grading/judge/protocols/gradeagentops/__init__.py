"""GradeAgentOps: one call for subscores, covered points and misconceptions, each point with the student's words; what
fails is mended field by field within two budgets (sections 2.3 and 2.4).

The contract and what a reply claims are in contract.py, the verifier and the probabilities in settlement.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.extract import said
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, form
from rubricflow.tasks.core.text.tokens import whole
from rubricflow.tasks.grading.judge import mend
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.itemised import follow_up
from rubricflow.tasks.grading.judge.protocol import (
    ALL,
    Answer,
    JudgingProtocol,
    Opinion,
    Outcome,
    Part,
    Question,
    Shown,
    build,
    spare_characters,
    unscored,
)
from rubricflow.tasks.grading.judge.protocols.gradeagentops import contract, settlement
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import Claims, Demand, everything
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.schema import MAX_PROSE, numbered, numbered_names
from rubricflow.tasks.grading.judge.score import round_half_up, score

_LONGEST_NAME = 60
"""Characters of a field that nobody asked for, as a repair names it."""


class Carried(NamedTuple):
    """What a repair's check carries over: the claims so far, and what the repair was asked for."""

    claims: Claims
    demand: Demand


class GradeAgentOpsProtocol(JudgingProtocol):
    """The whole artifact in one call, and what failed of it in others."""

    keys = frozenset[str]()
    """Those of a request are the fields that it asks for."""

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(ALL, bundle.criteria, numbered(bundle).traits)]

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.schema(bundle, everything(bundle))

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """The points and misconceptions under the numbers of the contract, and the dimensions."""
        return contract.system(bundle, question, context, reference)

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        return replace(build(self, case, part, rater, shown), keys=everything(case.bundle).fields)

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """The `Settlement` on all that was claimed up to this reply; none where no artifact was ever read."""
        question: Question = request.data
        bundle, carried = question.bundle, question.settled
        # Either form with all that was asked for; failing that one with some of it, so that what is there need not be
        # asked for again: in a repair any field, in a first reply one that only this contract has.
        published = request.keys - {"points"} | contract.PUBLISHED if "points" in request.keys else request.keys
        some = request.keys | published if carried else {"subscores", "points", "covered"}

        def serves(artifact: JsonObject) -> bool:
            return not some.isdisjoint(artifact) or request.keys <= artifact.keys()

        artifact, note, _ = mend.verdict_in(request, reply, frozenset({"points", "subscores"}), serves)
        lost: tuple[str, ...] = () if artifact is not None else (mend.unread(note),)
        if artifact is not None and bundle.protocol.unknown_fields == "refused":
            lost = tuple(f"unknown_field:{name[:_LONGEST_NAME]}" for name in contract.unknown_fields(artifact, bundle))
            artifact = None if lost else artifact
        if artifact is not None:
            demand = carried.demand if carried else everything(bundle)
            claims = contract.read(settlement.restated(artifact, reply, bundle), demand, bundle)
            claims = contract.merge(carried.claims, claims, demand) if carried else claims
        elif carried:
            claims = carried.claims
        else:
            return Checked(None, lost)
        verdict = settlement.settle(claims, bundle, subject_of(question))
        return mend.incomplete(Checked(verdict, (*lost, *verdict.violations)), note)

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        """The request for what failed and nothing else, or for the whole artifact where none was ever read.

        A prompt that would outgrow the context leaves out what memory showed, and then the end of the reply that
        failed.
        """
        bundle: Bundle = request.data.bundle
        role = mend.next_role(history, bundle.protocol)
        checked = history[-1].checked
        if role is None:
            return None
        verdict: settlement.Settlement | None = checked.value
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
        for violation in mend.mendable(checked.violations, bundle.protocol):
            # It names what is of its own kind, and that nothing could be read.
            kind, separator, field = violation.partition(":")
            if f"{mend.kind_of((violation,))}_repair" == role or kind in mend.NOT_READ:
                is_criterion = kind in mend.SEMANTIC or kind.endswith("_point")
                failures.append(kind + separator + (names.get(field, field) if is_criterion else field))

        def showing(previous: str) -> Request:
            task = mend.task(role, [names.get(name, name) for name in mends], failures, previous)
            shape = contract.schema(bundle, demand)
            return replace(follow_up(request, question, shape, mends, f"{task}\n{form(shape)}"), keys=demand.fields)

        previous = said(history[-1].reply.text)[: mend.MAX_PREVIOUS]
        fitting = showing(previous)
        if spare_characters(fitting) < 0:
            fitting = _without_memory(fitting)
        if (spare := spare_characters(fitting)) < 0:
            fitting = _without_memory(showing(previous[: max(0, len(previous) + int(spare))]))
        return fitting

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """Decisions, subscores and the final score that they make; none where coverage or a subscore is not known."""
        ((_, answer),) = answers
        verdict: settlement.Settlement | None = answer.value
        if verdict is None:
            reason = mend.reason_of(answer)
            failed = {"contract_fail": 1.0} if reason != "no_reply" else {}
            return unscored(case, case.bundle.criteria, reason, failed)
        probable = settlement.likely(answer, case.bundle)
        verdict = settlement.settled(verdict, probable, case.bundle)
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
        confidence = settlement.confidence(verdict, probable, case.bundle)
        why = mend.reason_of(answer) if scored.score is None else None
        judged = Judged(case, verdict.decisions, probable.criteria)
        return Outcome(judged, Grading(case, scored, signals, confidence, why))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion in the words of the contract, as far as it was asked for: a quote for each criterion."""
        bundle = question.bundle
        demand: Demand = question.settled.demand if question.settled else everything(bundle)
        gold, banned, _ = numbered(bundle)
        quotes = {name: [quote["quote"] for quote in found][:1] for name, found in opinion.evidence.items()}
        subscores = {trait.id: round_half_up(opinion.traits[trait.id], trait) for trait in demand.traits}
        misconceptions = []
        for number in demand.misconceptions:
            name = banned[number].id
            if opinion.levels[name]:
                misconceptions += [{"misconception": number, "quote": quote} for quote in quotes.get(name, ())]
        points = {}
        for number in demand.points:
            point = gold[number]
            is_covered = bool(opinion.levels[point.id])
            points[str(number)] = {"status": contract.STATUSES[is_covered]}
            if point.evidence != "none":
                points[str(number)]["quote"] = "".join(quotes.get(point.id, ())) if is_covered else ""
        fields: JsonDict = {
            "points": points,
            "misconceptions": misconceptions,
            "rationale": opinion.because[:MAX_PROSE],
            "subscores": {name: whole(score) for name, score in subscores.items()},
        }
        if "final_score" in demand.fields:
            fields["final_score"] = whole(settlement.mean_of(bundle, subscores))
        return {name: fields[name] for name in contract.in_order(demand)}


PROTOCOL = GradeAgentOpsProtocol()


def _without_memory(request: Request) -> Request:
    """A repair without what memory showed."""
    (system, user), sizes = request.messages, dict(request.characters)
    if "memory" not in sizes:
        return request
    content = user.content[sizes.pop("memory") + 1 :]
    question = replace(request.data, shown=())
    return replace(request, messages=(system, Message("user", content)), data=question, memory=(), characters=sizes)
