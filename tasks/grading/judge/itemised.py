"""Contracts that decide item by item (criteria, or traits), checked and mended item by item: a repair asks only for the
items that failed, and what was valid is carried over by code, so that no later reply can change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.extract import said
from rubricflow.tasks.core.llm.request import IdentityKey, Message, Reply, Request
from rubricflow.tasks.grading.judge import mend
from rubricflow.tasks.grading.judge.mend import NOT_READ, SEMANTIC, incomplete, kind_of, next_role, unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import Answer, Question
from rubricflow.tasks.grading.judge.schema import citing
from rubricflow.tasks.grading.judge.unit_names import names_of

Choose = Callable[[int], int]
"""The level that counts, from the stated one."""


def _unchanged(entry: Any, item: Criterion, choose: Choose) -> Any:
    return entry


class Contract(NamedTuple):
    """What an itemised protocol says of its artifact `{key: {item: ...}}`."""

    key: str
    """The key of the object that holds the items."""
    items: Callable[[Question], tuple[Criterion, ...]]
    """The items that a question asks for, as criteria."""
    judge: Callable[[Any, tuple[Criterion, ...], Question], Checked[Any]]
    """What the object under the key is worth as the answer on these items; violations are `kind:item`."""
    narrowed: Callable[[Question, frozenset[str]], dict[str, Any]]
    """The fields of a question that asks only for the items of these ids."""
    schema: Callable[[Question], dict[str, Any]]
    """The contract of the items that a question asks for, as JSON Schema."""
    restated: Callable[[Any, Criterion, Choose], Any] = _unchanged
    """The entry of an item with the level chosen in place of the stated one; as it is where there is none."""


class Settled(NamedTuple):
    """What earlier attempts brought: all items of the part, and the reply's entries for those that could be used."""

    items: tuple[Criterion, ...]
    entries: Mapping[str, Any]
    """Item → its entry under the contract's key."""


def check(contract: Contract, request: Request, reply: Reply) -> Checked[Any]:
    """What a reply is worth: that of a repair together with what was settled before.

    A repair in whose reply nothing is read leaves what was settled, and says why next to what is still wrong with it.
    Of a reply that breaks off the items that are whole count, and `incomplete` stands beside those that are missing.
    """
    question: Question = request.data
    artifact, note = _read(contract, request, reply)
    settled: Settled | None = question.settled
    if settled is None:
        if artifact is None:
            return Checked(None, (unread(note),))
        checked = contract.judge(artifact[contract.key], contract.items(question), question)
    elif artifact is None:
        checked = contract.judge(settled.entries, settled.items, question)
        return Checked(checked.value, (unread(note), *checked.violations))
    else:
        checked = contract.judge(_merged(contract, question, artifact[contract.key]), settled.items, question)
    return incomplete(checked, note)


def repair(contract: Contract, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
    """The request for the items that failed, or for all where nothing could be read; None where the bundle's budgets
    are spent. Where a failed quote is only counted, nothing is wrong with it that a repair should mend."""
    question: Question = request.data
    last = history[-1]
    violations = mendable(last.checked.violations, question.bundle)
    checked = Checked(last.checked.value, violations)
    role = next_role([*history[:-1], replace(last, checked=checked)], question.bundle.protocol.repair)
    if role is None:
        return None
    kind = "contract" if role == "contract_repair" else "semantic"
    mine = tuple(violation for violation in violations if kind_of((violation,)) == kind)
    failed = {violation.partition(":")[2] for violation in mine}
    items = contract.items(question)
    names = tuple(item.id for item in items if item.id in failed) or tuple(item.id for item in items)
    entries = _usable_entries(contract, last)
    settled = Settled(items, entries) if entries else None
    narrowed = replace(question, **contract.narrowed(question, frozenset(names)), role=role, settled=settled)
    text = mend.task(role, names, mine, said(last.reply.text))
    return follow_up(request, narrowed, contract.schema(narrowed), names, text)


def follow_up(
    first: Request, question: Question, schema: Mapping[str, Any] | None, mends: tuple[str, ...], text: str
) -> Request:
    """A repair of a first request: the same messages, so that an engine's prefix cache holds them, and then `text`.

    schema: of the repair, where the first request had one.
    """
    system, user = first.messages
    names = names_of(IdentityKey(question.bundle))
    cited = None if first.schema is None or schema is None else citing(schema, question.units, names)
    return replace(
        first,
        messages=(system, Message("user", f"{user.content}\n{text}")),
        schema=cited,
        role=question.role,
        data=question,
        data_digest=question.digest,
        mends=mends,
        characters={**first.characters, "repair": len(text)},
    )


def mendable(violations: Sequence[str], bundle: Bundle) -> tuple[str, ...]:
    """The violations that a repair may mend: an answer that nobody asked for is passed over, and where the bundle only
    counts failed quotes, or has irrelevant ones demoted without a word, they stand."""
    passed = {"unknown_criterion"} | (SEMANTIC if bundle.protocol.failed_quote == "count" else set())
    rule = bundle.protocol.relevance
    passed |= {"irrelevant"} if rule is None or rule.failed != "repair" else set()
    return tuple(violation for violation in violations if violation.partition(":")[0] not in passed)


def signals(bundle: Bundle, answers: Sequence[Answer]) -> dict[str, float]:
    """`contract_fail` where an answer still breaks its contract when the budgets are spent, and
    `semantic_exhausted_but_accepted` where it is accepted though its evidence could not be mended; nothing where the
    bundle has no budgets."""
    budgets = bundle.protocol.repair
    if budgets is None:
        return {}
    failures: dict[str, float] = {}
    for _, call in answers:
        # A call that failed after a usable one leaves that one standing.
        usable = [attempt for attempt in call.attempts if attempt.checked.value is not None]
        last = usable[-1] if usable else call.attempts[-1]
        open_violations = [v for v in mendable(last.checked.violations, bundle) if v != "no_reply"]
        if last.checked.value is not None:
            open_violations = [v for v in open_violations if v.partition(":")[0] not in NOT_READ]
        kinds = {kind_of((violation,)) for violation in open_violations}
        if "contract" in kinds:
            failures["contract_fail"] = 1.0
        elif "semantic" in kinds and budgets.semantic:
            failures["semantic_exhausted_but_accepted"] = 1.0
    return failures


def probabilities(call: RequestOutcome[Any], items: Sequence[Criterion]) -> dict[str, list[float]]:
    """Probability of each level of the items, where the rater gives them: of the last reply that was asked for one."""
    levels = {item.id: len(item.levels) for item in items}
    latest: dict[str, list[float]] = {}
    for attempt in call.attempts:
        for name in attempt.request.mends:
            latest.pop(name, None)
        by_name = attempt.reply.level_probabilities or {}
        latest |= {name: likely for name, likely in by_name.items() if len(likely) == levels.get(name)}
    return latest


def _read(contract: Contract, request: Request, reply: Reply) -> tuple[dict[str, Any] | None, str | None]:
    """The artifact, with the levels that count in place of the stated ones, and how it was found."""
    artifact, note, _ = verdict_in(request, reply, frozenset({contract.key}))
    protocol, probabilities = request.data.bundle.protocol, reply.level_probabilities
    if artifact is None or not probabilities or protocol.level == "stated":
        return artifact, note
    if not isinstance(artifact[contract.key], dict):
        return artifact, note
    entries = dict(artifact[contract.key])
    for item in contract.items(request.data):
        likely = probabilities.get(item.id, ())
        if item.id in entries and len(likely) == len(item.levels):
            entries[item.id] = contract.restated(entries[item.id], item, partial(level, protocol, likely))
    return {**artifact, contract.key: entries}, note


def only_criteria(question: Question, names: frozenset[str]) -> dict[str, Any]:
    """A question's field `criteria`, narrowed to these."""
    return {"criteria": tuple(criterion for criterion in question.criteria if criterion.id in names)}


def _usable_entries(contract: Contract, attempt: Attempt[Any]) -> dict[str, Any]:
    """All entries that can be used after an attempt."""
    question: Question = attempt.request.data
    artifact, _ = _read(contract, attempt.request, attempt.reply)
    if artifact is None:
        return dict(question.settled.entries) if question.settled else {}
    return _merged(contract, question, artifact[contract.key])


def _merged(contract: Contract, question: Question, new: Any) -> dict[str, Any]:
    """What was settled, with those items of a reply that were asked for and can be used."""
    merged = dict(question.settled.entries) if question.settled else {}
    if isinstance(new, dict):
        for item in contract.items(question):
            if item.id in new and _is_usable(contract, item, new[item.id], question):
                merged[item.id] = new[item.id]
    return merged


def _is_usable(contract: Contract, item: Criterion, entry: Any, question: Question) -> bool:
    """Whether an item's entry keeps the contract, whatever its evidence is worth."""
    violations = contract.judge({item.id: entry}, (item,), question).violations
    return not violations or kind_of(violations) == "semantic"


# Which of the levels or scores that a contract admits counts, by the bundle's `level`: the one that the reply
# states, the one that was likeliest where it was written, or the expected one.


def level(protocol: Protocol, likely: Sequence[float] | None, stated: int) -> int:
    """The level that counts: the likeliest unless stated ones do, of several as likely the stated or else the lowest.

    likely: probability of each level, None where it is not known. An expected level is no level, so that the likeliest
    stands for it.
    """
    if protocol.level == "stated" or not likely:
        return stated
    most = max(likely)
    return stated if likely[stated] == most else likely.index(most)


def value(protocol: Protocol, likely: Sequence[float] | None, stated: float, scale: Scale) -> float:
    """The score that counts, within the scale; an expected one need not be on a step of it.

    likely: probability of each score of the scale, lowest first.
    """
    if protocol.level == "stated" or not likely or len(likely) != scale.levels:
        return stated
    if protocol.level == "expected":
        weighted_steps = sum(step * chance for step, chance in enumerate(likely))
        return scale.min + scale.step * weighted_steps / sum(likely)
    step = level(protocol, likely, round((stated - scale.min) / scale.step))
    return round(scale.min + scale.step * step, 12)


def confidence(protocol: Protocol, likely: Sequence[float], stated: float, scale: Scale) -> float:
    """Probability of the score that counts; of the likeliest where an expected one counts, which has none."""
    return max(likely) if protocol.level == "expected" else likely[round((stated - scale.min) / scale.step)]
