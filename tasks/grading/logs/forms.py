"""The forms of tools' logs as data, a file each in `forms/`. A path names its root first: `log` is the document, `case`
one of its cases, `verdict` one verdict on it, `key` the verdict's name where verdicts have one. Of several paths the
first that holds something counts. What paths cannot say is a function here, of the document and of the one that
tells of it (null for none), which gives a document that they can read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.text.digest import text_digest

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
    """The list of cases as the tool writes it; none for a file that only tells of those next to it in its folder."""
    read_cases: str | None = None
    """The list of cases once `prepare` has worked; as the tool writes it where not given."""
    verdicts: str = "case"
    """The verdicts on a case: a list, an object by criterion, or the case itself; or, where `like:` stands first, a
    pattern of the case's keys whose group is the criterion."""
    texts: bool = False
    """Whether it is a file of traces without verdicts: it holds question and answer of those next to it, by
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


def inspect(log: Any, aside: Any) -> Any:
    """Scorers by name, so that a score finds its own; long texts that samples keep aside put back."""
    scorers = {one.get("name"): one for one in log["eval"].get("scorers") or ()}
    for sample in log.get("samples") or ():
        if kept := sample.get("attachments"):
            sample |= _put_back({key: sample.get(key) for key in ("input", "messages", "output", "scores")}, kept)
        for name, score in (sample.get("scores") or {}).items():
            score["scorer"] = scorers.get(name) or {}
    return log


def _put_back(node: Any, kept: Mapping[str, str]) -> Any:
    if isinstance(node, str) and node.startswith("attachment://"):
        return kept.get(node.removeprefix("attachment://"), node)
    if isinstance(node, list):
        return [_put_back(one, kept) for one in node]
    return {key: _put_back(one, kept) for key, one in node.items()} if isinstance(node, dict) else node


def promptfoo(log: Any, aside: Any) -> Any:
    """Results as cases, each with the verdicts of its assertions, or with the whole one where it has none."""
    results = log["results"] if isinstance(log, dict) else log
    cases = results["results"] if isinstance(results, dict) else results
    names = [(case.get("testCase") or {}).get("description") for case in cases]
    tests = {case.get("testIdx"): name for case, name in zip(cases, names, strict=True)}
    is_named = all(tests.values()) and len({*tests.values()}) == len(tests)
    prompts = len({case.get("promptIdx") for case in cases}) > len({str(case.get("provider")) for case in cases})
    for case, name in zip(cases, names, strict=True):
        provider = case.get("provider") or {}
        named = provider if isinstance(provider, str) else provider.get("label") or provider.get("id")
        prompt = case.get("prompt") or {}
        case["subject"] = f"{named}, {prompt.get('label') or case.get('promptIdx')}" if prompts else named
        case["case"] = name if is_named else case.get("testIdx")
        if case.get("failureReason", 2) != 2:  # a failed assertion is no error, though its reason stands there
            case.pop("error", None)
        graded = case.get("gradingResult") or {}
        seen = Counter[str]()
        kinds = Counter(_assertion(part) for part in graded.get("componentResults") or ())
        case["verdicts"] = []
        for part in graded.get("componentResults") or ():
            kind = _assertion(part)
            seen[kind] += 1
            assertion = part.get("assertion") or {}
            told = (case.get("testCase") or {}).get("options") or {}
            is_model = "renderedGradingPrompt" in (part.get("metadata") or {}) or assertion.get("type") in _MODEL_GRADED
            criterion = f"{kind} {seen[kind]}" if kinds[kind] > 1 else kind
            case["verdicts"].append(part | {"criterion": criterion} | ({"options": told} if is_model else {}))
        case["verdicts"] = case["verdicts"] or [{**graded, "score": case.get("score"), "pass": case.get("success")}]
    return {"cases": cases, "log": log if isinstance(log, dict) else {}}


_MODEL_GRADED = ("llm-rubric", "g-eval", "model-graded-closedqa", "model-graded-factuality", "factuality", "pi")


def _assertion(part: JsonObject) -> str:
    assertion = part.get("assertion") or {}
    return str(assertion.get("metric") or assertion.get("type") or "assertion")


def deepeval(log: Any, aside: Any) -> Any:
    """Test cases of one turn and of several in one list; the criteria of a metric without its score."""
    run = log.get("testRunData") or log
    cases = [*(run.get("testCases") or ()), *(run.get("conversationalTestCases") or ())]
    for metric in (metric for case in cases for metric in case.get("metricsData") or ()):
        metric["rubric"], scored, _ = str(metric.get("verboseLogs") or "").rpartition("\nScore:")
        metric["rubric"] = metric["rubric"] if scored and metric["rubric"].startswith("Criteria:") else None
        metric["settings"] = {name: metric.get(name) for name in ("threshold", "strictMode")}
    return {"cases": cases, "run": run}


def lm_eval(log: Any, aside: Any) -> Any:
    """Each record's metrics, with the name of the filter where there are several; the run's model and tasks from the
    file of results next to it."""
    filters = {record.get("filter") for record in log}
    for record in log:
        after = f", {record.get('filter')}" if len(filters) > 1 else ""
        values = {name: record.get(name) for name in record.get("metrics") or ()}
        record["verdicts"] = {f"{name}{after}": one for name, one in values.items() if isinstance(one, int | float)}
        replies = record.get("resps") or [[None]]
        said = replies[0][0] if isinstance(replies[0], list) and replies[0] else replies[0]
        record["said"] = said if isinstance(said, str) else None
        asked = record.get("arguments")
        first = next(iter(asked.values()), None) if isinstance(asked, dict) else asked and asked[0]
        record["asked"] = first.get("arg_0") if isinstance(first, dict) else first and first[0]
    configs = (aside or {}).get("configs") or {}
    one = next(iter(configs.values())) if len(configs) == 1 else {}
    rule = {name: one.get(name) for name in ("metric_list", "process_results") if one.get(name)}
    config = (aside or {}).get("config") or {}
    subject = " ".join(str(config[name]) for name in ("model", "model_args") if config.get(name)) or None
    version = (aside or {}).get("lm_eval_version")
    return {"cases": log, "rule": rule, "subject": subject, "version": version, "task": one.get("task")}


def openai_evals(log: Any, aside: Any) -> Any:
    """The events of one run as cases by sample: the first call answers, later ones judge."""
    spec: JsonDict = next((record["spec"] for record in log if "spec" in record), {})
    cases: JsonDict = {}
    for event in log:
        if event.get("sample_id") is None:
            continue
        case = cases.setdefault(event["sample_id"], {"id": event["sample_id"], "verdicts": {}})
        data = event.get("data") or {}
        if event.get("type") == "sampling":
            case["explanation" if "answer" in case else "answer"] = data.get("sampled")
            case.setdefault("prompt", data.get("prompt"))
        elif event.get("type") == "match":
            case["verdicts"]["match"] = data.get("correct")
        elif event.get("type") == "metrics":
            case["verdicts"] |= {name: one for name, one in data.items() if isinstance(one, int | float | bool)}
            case["verdicts"] |= {"choice": data["choice"]} if "choice" in data and "score" not in data else {}
    return {"cases": [*cases.values()], "spec": spec}


def listed(log: Any, aside: Any) -> Any:
    """The list in an answer of a server: {"data": [...]} or {"items": [...]}."""
    return log if isinstance(log, list) else log.get("data") or log.get("items") or log.get("scores") or []


_OF_ROLLOUT = ("step", "example_id", "id", "advantage", "total_ms", "generation_ms", "scoring_ms", "logprob", "seed")


def rollouts(log: Any, aside: Any) -> Any:
    """Rewards and metrics of completions: every column of numbers that is none of the run's own."""
    for row in log:
        found = dict(row.get("metrics") or {})
        found |= {name: one for name, one in row.items() if isinstance(one, int | float) and name not in _OF_ROLLOUT}
        row["verdicts"] = {name: one for name, one in found.items() if isinstance(one, int | float)}
        asked = json.dumps(row.get("prompt"), ensure_ascii=False, default=str)
        row["prompt_id"] = f"prompt-{text_digest(asked)[:10]}"
    return {"cases": log, "run": aside or {}}
