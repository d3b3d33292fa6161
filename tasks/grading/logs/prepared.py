"""What a form's paths cannot say: a function each, of the document and of the one that tells of it (null for none),
which gives a document that they can read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rubricflow.tasks.core.text.digest import text_digest


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
        graded, seen = case.get("gradingResult") or {}, Counter[str]()
        kinds = Counter(_assertion(part) for part in graded.get("componentResults") or ())
        case["verdicts"] = []
        for part in graded.get("componentResults") or ():
            kind = _assertion(part)
            seen[kind] += 1
            assertion, told = part.get("assertion") or {}, (case.get("testCase") or {}).get("options") or {}
            is_model = "renderedGradingPrompt" in (part.get("metadata") or {}) or assertion.get("type") in _MODEL_GRADED
            criterion = f"{kind} {seen[kind]}" if kinds[kind] > 1 else kind
            case["verdicts"].append(part | {"criterion": criterion} | ({"options": told} if is_model else {}))
        case["verdicts"] = case["verdicts"] or [{**graded, "score": case.get("score"), "pass": case.get("success")}]
    return {"cases": cases, "log": log if isinstance(log, dict) else {}}


_MODEL_GRADED = ("llm-rubric", "g-eval", "model-graded-closedqa", "model-graded-factuality", "factuality", "pi")


def _assertion(part: Mapping[str, Any]) -> str:
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
    file of results beside it."""
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
    spec: dict[str, Any] = next((record["spec"] for record in log if "spec" in record), {})
    cases: dict[str, Any] = {}
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
