"""AutoScore (baseline of Rulers, Table 7): one call collects what the response says on each criterion, a second gives
the score in view of it. The components are verified by nobody; the second prompt holds them as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question, Shown, ask
from rubricflow.tasks.grading.judge.protocols import dhs
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import Scored

EXTRACT, SCORE = Part("components"), Part("score")
KEYS = frozenset({"components"})
_components = cached_by_identity(contract.components)


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """The components; then, where every criterion has its own, the score."""
    match before:
        case []:
            return [EXTRACT]
        case [Answer(_, call)] if call.value is not None and len(call.value) == len(bundle.criteria):
            return [SCORE]
        case _:
            return []


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the components, or for the score in view of them, to which alone `shown` is added."""
    shape = schema(case.bundle, part)
    if part == EXTRACT:
        return ask(case, part, rater, shape, KEYS, role="extract", template="autoscore_extract")
    components = prompt.components(before[0].call.value or {})
    return ask(case, part, rater, shape, contract.HOLISTIC_KEYS, shown=shown, task=components)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """Criterion → component, of all that could be read; or the number that the reply states.

    Violations of components: `missing_component:` and `malformed_component:` with the criterion.
    """
    return (_CONTRACT if request.data.part == EXTRACT.name else dhs).check(request, reply)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The components that failed, or the score, once more."""
    return (_CONTRACT if request.data.part == EXTRACT.name else dhs).repair(request, history)


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The stated score, as in dhs; none without all components."""
    if len(answers) == 2:
        _, grading = dhs.outcome(case, answers[1:])
    else:
        grading = Grading(case, Scored(None), {}, reason=reason_of(answers[0].call))
    grading.signals |= itemised.signals(case.bundle, answers)
    return Outcome(Judged(case, (), {}), grading)


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as components, the first quote of each criterion that it finds; or as one score."""
    if question.part == SCORE.name:
        return dhs.artifact(question, opinion)
    components = {}
    for criterion in _criteria(question):
        quotes = opinion.evidence.get(criterion.id, ()) if opinion.levels[criterion.id] else ()
        components[criterion.id] = quotes[0]["quote"] if quotes else None
    return {"components": components}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the components, or of one score."""
    return _components(bundle.criteria) if part.name == EXTRACT.name else dhs.schema(bundle, part)


def _criteria(question: Question) -> tuple[Criterion, ...]:
    return question.criteria or question.bundle.criteria


def _judge(entries: Any, criteria: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    """A component is a text or null; texts are cut as the contract bounds them."""
    if not isinstance(entries, dict):
        return Checked({}, ("malformed_component:*",))
    components = {}
    violations = []
    for criterion in criteria:
        text = entries.get(criterion.id)
        if criterion.id not in entries:
            violations.append(f"missing_component:{criterion.id}")
        elif text is None or isinstance(text, str):
            components[criterion.id] = (text or "").strip()[: contract.MAX_QUOTE] or None
        else:
            violations.append(f"malformed_component:{criterion.id}")
    return Checked(components, tuple(violations))


_CONTRACT = itemised.Contract(
    "components", _judge, lambda question: contract.components(_criteria(question)), asked=_criteria, items=_criteria
)
