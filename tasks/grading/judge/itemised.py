"""How replies are checked and mended: contracts that decide item by item, and contracts that state one score.

A repair of an itemised contract asks only for the items (criteria, or traits) that failed. What was valid is carried
over by code, so that no later reply can change it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.extract import said
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.grading.judge import mend
from rubricflow.tasks.grading.judge.mend import NOT_READ, incomplete, kind_of, mendable, next_role, unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import Answer, JudgingProtocol, Part, Question
from rubricflow.tasks.grading.judge.schema import NO, YES, citing, names_of
from rubricflow.tasks.grading.judge.score import is_off_step

Choose = Callable[[int], int]
"""The level that counts, from the stated one."""


class Settled(NamedTuple):
    """What earlier attempts brought: all items of the part, and the reply's entries for those that could be used."""

    items: tuple[Criterion, ...]
    entries: JsonObject
    """Item → its entry under the contract's key."""


class ItemisedProtocol(JudgingProtocol):
    """A protocol whose artifact is `{key: {item: ...}}`."""

    key: str
    """The key of the object that holds the items."""
    field = "criteria"
    """The question's field that holds what is asked for."""

    @abstractmethod
    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        """What the object under the key is worth as the answer on these items; violations are `kind:item`."""

    def items(self, question: Question) -> tuple[Criterion, ...]:
        """What a question asks for, as criteria."""
        return question.criteria

    def restated(self, entry: Any, item: Criterion, choose: Choose) -> Any:
        """The entry of an item with the level chosen in place of the stated one; as it is where there is none."""
        return entry

    @property
    def keys(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.key})

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """What a reply is worth: that of a repair together with what was settled before.

        A repair in whose reply nothing is read leaves what was settled, and names why next to what is still wrong.
        Of a reply that breaks off the items that are whole count, and `incomplete` stands next to those that are
        missing.
        """
        question: Question = request.data
        artifact, note = self._read(request, reply)
        settled: Settled | None = question.settled
        if artifact is None:
            if settled is None:
                return Checked(None, (unread(note),))
            checked = self.judge(settled.entries, settled.items, question)
            return Checked(checked.value, (unread(note), *checked.violations))
        if settled is None:
            return incomplete(self.judge(artifact[self.key], self.items(question), question), note)
        return incomplete(self.judge(self._merged(question, artifact), settled.items, question), note)

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        """The request for the items that failed, or for all where nothing could be read; None where the bundle's
        budgets are spent, or nothing failed that a repair may mend."""
        question: Question = request.data
        last = history[-1]
        role = next_role(history, question.bundle.protocol)
        if role is None:
            return None
        violations = mendable(last.checked.violations, question.bundle.protocol)
        mine = tuple(v for v in violations if role.startswith(kind_of((v,))))
        failed = {violation.partition(":")[2] for violation in mine}
        items = self.items(question)
        names = tuple(item.id for item in items if item.id in failed) or tuple(item.id for item in items)
        artifact, _ = self._read(last.request, last.reply)
        entries = self._merged(last.request.data, artifact or {})
        settled = Settled(items, entries) if entries else None
        asked = getattr(question, self.field) or items
        narrowed = replace(question, role=role, settled=settled)
        narrowed = replace(narrowed, **{self.field: tuple(one for one in asked if one.id in names)})  # type: ignore[arg-type]
        schema = self.schema(question.bundle, Part(question.part, narrowed.criteria, narrowed.traits))
        return follow_up(request, narrowed, schema, names, mend.task(role, names, mine, said(last.reply.text)))

    def _read(self, request: Request, reply: Reply) -> tuple[JsonDict | None, str | None]:
        """The artifact, with the levels that count in place of the stated ones, and how it was found. An item that
        stands next to the key, and not under it, counts: models place the last of many so. Prose there is none: it may
        be what a model says of the whole, under a name that is an item's too (rationale)."""
        artifact, note, _ = verdict_in(request, reply, self.keys)
        if note == "missing_keys" and request.mends:
            # A strong model answers a repair with the items alone, without the key around them.
            bare, note, _ = verdict_in(replace(request, keys=frozenset(request.mends)), reply)
            artifact = {self.key: bare} if bare else None
        protocol = request.data.bundle.protocol
        probabilities = reply.level_probabilities or {}
        if artifact is None or not isinstance(artifact[self.key], dict):
            return artifact, note
        entries = dict(artifact[self.key])
        for item in self.items(request.data):
            if item.id in artifact and item.id != self.key:
                apart = artifact[item.id]
                if not isinstance(apart, str) or apart in (YES, NO):
                    entries.setdefault(item.id, apart)
            likely = probabilities.get(item.id, ())
            if item.id in entries and len(likely) == len(item.levels) and protocol.level != "stated":
                entries[item.id] = self.restated(entries[item.id], item, partial(level, protocol, likely))
        return {**artifact, self.key: entries}, note

    def _merged(self, question: Question, artifact: JsonObject) -> JsonDict:
        """What was settled, with the items of an artifact that were asked for and keep the contract, whatever their
        evidence is worth."""
        merged = dict(question.settled.entries) if question.settled else {}
        new = artifact.get(self.key)
        for item in self.items(question):
            if isinstance(new, dict) and item.id in new:
                violations = self.judge({item.id: new[item.id]}, (item,), question).violations
                if not violations or kind_of(violations) == "semantic":
                    merged[item.id] = new[item.id]
        return merged


def follow_up(
    first: Request, question: Question, schema: JsonObject | None, mends: tuple[str, ...], text: str
) -> Request:
    """A repair of a first request: the same messages, so that an engine's prefix cache holds them, and then `text`.

    schema: of the repair, used where the first request had one.
    """
    system, user = first.messages
    if first.schema is None or schema is None:
        cited = None
    else:
        cited = citing(schema, question.units, names_of(question.bundle))
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


def signals(bundle: Bundle, answers: Sequence[Answer]) -> dict[str, float]:
    """`contract_fail` where an answer still breaks its contract when the budgets are spent, and
    `semantic_exhausted_but_accepted` where it is accepted though its evidence could not be mended; nothing where the
    bundle has no budgets."""
    budgets = bundle.protocol.repair
    if budgets is None:
        return {}
    failures = {}
    for _, call in answers:
        # A call that failed after a usable one leaves that one in force.
        usable = [attempt for attempt in call.attempts if attempt.checked.value is not None]
        last = usable[-1] if usable else call.attempts[-1]
        passed = {"no_reply"} | (NOT_READ if usable else frozenset())
        open_violations = mendable(last.checked.violations, bundle.protocol)
        kinds = {kind_of((v,)) for v in open_violations if v.partition(":")[0] not in passed}
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


def mean_probability(likely: Mapping[str, Sequence[float]], levels: Mapping[str, int]) -> float | None:
    """The confidence: mean probability of the decided levels; None where none has probabilities."""
    chances = [of_levels[levels[name]] for name, of_levels in likely.items() if name in levels]
    return sum(chances) / len(chances) if chances else None


# Contracts that state one score, which is mended as a whole.

FIELD = "score"


def check_score(request: Request, reply: Reply, scale: Scale, on_step: bool = False) -> Checked[float]:
    """The number that the reply states, within the scale, or what counts in its place, see `value`; on_step: it has to
    be a step of the scale.

    Violations: those of `unread`, `malformed_score`, `score_off_scale`, `score_off_step`.
    """
    artifact, note, _ = verdict_in(request, reply)
    if artifact is None:
        return Checked(None, (unread(note),))
    stated = artifact.get(FIELD)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return Checked(None, ("malformed_score",))
    if not scale.min - 1e-9 <= stated <= scale.max + 1e-9:
        return Checked(None, ("score_off_scale",))
    if on_step and is_off_step(stated, scale):
        return Checked(None, ("score_off_step",))
    likely = (reply.level_probabilities or {}).get(FIELD)
    return Checked(value(request.data.bundle.protocol, likely, float(stated), scale), ())


def repair_whole(request: Request, history: Sequence[Attempt[Any]], field: str) -> Request | None:
    """The same again with what failed of its one field; None where the bundle's budget is spent."""
    question: Question = request.data
    role = next_role(history, question.bundle.protocol)
    last = history[-1]
    if role is None:
        return None
    text = mend.task(role, (field,), last.checked.violations, said(last.reply.text))
    return follow_up(request, replace(question, role=role), request.schema, (field,), text)


def score_confidence(stated: Sequence[tuple[RequestOutcome[float], Scale]]) -> float | None:
    """Mean probability of the numbers stated, each on its scale; None where the rater gives none."""
    chances = []
    for call, scale in stated:
        likely = (call.attempts[-1].reply.level_probabilities or {}).get(FIELD, [])
        if call.value is not None and len(likely) == scale.levels:
            chances.append(confidence(call.request.data.bundle.protocol, likely, call.value, scale))
    return sum(chances) / len(chances) if chances else None


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
