"""Proof without a model that a bundle can be judged: prompts fill, the contract admits, the verifier separates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import jsonschema

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.quotes import shortened
from rubricflow.tasks.core.text.traces import Turn, trace_units, written
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.comparing import is_compared
from rubricflow.tasks.grading.judge.costs import NOBODY
from rubricflow.tasks.grading.judge.evidence import HOLDS, ground, subject_of
from rubricflow.tasks.grading.judge.grade import asked_about, asks_nobody, first_requests, grade_batch
from rubricflow.tasks.grading.judge.protocol import Opinion, Outcome, protocol_of
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.schema import MAX_QUOTE

_GOLD = "an answer that says everything that is asked for"
_FABRICATED = "words that nobody ever wrote in any answer"


class Opinionated:
    """Backend that puts one opinion into the words of whatever contract it is asked by, and notes what the contract's
    schema refuses of it."""

    name, model, batch_size, by_subject, reads_prose = "offline", "opinion", 64, False, False

    def __init__(self, opinion: Opinion) -> None:
        self.refused: list[str] = []
        self._opinion = opinion

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for index, request in enumerate(requests):
            artifact = protocol_of(request.data.bundle.protocol.name).artifact(request.data, self._opinion)
            # `jsonschema.validate` would look at the schema itself as well, which takes ten times as long.
            refusals = jsonschema.Draft202012Validator(request.schema or {}).iter_errors(artifact)
            self.refused += [error.message for error in refusals]
            yield index, Reply(text=json.dumps(artifact))


class Proof(NamedTuple):
    """What became of a case under an opinion: its outcome, and what was found wrong on the way."""

    outcome: Outcome
    refused: list[str]
    violations: list[str]


def prove_bundle(bundle: Bundle, question: str, context: str | None, reference: str | None) -> list[str]:
    """What does not hold, in words; empty where everything does.

    A made-up response is graded in full by raters with three opinions. One that reaches every point with quotes from
    the reference answer fits the JSON Schema of every request, verifies and earns the full score; one that reaches
    nothing earns the lowest; one that claims everything with fabricated quotes earns nothing that needs a quote. And
    every prompt fills.
    """
    # The response is the reference answer and a sentence that repeats neither question nor rubric.
    text = f"{reference}\n\n{_GOLD}." if reference else f"{_GOLD}."
    cut = units
    if bundle.protocol.units == "turns":  # every kind of turn and step says so
        text, cut = (
            written(Turn(kind, text) for kind in ("user", "thought", "call", "result", "assistant")),
            trace_units,
        )
    case = Case(
        response_id="proof",
        item_id="proof",
        text=text,
        units=tuple(cut(text)),
        question=question,
        context=context,
        bundle=bundle,
        bundle_id=bundle.bundle_id,
        reference_answer=reference,
    )
    while asks_nobody(case):
        text = f"{case.text} {_GOLD}."
        case = replace(case, text=text, units=tuple(cut(text)))
    try:
        if is_compared(case):  # a verdict rests on no level and no quote: all there is to prove is that prompts fill
            other = replace(case, response_id="proof-2", text=f"{case.text} {_GOLD}.")
            for comparison in asked_about([case, other]):
                first_requests(comparison, NOBODY)
            return []
        gold = _graded(case, best(case))
    except KeyError as error:
        return [f"prompt '{bundle.protocol.name}' leaves {error} open"]
    if gold.refused:
        return [f"the contract refuses a sound artifact: {problem}" for problem in gold.refused]
    problems = [f"gold artifact: {violation}" for violation in gold.violations]
    low, high, _ = bundle.scale.bounds
    score = gold.outcome.grading.scored.score
    if not problems and score != high:
        problems.append(f"all points reached give {score}, not the full score {high:g}")
    lowest = _graded(case, worst(case))
    score = lowest.outcome.grading.scored.score
    # Where a misconception needs a quote that the verifier refuses, other proofs show it.
    if not lowest.violations and score != low:
        problems.append(f"no point reached gives {score}, not the lowest score {low:g}")
    quotes = PROTOCOLS[bundle.protocol.name].quotes
    if quotes is not None:
        outcome = _graded(case, forged(case)).outcome
        demanding = {criterion.id for criterion in bundle.criteria if criterion.evidence != "none"}
        decided = [d for d in outcome.judged.decisions if d.criterion_id in demanding]
        credited = [d.criterion_id for d in decided if d.verified is not False]
        if quotes == "traits" and bundle.protocol.failed_quote != "count":
            scores = outcome.grading.scored.traits
            credited += [trait.id for trait in bundle.traits if scores.get(trait.id, trait.min) > trait.min]
        problems += [f"a fabricated quote is accepted for '{name}'" for name in credited]
    return problems


def best(case: Case) -> Opinion:
    """Every point reached, no misconception held, the highest scores: with quotes that hold."""
    return _opinion(case.bundle, lambda c: c.top if c.weight > 0 else 0, True, _quoting(case))


def worst(case: Case) -> Opinion:
    """No point reached, every misconception held, the lowest scores."""
    return _opinion(case.bundle, lambda c: 0 if c.weight > 0 else c.top, False, _quoting(case))


def forged(case: Case) -> Opinion:
    """Everything claimed, with a quote that nobody wrote."""
    return _opinion(case.bundle, lambda c: c.top, True, lambda c: {"unit": "s1", "quote": _FABRICATED})


def _opinion(
    bundle: Bundle, level: Callable[[Criterion], int], full: bool, quote: Callable[[Criterion], dict[str, str]]
) -> Opinion:
    evidence = {criterion.id: [quote(criterion)] for criterion in bundle.criteria}
    traits = {trait.id: trait.max if full else trait.min for trait in bundle.traits}
    return Opinion(
        levels={criterion.id: level(criterion) for criterion in bundle.criteria},
        evidence=evidence,
        traits=traits,
        score=bundle.scale.max if full else bundle.scale.min,
        because="stated",
    )


def _quoting(case: Case) -> Callable[[Criterion], dict[str, str]]:
    """Criterion → a quote of the response that holds: its longest sentence that does, since a reference answer may
    repeat the question or the rubric."""
    subject = subject_of(case)
    sentences = subject.turns or [unit for unit in case.units if unit.kind == "sentence"]
    longest = sorted(sentences, key=lambda unit: unit.start - unit.end)
    quotes = [(unit.unit_id, shortened(case.text[unit.start : unit.end], MAX_QUOTE)) for unit in longest]

    def quote(criterion: Criterion) -> dict[str, str]:
        holding = ((unit, words) for unit, words in quotes if ground(words, unit, criterion, subject)[0] in HOLDS)
        unit, words = next(holding, quotes[0])
        return {"unit": unit, "quote": words}

    return quote


def _graded(case: Case, opinion: Opinion) -> Proof:
    """The case graded by a rater of this opinion."""
    backend = Opinionated(opinion)
    with open_replies(":memory:") as replies:
        graded = grade_batch([case], Rater("proof", "simulated", backend), replies)
    attempts = chain.from_iterable(called.answer.attempts for called in graded.called)
    violations = list(chain.from_iterable(attempt.checked.violations for attempt in attempts))
    return Proof(Outcome(graded.judged[0], graded.gradings[0]), backend.refused, violations)
