"""The forms of tools' logs as data, a file each in `forms/`. A path names its root first: `log` is the document, `case`
one of its cases, `verdict` one verdict on it, `key` the verdict's name where verdicts have one. Of several paths the
first that holds something counts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml

Paths = tuple[str, ...]
TOOLS = (
    "inspect_ai",
    "promptfoo",
    "deepeval",
    "lm_eval",
    "openai_evals",
    "openai_graders",
    "langfuse",
    "phoenix",
    "langsmith",
    "mlflow",
    "verifiers",
    "trl",
)
"""The files, in the order in which they are tried."""


class LogForm(Frozen):
    """How one tool's log is told and read."""

    tool: str
    told_by: Paths
    """Paths that hold something: of the document, or of one of its first cases; `like:` a pattern of a case's keys.
    Alternatives are joined by '|'."""
    columns: Mapping[str, Paths] = {}
    """Column of `VERDICTS` → where it is. `draw` tells several answers to a case apart, `error` why there is none,
    `person` is what is said of a verdict that a person gave, `rater` who."""
    cases: Paths = ("log",)
    """The list of cases as the tool writes it; none for a file that only tells of those beside it in its folder."""
    read_cases: str | None = None
    """The list of cases once `prepare` has worked; as the tool writes it where not given."""
    verdicts: str = "case"
    """The verdicts on a case: a list, an object by criterion, or the case itself; or, where `like:` stands first, a
    pattern of the case's keys whose group is the criterion."""
    texts: bool = False
    """Whether it is a file of traces without verdicts: it holds question and answer of those beside it, by
    `reference`."""
    judge: Mapping[str, Paths] = {}
    """'model', 'prompt', 'rubric' and 'settings' → where."""
    version: Paths = ()
    known: Paths = ()
    """Beginnings of versions that were looked at; others are remarked upon."""
    scale: tuple[float, float] | None = None
    """Where the tool says that scores lie."""
    people: Paths = ()
    """Words of `person` that say that a person gave it, in lower case."""
    prepare: str | None = None
    """A function of `prepared` that makes the document, with the one that tells of it, one that paths can read."""


class _Forms(Frozen):
    forms: tuple[LogForm, ...]


@cache
def forms() -> tuple[LogForm, ...]:
    """All forms, in the order in which they are tried."""
    folder = Path(__file__).with_name("forms")
    files = [folder / f"{name}.yaml" for name in TOOLS]
    return tuple(form for file in files for form in parse(_Forms, {"forms": read_yaml(file)}, file).forms)


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
