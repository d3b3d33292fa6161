"""The client of `rubricflow serve`: one file on the standard library alone, for training environments.

Where nothing of rubricflow is installed it can be copied, as rubricflow_client.py; elsewhere it is
rubricflow.client. A server is named by its address. Its token is taken from
the environment variable RUBRICFLOW_TOKEN, or, of a server on this machine, from the file that it keeps it in.

    from rubricflow_client import RewardClient

    client = RewardClient("http://127.0.0.1:8321")
    GRPOTrainer(model, reward_funcs=client.trl, train_dataset=Dataset.from_list(client.dataset()), ...)

`client.trl_async` is the same as a coroutine; `verl_score` and `verl_scores` have verl's signatures, `openrlhf` that of
OpenRLHF's reward functions, `verifiers` that of a function of verifiers' rubrics, and `skyrl` gives reward and metrics
to the `step` of a SkyRL environment.

A rollout without a reward is None and never 0. Trainers that know no None are told in `unscored` what takes its place.
Where the judge or the server fails, or answers with what is no reward, `on_failure="stop"` raises RewardError, and
"none" goes on without those rewards. What the client did wrong raises RewardError in any case, and is not asked again.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import json
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

FAILURES = ("deadline", "outage")
"""Reasons that lie with the judge and with no rollout."""
_AGAIN = frozenset({408, 429, 502, 503, 504})
_TOKEN_FILE = Path(".rubricflow") / "token"
"""In the user's home, see `rubricflow serve`."""
_NUMBERS = ("reward", "reward_variance", "flat", "gear", "false_credit")
_LONGEST_PAUSE_S = 30.0
_WINDOW, _FEW = 512, 16
"""Rollouts whose share without a reward is looked at; fewer are no share, but where none has one."""
_MARGIN_S = 30.0
"""Seconds beyond the deadline after which an answer is given up."""
_REPEATED = (*_NUMBERS, "share_unscored", "suppressed", "unverified", "calls")
_OPENRLHF_LOGS = ("flat", "gear", "false_credit", "unscored")
_OF_TRAINING = ("judge_agreement", "held_out", "alarm")

Rollout = Mapping[str, Any]
"""`completion`, and `item_id` or `question` and `rubric`."""


class RewardError(RuntimeError):
    """There are no rewards: the server refused the request, cannot be reached, or its judge fails."""


class RewardClient:
    """Asks a reward server. Threads may share one, and it can be pickled."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        deadline_s: float = 300.0,
        patience_s: float = 600.0,
        on_failure: Literal["stop", "none"] = "stop",
        most_unscored: float = 0.2,
        token: str | None = None,
    ) -> None:
        """deadline_s: seconds for a batch, after which what is not judged has no reward. patience_s: seconds for which
        a server that cannot be reached, restarts or is full is asked again. most_unscored: share of the last 512
        rollouts without a reward that 'stop' still bears. token: where it is not to be found by itself.

        ValueError for an address that is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"'{url}' is no address of a server, such as http://127.0.0.1:8321")
        if on_failure not in ("stop", "none"):
            raise ValueError(f"on_failure is '{on_failure}'; it is 'stop' or 'none'")
        self.url = url
        self.deadline_s = deadline_s
        self.patience_s = patience_s
        self.on_failure = on_failure
        self._most_unscored, self._recent = most_unscored, deque[bool](maxlen=_WINDOW)
        self._token = token if token is not None else os.environ.get("RUBRICFLOW_TOKEN")
        self.__name__ = "rubricflow"
        self.trl_async = _Coroutine(self)

    def rewards(self, rollouts: Sequence[Rollout], step: int | None = None) -> dict[str, Any]:
        """The server's answer: `rewards` (None where there is none), `summary`, and `rollouts` with all that is known
        of each. RewardError where there is no answer, or the judge failed and `on_failure` is 'stop'."""
        if not rollouts:
            return {"rewards": [], "summary": {}, "rollouts": []}
        body = {"rollouts": list(rollouts), "step": step, "deadline_s": self.deadline_s}
        try:
            answer = self._asked("POST", "/v1/rewards", body)
            if fault := _fault(answer, len(rollouts)):
                raise _NoAnswer(f"{self.url} answers what is no reward: {fault}")
        except _NoAnswer as error:
            if self.on_failure == "stop":
                raise RewardError(f"{error}; the training stops, as on_failure is 'stop'") from error
            return _nothing(rollouts, str(error))
        if self.on_failure == "stop":
            self._watch(answer)
        return answer

    def _watch(self, answer: Mapping[str, Any]) -> None:
        """RewardError where the judge failed, or too many of the last rollouts have no reward."""
        causes = [rollout["unscored"] for rollout in answer["rollouts"]]
        self._recent.extend(cause is not None for cause in causes)
        lost = sum(self._recent)
        seen = len(self._recent)
        failed = [cause for cause in causes if cause and cause["reason"] in FAILURES]
        is_alarming = seen >= _FEW or (lost == seen and seen > 1)
        if failed or (is_alarming and lost > self._most_unscored * seen):
            cause = next(filter(None, failed or causes), {"reason": "earlier", "said": "see the server's log"})
            share = f"{lost} of the last {seen} rollouts have no reward"
            raise RewardError(f"{share}; of one the judge: {cause['reason']}: {cause['said']}")

    def held_out(self, step: int, quality: Mapping[str, float]) -> dict[str, Any]:
        """Tells the server what the policy is worth on held-out items after a step; `alarm` in its answer says whether
        the reward rises without it, and `said` the same in words.

        quality: item → its quality from 0 to 1, more is better, the same items each time. It is in the curves of all
        rewards that follow.
        """
        return self._asked("POST", "/v1/held-out", {"step": step, "quality": dict(quality)})

    def dataset(self) -> list[dict[str, Any]]:
        """Rows of `item_id` and `prompt` for a trainer's data set."""
        rows = self._asked("GET", "/v1/prompts", None).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise RewardError(f"{self.url} answers without the rows of a data set")
        return rows

    def trl(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """TRL's reward function. The data set has a column `item_id`, or `rubric` beside the prompt.

        The batch's figures go to TRL's `log_metric`, and to `log_extra` each completion's flat reward and false credit.
        """
        state = columns.get("trainer_state")
        answer = self.rewards(_trl_rollouts(prompts, completions, columns), getattr(state, "global_step", None))
        _log_batch(answer, columns.get("log_metric"), columns.get("log_extra"))
        return list(answer["rewards"])

    async def verl_score(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        *,
        unscored: float,
        **more: Any,
    ) -> dict[str, Any]:
        """verl's `compute_score` of one solution: `score`, and figures that verl logs. extra_info: has `item_id`."""
        return (await asyncio.to_thread(self._verl, [solution_str], [extra_info], unscored))[0]

    def verl_scores(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Mapping[str, Any] | None],
        *,
        unscored: float,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """verl's reward of a batch, for its manager `batch`."""
        return self._verl(solution_strs, extra_infos, unscored)

    def openrlhf(self, *, unscored: float) -> Callable[..., dict[str, Any]]:
        """OpenRLHF's `reward_func(queries, prompts, labels)`, to be named in the file that `--remote_rm_url` points to;
        a label is an item's id. The server's address with `/openrlhf?unscored=0&token=…` does the same without a file.

        OpenRLHF catches errors of its reward functions and goes on without a reward, which its trainer then lacks: with
        on_failure='stop' the training ends with an error of its own, and ours stands above it in the log.
        """

        def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
            triples = zip(queries, prompts, labels, strict=True)
            rollouts = [{"item_id": label, "completion": query.removeprefix(start)} for query, start, label in triples]
            answer = self.rewards(rollouts)
            rewards = [unscored if reward is None else reward for reward in answer["rewards"]]
            figures = [_figures(rollout, unscored) for rollout in answer["rollouts"]]
            logs = {name: [figure[name] for figure in figures] for name in _OPENRLHF_LOGS}
            return {"rewards": rewards, "scores": rewards, "extra_logs": logs}

        return reward_func

    def verifiers(self, *, unscored: float) -> Callable[..., Any]:
        """A function for `verifiers.Rubric(funcs=[...])` of verifiers 0.1; the data set's `info` has `item_id`, or its
        `answer` is it.

        verifiers makes 0 of an error of its functions; where a failure shall stop the training, look at its log.
        """

        async def rubricflow(
            completion: Any, info: Mapping[str, Any] | None = None, answer: Any = None, state: Any = None, **more: Any
        ) -> float:
            item_id = (info or {}).get("item_id", answer)
            rollout = {"item_id": str(item_id), "completion": text_of(completion)}
            reply = await asyncio.to_thread(self.rewards, [rollout])
            if isinstance(state, dict):
                state["rubricflow"] = reply["rollouts"][0]
            reward = reply["rewards"][0]
            return float(unscored if reward is None else reward)

        return rubricflow

    async def verifiers_v1(self, task: Any, trace: Any, runtime: Any = None) -> float:
        """A reward of `verifiers.v1`, plugged in by its import path: the task's data has `item_id`. Versions differ in
        whether they hand over the task or its data.

        RewardError where there is no reward: verifiers then leaves the rollout out, and makes no 0 of it.
        """
        data = getattr(task, "data", task)
        rollout = {"item_id": data.item_id, "completion": trace.last_reply}
        answer = (await asyncio.to_thread(self.rewards, [rollout]))["rollouts"][0]
        trace.info["rubricflow"] = answer
        if answer["reward"] is None:
            raise RewardError(f"no reward: {answer['unscored']['reason']}")
        trace.record_metric("false_credit", answer["false_credit"])
        return float(answer["reward"])

    def skyrl(self, action: str, item_id: str, *, unscored: float) -> tuple[float, dict[str, Any]]:
        """Reward and metrics for `BaseTextEnvStepOutput(reward=..., metrics=...)` in an environment's `step`."""
        figures = self._verl([action], [{"item_id": item_id}], unscored)[0]
        return figures.pop("score"), figures

    def _verl(
        self, texts: Sequence[str], infos: Sequence[Mapping[str, Any] | None], unscored: float
    ) -> list[dict[str, Any]]:
        pairs = zip(texts, infos, strict=True)
        answer = self.rewards([{"item_id": _item_of(info), "completion": text} for text, info in pairs])
        return [_figures(rollout, unscored) for rollout in answer["rollouts"]]

    def _asked(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """The server's answer, asked again while it is full or cannot be reached, as long as the patience lasts.

        _NoAnswer where there is none; RewardError where the request is refused.
        """
        content = None if body is None else json.dumps(body, default=str).encode("utf-8", "replace")
        until = time.monotonic() + self.patience_s
        pause = 0.5
        trouble = ""
        while True:
            try:
                status, wait_header, answer = self._once(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                trouble = f"{self.url} cannot be reached: {error or type(error).__name__}"
                wait = None
            else:
                if status == 200 and isinstance(answer, dict):
                    return answer
                if status == 200:
                    raise _NoAnswer(f"{self.url} answers what is no reward: {str(answer)[:200]!r}")
                trouble = f"{self.url}: {_said(status, answer)}"
                wait = _seconds(wait_header)
                if status not in _AGAIN:
                    raise RewardError(trouble)
            wait = pause * random.uniform(0.5, 1.0) if wait is None else wait
            if time.monotonic() + wait > until:
                raise _NoAnswer(trouble)
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(self, method: str, path: str, content: bytes | None) -> tuple[int, str | None, Any]:
        """Status, what `Retry-After` says, and the body."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=self.deadline_s + _MARGIN_S)
        headers = {"Content-Type": "application/json"}
        if token := self._token or _token_here(str(parts.hostname)):
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, parts.path.rstrip("/") + path, content, headers)
            response = connection.getresponse()
            text = response.read()
            try:
                return response.status, response.getheader("Retry-After"), json.loads(text, parse_constant=_no_number)
            except (ValueError, RecursionError):
                return response.status, None, text[:200].decode("utf-8", "replace")
        finally:
            connection.close()


class _Coroutine:
    """TRL's reward function as a coroutine: TRL asks for all coroutines of a step at once."""

    def __init__(self, client: RewardClient) -> None:
        self._client = client
        self.__name__ = client.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return await asyncio.to_thread(self._client.trl, prompts, completions, **columns)


class _NoAnswer(RewardError):
    """The patience is at its end, or what comes is no answer."""


def _token_here(host: str) -> str | None:
    """The token of this user's servers on this machine, which no other machine is told; None for none."""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None
    try:
        return (Path.home() / _TOKEN_FILE).read_text(encoding="ascii").strip() if is_local else None
    except (OSError, ValueError, RuntimeError):
        return None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _fault(answer: Mapping[str, Any], count: int) -> str | None:
    """Why an answer does not hold the rewards of so many rollouts; None where it does."""
    rewards, rollouts, summary = (answer.get(name) for name in ("rewards", "rollouts", "summary"))
    if not (isinstance(rewards, list) and isinstance(rollouts, list) and isinstance(summary, dict)):
        return "it lacks 'rewards', 'rollouts' or 'summary'"
    if not len(rewards) == len(rollouts) == count:
        return f"{len(rewards)} rewards and {len(rollouts)} rollouts, for {count} rollouts"
    for place, (reward, rollout) in enumerate(zip(rewards, rollouts, strict=True)):
        if not isinstance(rollout, dict) or any(not _is_number(rollout.get(name)) for name in _NUMBERS):
            return f"rollout {place} has a figure that is no number"
        if not _is_number(reward) or reward != rollout.get("reward"):
            return f"reward {place} is {str(reward)[:80]!r}"
        if not isinstance(rollout.get("unscored"), dict if reward is None else type(None)):
            return f"rollout {place} has no reward and no reason, or both"
        if reward is not None and (rollout.get("flat") is None or rollout.get("gear") is None):
            return f"rollout {place} has a reward and no flat or GEAR figure"
        if not isinstance(rollout.get("decisions"), list):
            return f"rollout {place} has no list of decisions"
    leaked = summary.get("leaked", {})
    figures = [*(leaked.values() if isinstance(leaked, dict) else ["leaked"]), *(summary.get(n) for n in _REPEATED)]
    return None if all(map(_is_number, figures)) else "the summary has a figure that is no number"


def _is_number(value: Any) -> bool:
    """Whether it is a finite number, or None; a boolean is neither."""
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def text_of(completion: Any) -> str:
    """What a completion says: a text, or the texts of a chat's assistant turns. ValueError for anything else."""
    if isinstance(completion, str):
        return completion
    try:
        contents = [turn["content"] for turn in completion if turn["role"] == "assistant" and turn["content"]]
        return "\n".join(text for content in contents for text in _texts(content))
    except (TypeError, KeyError) as error:
        raise ValueError("a completion is neither a text nor a list of messages") from error


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def _question_of(prompt: Any) -> str:
    """A prompt as a question: a text, or the texts of a chat's turns but the system's."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(text for turn in prompt if turn["role"] != "system" for text in _texts(turn["content"]))


def _trl_rollouts(prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Rollout]:
    texts = [text_of(completion) for completion in completions]
    if columns.get("item_id") is not None:
        pairs = zip(columns["item_id"], texts, strict=True)
        return [{"item_id": item_id, "completion": text} for item_id, text in pairs]
    if columns.get("rubric") is None:
        raise ValueError("the data set has neither a column 'item_id' nor a column 'rubric'")
    triples = zip(prompts, columns["rubric"], texts, strict=True)
    return [
        {"question": _question_of(prompt), "rubric": rubric, "completion": text} for prompt, rubric, text in triples
    ]


def _log_batch(answer: Mapping[str, Any], log_metric: Any, log_extra: Any) -> None:
    """Hands a batch's figures to TRL's functions, as far as they are there."""
    summary = answer["summary"]
    if log_metric and summary:
        figures = {name: summary[name] for name in (*_REPEATED, *_OF_TRAINING) if name in summary}
        figures |= {f"leaked/{relation}": share for relation, share in summary["leaked"].items()}
        for name, value in figures.items():
            if value is not None:
                log_metric(f"rubricflow/{name}", float(value))
    if log_extra:
        for name in ("reward_variance", "flat", "gear", "false_credit"):
            log_extra(f"rubricflow_{name}", [rollout.get(name) for rollout in answer["rollouts"]])
        log_extra("rubricflow_criteria", [_in_short(rollout) for rollout in answer["rollouts"]])


def _in_short(rollout: Mapping[str, Any]) -> str:
    """A rollout's decisions on one line: `C1 1/1, C2 –`."""
    levels = [(decision["criterion_id"], decision["level"], decision["top"]) for decision in rollout["decisions"]]
    return ", ".join(f"{name} –" if level is None else f"{name} {level}/{top}" for name, level, top in levels)


def _figures(rollout: Mapping[str, Any], unscored: float) -> dict[str, Any]:
    """A rollout as verl logs it; finite numbers only, the same ones for every rollout: one NaN would be the mean. The
    variance of the reward is not among them: where it is not known, no number says so."""
    reward = rollout["reward"]
    return {
        "score": unscored if reward is None else reward,
        "flat": unscored if rollout["flat"] is None else rollout["flat"],
        "gear": unscored if rollout["gear"] is None else rollout["gear"],
        "false_credit": rollout["false_credit"] or 0.0,
        "unscored": float(reward is None),
    }


def _item_of(info: Mapping[str, Any] | None) -> str:
    if not info or "item_id" not in info:
        raise ValueError("a solution without 'item_id' in its extra_info, which tells its item")
    return str(info["item_id"])


def _nothing(rollouts: Sequence[Rollout], said: str) -> dict[str, Any]:
    """The answer that holds no reward."""
    cause = {"reason": "outage", "said": said}
    empty: dict[str, Any] = dict.fromkeys(("reward", "reward_variance", "flat", "gear", "false_credit"))
    empty |= {"unscored": cause, "decisions": []}
    answers = [{"item_id": rollout.get("item_id"), **empty} for rollout in rollouts]
    summary = {"rollouts": len(rollouts), "unscored": len(rollouts), "share_unscored": 1.0, "leaked": {}}
    return {"rewards": [None] * len(rollouts), "summary": summary, "rollouts": answers}


def _said(status: int, answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else answer
    return f"{error or 'no reason'} (status {status})"


def _seconds(header: str | None) -> float | None:
    try:
        return min(_LONGEST_PAUSE_S, max(0.0, float(header or "")))
    except ValueError:
        return None
