"""GradeAgentOps: one call for subscores, covered points and misconceptions, each point with the student's words; what
fails is mended field by field within two budgets (sections 2.3 and 2.4).

The contract's words are in gradesheet.py, what a reply claims in claims.py, the verifier in points.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge import mend
from tasks.judge.decision import Decision
from tasks.judge.evidence import subject_of
from tasks.judge.itemised import follow_up, mendable
from tasks.judge.memory import CHARACTERS_PER_TOKEN
from tasks.judge.numbered import numbered
from tasks.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Shown, build
from tasks.judge.protocols.gradeagentops import gradesheet, points
from tasks.judge.protocols.gradeagentops.claims import PUBLISHED, STATUSES, Claims, Demand, everything, merge, read
from tasks.judge.protocols.gradeagentops.likely import confidence, likely, restated, settled
from tasks.judge.protocols.gradeagentops.points import Settlement
from tasks.judge.question import Question
from tasks.judge.rows import Case, Grading, Judged, Rater
from tasks.judge.schema import MAX_PROSE
from tasks.judge.score import Scored, round_half_up, score
from tasks.judge.unscored import incomplete, reason_of
from tasks.llm.ask import Asked, Attempt, Checked
from tasks.llm.extract import extract
from tasks.llm.request import Message, Reply, Request, Same

_ITEMISED = frozenset({"points", "subscores"})


class Carried(NamedTuple):
    """What a repair's check carries over: the claims so far, and what the repair was asked for."""

    claims: Claims
    asked: Demand


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """The whole artifact, once."""
    return [] if before else [Part(ALL, bundle.criteria, numbered(bundle).traits)]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the whole artifact."""
    system = gradesheet.system(Same(case.bundle), case.question, case.context, case.reference_answer)
    keys = everything(case.bundle).fields
    return build(case, part, rater, system, schema(case.bundle, part), keys, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Settlement` on all that was claimed up to this reply; none where no artifact was ever read."""
    question: Question = request.data
    kept: Carried | None = question.kept
    artifact, note = _found(reply.text or "", request.keys, is_repair=kept is not None)
    if artifact is not None:
        artifact = restated(artifact, reply, question.bundle)
    unread = () if artifact is not None else (f"unreadable:{note}",)
    if kept:
        new = read(artifact or {}, kept.asked, question.bundle)
        claims = merge(kept.claims, new, kept.asked) if artifact is not None else kept.claims
    elif artifact is not None:
        claims = read(artifact, everything(question.bundle), question.bundle)
    else:
        return Checked(None, unread)
    verdict = points.settle(claims, question.bundle, subject_of(question))
    return incomplete(Checked(verdict, (*unread, *verdict.violations)), note)


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
        asked, kept, mends = everything(bundle), None, gradesheet.fields(bundle, everything(bundle))
    elif role == "contract_repair":
        asked = points.broken(bundle, verdict.claims)
        kept, mends = Carried(verdict.claims, asked), gradesheet.fields(bundle, asked)
    else:
        asked = points.ungrounded(bundle, verdict)
        kept, mends = Carried(verdict.claims, asked), tuple(c.id for c in _criteria(bundle, asked))
    called = gradesheet.names(bundle)
    told = [_told(violation, called) for violation in last.checked.violations if _is_of(role, violation)]
    question = replace(request.data, criteria=_criteria(bundle, asked), traits=asked.traits, role=role, kept=kept)

    def showing(previous: str) -> Request:
        task = mend.task(role, [called.get(name, name) for name in mends], told, previous)
        task += f"\n{gradesheet.form(bundle, asked)}"
        made = follow_up(request, question, gradesheet.schema(bundle, asked), mends, task)
        return replace(made, keys=asked.fields)

    return _fitting(showing, (last.reply.text or "")[: mend.MAX_PREVIOUS])


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """Decisions, subscores and the final score that they make; none where coverage or a subscore is not known."""
    ((_, answer),) = answers
    verdict: Settlement | None = answer.value
    if verdict is None:
        why = reason_of(answer)
        failed = {"contract_fail": 1.0} if why != "no_reply" else {}
        decisions = [Decision(c.id, None, reason=why) for c in case.bundle.criteria]
        return Outcome(Judged(case, decisions, {}), Grading(case, Scored(None), failed, reason=why))
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
    if _is_exhausted(answer, verdict):
        signals["semantic_exhausted_but_accepted"] = 1.0
    sure = confidence(verdict, probable, case.bundle)
    reason = reason_of(answer) if scored.score is None else None
    return Outcome(Judged(case, verdict.decisions, probable.criteria), Grading(case, scored, signals, sure, reason))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion in the words of the contract, as far as it was asked for."""
    bundle, kept = question.bundle, question.kept
    asked: Demand = kept.asked if kept else everything(bundle)
    gold, banned, traits = numbered(bundle)
    detected = [n for n in asked.misconceptions if opinion.levels[banned[n].id]]
    whole: dict[str, Any] = {
        "points": {str(n): _claim(opinion, gold[n]) for n in asked.points},
        "misconceptions": [
            {"misconception": n, "quote": quote} for n in detected for quote in _said(opinion, banned[n])
        ],
        "rationale": opinion.because[:MAX_PROSE],
        "subscores": {t.id: gradesheet.plain(round_half_up(opinion.traits[t.id], t)) for t in asked.traits},
    }
    if "final_score" in asked.fields:
        whole["final_score"] = gradesheet.plain(
            points.mean_of(bundle, {t.id: round_half_up(opinion.traits[t.id], t) for t in traits})
        )
    return {name: whole[name] for name in gradesheet.in_order(asked)}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The whole contract."""
    return _whole_schema(Same(bundle))


@lru_cache(maxsize=1024)
def _whole_schema(bundle: Same[Bundle]) -> dict[str, Any]:
    return gradesheet.schema(bundle.value, everything(bundle.value))


def _said(opinion: Opinion, criterion: Criterion) -> list[str]:
    """The quote for a criterion: the contract has room for one."""
    return [quote["quote"] for quote in opinion.evidence.get(criterion.id, ())][:1]


def _claim(opinion: Opinion, point: Criterion) -> dict[str, str]:
    """What is said of a point."""
    level = opinion.levels[point.id]
    quote = {} if point.evidence == "none" else {"quote": "".join(_said(opinion, point)) if level else ""}
    return {"status": STATUSES[bool(level)], **quote}


def _found(text: str, keys: frozenset[str], *, is_repair: bool) -> tuple[dict[str, Any] | None, str | None]:
    """The artifact with all that was asked for, in either form; failing that, one with some of it, so that what is
    there need not be asked for again: in a repair any field, in a first reply one that only this contract has."""
    published = keys - {"points"} | PUBLISHED if "points" in keys else keys
    some = sorted(keys | published) if is_repair else ("subscores", "points", "covered")
    artifact, why = extract(text, keys, _ITEMISED)
    note = why
    for names in (published, *(frozenset({name}) for name in some)):
        if artifact is not None:
            return artifact, note
        artifact, note = extract(text, names, _ITEMISED)
    return (artifact, note) if artifact is not None else (None, why)


def _fitting(showing: Callable[[str], Request], previous: str) -> Request:
    """The repair that shows a reply, made to fit the context as far as memory and that reply can be left out."""
    made = showing(previous)
    if _excess(made) > 0:
        made = _without_memory(made)
    if (over := _excess(made)) > 0:
        made = _without_memory(showing(previous[: max(0, len(previous) - over)]))
    return made


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
    left = user.content[sizes.pop("memory") + 1 :]
    question = replace(request.data, shown=())
    return replace(request, messages=(system, Message("user", left)), data=question, memory=(), characters=sizes)


def _criteria(bundle: Bundle, asked: Demand) -> tuple[Criterion, ...]:
    gold, banned, _ = numbered(bundle)
    chosen = {gold[n].id for n in asked.points} | {banned[n].id for n in asked.misconceptions}
    return tuple(criterion for criterion in bundle.criteria if criterion.id in chosen)


def _is_of(role: mend.Role, violation: str) -> bool:
    """Whether a repair of this role is told of a violation: of its own kind, and that nothing could be read."""
    is_semantic = mend.kind_of((violation,)) == "semantic"
    return is_semantic == (role == "semantic_repair") or violation.startswith("unreadable")


def _told(violation: str, names: dict[str, str]) -> str:
    """A violation in the words of the contract."""
    kind, separator, what = violation.partition(":")
    is_criterion = kind in mend.SEMANTIC or kind.endswith("_point")
    return kind + separator + (names.get(what, what) if is_criterion else what)


def _is_exhausted(answer: Asked[Any], verdict: Settlement) -> bool:
    """Whether evidence still fails after all the semantic repairs that there were."""
    mended = any(attempt.request.role == "semantic_repair" for attempt in answer.attempts)
    fails = any(mend.kind_of((violation,)) == "semantic" for violation in verdict.violations)
    return mended and fails and answer.attempts[-1].reply.text is not None
