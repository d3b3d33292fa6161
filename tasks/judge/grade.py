"""Grading a batch: ask, verify, score. Pure but for the backend; the door and the trainers both call it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from operator import not_
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge import prompt, schema
from tasks.judge.question import Question
from tasks.judge.rows import Called, Case, Graded, Grading, Judged, Rater
from tasks.judge.score import Scored, is_tie, round_half_up, score, trait_means
from tasks.judge.verify import Decision, Subject, Verdict, verify
from tasks.llm.ask import Asked, Checked, Wave, ask, never, quiet
from tasks.llm.extract import extract
from tasks.llm.replies import ReplyStore
from tasks.llm.request import Message, Reply, Request, Same, Sampling
from tasks.text.tokens import tokens

ALL = "all"
GREEDY = Sampling()
PROTOCOL_VERSION = 1
"""Goes up whenever the same replies would be verified or scored differently."""


def grade_batch(
    cases: Sequence[Case], rater: Rater, replies: ReplyStore, on_wave: Callable[[Wave], None] = quiet
) -> Graded:
    """Grade cases under their bundles; a case without enough words is settled without a call."""
    graded = Graded(rater)
    short = [too_short(case) for case in cases]
    todo = compress(cases, map(not_, short))
    asking = [(case, part, criteria) for case in todo for part, criteria in parts(case.bundle)]
    requests = [request(case, criteria) for case, _, criteria in asking]
    asked = iter(zip(asking, ask(requests, rater.backend, replies, check, never, on_wave), strict=True))
    for case, settled in zip(cases, short, strict=True):
        if settled:
            _precheck(graded, case)
            continue
        answers = [next(asked) for _ in parts(case.bundle)]
        graded.called += [Called(case, part, answer) for (_, part, _), answer in answers]
        answered = [(criteria, answer) for (_, _, criteria), answer in answers]
        if case.bundle.protocol.name == "dhs":
            _holistic(graded, case, answered[0][1])
        else:
            _checklist(graded, case, answered)
    return graded


def too_short(case: Case) -> bool:
    """Whether the response has fewer words than the protocol wants to see before it asks a judge."""
    return len(tokens(case.text)) < max(1, case.bundle.protocol.min_tokens)


def request(case: Case, criteria: tuple[Criterion, ...]) -> Request:
    """The request for these criteria of a case (none: one holistic score)."""
    bundle = case.bundle
    question = Question(bundle, criteria, case.text, case.units, case.item_id, case.question, case.context)
    return Request(
        messages=(
            _system(Same(bundle), Same(criteria), case.question, case.context),
            Message("user", prompt.response(case.text, case.units)),
        ),
        schema=_schema(Same(bundle), Same(criteria)),
        sampling=GREEDY,
        role="grade",
        keys=schema.CHECKLIST_KEYS if criteria else schema.HOLISTIC_KEYS,
        subject=case.response_id,
        data=question,
        data_digest=question.digest,
    )


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The verdict on a reply: the value is a `Verdict` for a checklist, a number for a holistic score."""
    artifact, note = extract(reply.text or "", request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    question: Question = request.data
    if question.criteria:
        subject = Subject.of(question.text, question.units, question.context)
        verdict = verify(artifact, question.bundle, question.criteria, subject)
        return Checked(verdict, verdict.violations)
    stated = artifact.get("score")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return Checked(None, ("malformed_score",))
    scale = question.bundle.scale
    if not scale.min - 1e-9 <= stated <= scale.max + 1e-9:
        return Checked(None, ("score_off_scale",))
    return Checked(float(stated), ())


@lru_cache(maxsize=1024)
def _system(bundle: Same[Bundle], criteria: Same[tuple[Criterion, ...]], question: str, context: str | None) -> Message:
    asked = criteria.value or bundle.value.criteria
    return Message("system", prompt.system(bundle.value, asked, question, context))


@lru_cache(maxsize=1024)
def _schema(bundle: Same[Bundle], criteria: Same[tuple[Criterion, ...]]) -> dict[str, Any]:
    return schema.checklist(criteria.value) if criteria.value else schema.holistic(bundle.value)


def parts(bundle: Bundle) -> list[tuple[str, tuple[Criterion, ...]]]:
    """What is asked for in one call each: (name of the part, its criteria; none for a holistic score)."""
    return _parts(Same(bundle))


@lru_cache(maxsize=1024)
def _parts(of: Same[Bundle]) -> list[tuple[str, tuple[Criterion, ...]]]:
    bundle = of.value
    match bundle.protocol.name:
        case "rulers":
            return [(ALL, bundle.criteria)]
        case "pointwise":
            return [(criterion.id, (criterion,)) for criterion in bundle.criteria]
        case "dhs":
            return [(ALL, ())]


def _checklist(graded: Graded, case: Case, answers: list[tuple[tuple[Criterion, ...], Asked[Any]]]) -> None:
    decisions: list[Decision] = []
    counts: Counter[str] = Counter()
    probabilities: dict[str, list[float]] = {}
    for criteria, answer in answers:
        verdict: Verdict | None = answer.value
        if verdict is None:
            decisions += [Decision(c.id, None, reason=_reason(answer)) for c in criteria]
            continue
        decisions += verdict.decisions
        counts.update(verdict.signals)
        given = answer.attempts[-1].reply.level_probabilities or {}
        probabilities |= {c.id: given[c.id] for c in criteria if len(given.get(c.id, ())) == len(c.levels)}
    scored = score(case.bundle, {d.criterion_id: d.level for d in decisions})
    signals = {**counts, **_features(case, decisions, probabilities, scored)}
    stated = {d.criterion_id: d.stated for d in decisions if d.stated is not None}
    chosen = [likely[stated[name]] for name, likely in probabilities.items() if name in stated]
    confidence = sum(chosen) / len(chosen) if chosen else None
    graded.judged.append(Judged(case, decisions, probabilities))
    reasons = {d.reason for d in decisions if d.reason}
    # One call that failed as a whole has one reason; otherwise the score lacks single criteria.
    whole = next(iter(reasons)) if len(reasons) == 1 and all(d.level is None for d in decisions) else scored.reason
    reason = whole if scored.score is None else None
    graded.gradings.append(Grading(case, scored, signals, confidence, reason))


def _features(
    case: Case, decisions: list[Decision], probabilities: dict[str, list[float]], scored: Scored
) -> dict[str, float]:
    """The calibration features: a level that stands is the expected one where there are probabilities."""
    tops = {c.id: c.top for c in case.bundle.criteria}
    shares = dict.fromkeys(tops, 0.0) if case.bundle.protocol.unscored == "zero" else {}
    for d in decisions:
        if d.level is None:
            continue
        likely = probabilities.get(d.criterion_id)
        expected = sum(i * p for i, p in enumerate(likely)) if likely and d.level == d.stated else float(d.level)
        shares[d.criterion_id] = expected / tops[d.criterion_id]
    features = {f"criterion.{name}": share for name, share in shares.items()}
    features |= {f"mean.{name}": mean for name, mean in trait_means(case.bundle, shares).items()}
    return features | {"tie": float(scored.tie)}


def _holistic(graded: Graded, case: Case, answer: Asked[Any]) -> None:
    stated, scale = answer.value, case.bundle.scale
    if stated is None:
        graded.gradings.append(Grading(case, Scored(None), {}, reason=_reason(answer)))
        return
    signals = {"tie": float(is_tie(stated, scale))}
    if abs(round_half_up(stated, scale) - stated) > 1e-9:
        signals["off_step"] = 1.0
    graded.gradings.append(Grading(case, Scored(stated), signals))


def _reason(answer: Asked[Any]) -> str:
    if answer.attempts[-1].reply.text is None:
        return "no_reply"
    kinds = {violation.partition(":")[0] for violation in answer.attempts[-1].checked.violations}
    return (
        "off_scale" if "score_off_scale" in kinds else "unreadable_reply" if "unreadable" in kinds else "invalid_reply"
    )


def _precheck(graded: Graded, case: Case) -> None:
    decided = case.bundle.criteria if parts(case.bundle)[0][1] else ()
    graded.judged.append(Judged(case, [Decision(c.id, 0) for c in decided], {}))
    graded.gradings.append(Grading(case, Scored(case.bundle.scale.min), {"precheck": 1.0}))
