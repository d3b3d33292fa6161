"""The forms of tools' logs as data. A path names its root first: `log` is the document, `case` one of its cases,
`verdict` one verdict on it, `key` the verdict's name where verdicts have one. Of several paths the first that holds
something counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Paths = tuple[str, ...]


class Form(NamedTuple):
    """How one tool's log is told and read."""

    tool: str
    told_by: Paths
    """Paths that hold something: of the document, or of one of its first cases. Alternatives are joined by '|'."""
    columns: Mapping[str, Paths]
    """Column of `VERDICTS` → where it is. `draw` tells several answers to a case apart, `error` why there is none,
    `person` is what is said of a verdict that a person gave, `rater` who."""
    cases: str = "log"
    """The list of cases, or the object of them."""
    verdicts: str = "case"
    """The verdicts on a case: a list, an object by criterion, or the case itself; or, where `like:` stands first, a
    pattern of the case's keys whose group is the criterion."""
    judge: Mapping[str, Paths] = {}
    """'model', 'prompt', 'rubric' and 'settings' → where."""
    version: Paths = ()
    known: Paths = ()
    """Beginnings of versions that were looked at; others are remarked upon."""
    scale: tuple[float, float] | None = None
    """Where the tool says that scores lie."""
    people: Paths = ()
    """Words of `person` that say that a person gave it, in lower case."""
    prepare: Callable[[Any], Any] | None = None
    """What makes the document one that paths can read."""


def _by_name(listed: str, name: str, log: Any) -> dict[str, Any]:
    return {str(one.get(name)): one for one in log.get(listed) or () if isinstance(one, dict)}


def _inspect(log: dict[str, Any]) -> dict[str, Any]:
    """Scorers by name, so that a score finds its own; long texts that samples keep aside put back."""
    scorers = _by_name("scorers", "name", log["eval"])
    for sample in log.get("samples") or ():
        aside = sample.get("attachments") or {}
        whole = _put_back({key: sample.get(key) for key in ("input", "messages", "output", "scores")}, aside)
        sample |= whole if aside else {}
        for name, score in (sample.get("scores") or {}).items():
            score["scorer"] = scorers.get(name) or {}
    return log


def _put_back(node: Any, aside: Mapping[str, str]) -> Any:
    if isinstance(node, str) and node.startswith("attachment://"):
        return aside.get(node.removeprefix("attachment://"), node)
    if isinstance(node, list):
        return [_put_back(one, aside) for one in node]
    return {key: _put_back(one, aside) for key, one in node.items()} if isinstance(node, dict) else node


FORMS: tuple[Form, ...] = (
    Form(
        tool="inspect_ai",
        told_by=("log.eval.task", "log.eval.model", "case.scores"),
        cases="log.samples",
        verdicts="case.scores",
        columns={
            "case_id": ("case.id",),
            "draw": ("case.epoch",),
            "subject": ("log.eval.model",),
            "group": ("log.eval.task",),
            "criterion": ("key",),
            "verdict": ("verdict.value",),
            "explanation": ("verdict.explanation",),
            "question": ("case.input",),
            "answer": ("case.output.completion", "case.messages"),
            "turns": ("case.messages",),
            "error": ("case.error.message", "verdict.metadata.unscored_reason", "verdict.reason"),
            "input_tokens": ("case.output.usage.input_tokens",),
            "output_tokens": ("case.output.usage.output_tokens",),
            "reference": ("case.uuid",),
        },
        judge={
            "model": (
                "verdict.scorer.options.model.model",
                "verdict.scorer.options.model",
                "log.eval.model_roles.grader",
            ),
            "prompt": ("verdict.scorer.options.template", "verdict.metadata.grading.0.content"),
            "rubric": ("verdict.scorer.options.instructions",),
            "settings": ("verdict.scorer.options",),
        },
        version=("log.eval.packages.inspect_ai",),
        known=("0.3.",),
        prepare=_inspect,
    ),
)
"""In the order in which they are tried."""

PLAIN: Mapping[str, tuple[str, ...]] = {
    "case_id": (
        "answer_id",
        "case_id",
        "id",
        "response_id",
        "sample_id",
        "example_id",
        "item_id",
        "doc_id",
        "uid",
        "key",
        "case",
    ),
    "criterion": ("criterion", "criterion_id", "criteria", "metric", "metric_name", "dimension", "aspect", "trait"),
    "score": ("score", "judge_score", "points", "rating"),
    "verdict": (
        "verdict",
        "judge_verdict",
        "judge",
        "judgment",
        "judgement",
        "decision",
        "label",
        "judge_label",
        "passed",
        "pass",
        "grade",
        "value",
        "result",
    ),
    "explanation": (
        "explanation",
        "rationale",
        "reason",
        "reasoning",
        "justification",
        "judge_explanation",
        "judge_reason",
        "comment",
        "critique",
        "feedback",
    ),
    "question": ("question", "prompt", "input", "query", "instruction", "task_input"),
    "answer": (
        "answer",
        "response",
        "output",
        "completion",
        "actual_output",
        "prediction",
        "model_output",
        "student_answer",
        "summary",
        "text",
        "generation",
    ),
    "turns": ("turns", "messages", "conversation", "trajectory"),
    "subject": ("subject", "model", "system", "policy", "agent", "variant", "subject_model"),
    "group": ("group", "class", "slice", "task", "category", "subset", "topic", "dataset"),
    "sample": ("sample", "repetition", "repeat", "judge_run"),
    "draw": ("draw", "epoch", "attempt"),
    "error": ("error", "judge_error"),
    "judge model": ("judge_model", "judge_name", "grader_model", "evaluator_model"),
    "judge prompt": ("judge_prompt", "prompt_version", "judge_prompt_version", "judge_version", "evaluator_version"),
    "judge rubric": ("rubric", "rubric_version"),
    "judge settings": ("judge_settings", "judge_temperature"),
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
}
"""A plain table: column → names that its column may have, in any case, the likelier ones first."""
WORDS: Mapping[str, float] = {
    **dict.fromkeys(
        (
            "yes",
            "true",
            "pass",
            "passed",
            "correct",
            "met",
            "satisfied",
            "supported",
            "good",
            "c",
            "relevant",
            "factual",
            "faithful",
        ),
        1.0,
    ),
    **dict.fromkeys(
        (
            "no",
            "false",
            "fail",
            "failed",
            "incorrect",
            "wrong",
            "unmet",
            "not met",
            "unsatisfied",
            "not satisfied",
            "unsupported",
            "bad",
            "i",
            "n",
            "irrelevant",
            "unrelated",
            "hallucinated",
            "unfaithful",
        ),
        0.0,
    ),
    **dict.fromkeys(("partial", "partially correct", "partly", "partially", "p"), 0.5),
}
"""Verdicts in words, in lower case; C, I, P and N are inspect_ai's, with its own numbers."""
