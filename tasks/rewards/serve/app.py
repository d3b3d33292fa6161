"""The reward server's application: rewards, prompts, health and meters."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.web.guard import Guard, RefusedRequest, TokenGate, body_of
from rubricflow.tasks.core.web.server import remember
from rubricflow.tasks.rewards.serve.answered import RolloutAnswer, Summary, TrainingMemory, summary_of, unscored_answer
from rubricflow.tasks.rewards.serve.sent import HeldOutRequest, RemoteRewardRequest, RewardRequest, SentRollout, parsed
from rubricflow.tasks.rewards.serve.waves import Service, TooBusyError, Waves

_LOG = logging.getLogger(__name__)
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_FIGURES = ("reward", "flat", "gear", "false_credit", "suppressed", "unverified")
_END_MARK = re.compile(r"(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>|<end_of_turn>)$")
"""What closes a turn in the text of a model."""
_LONGEST_MARK = 64
MOST_BYTES = 64 * 1024 * 1024
"""Of a request's body."""
_OPEN_TO_ALL = ("/health", "/ready")
_WITHOUT_HEADERS = "/openrlhf"
"""Its trainer sends no header of ours: the token may stand in the address."""
Answering = Callable[[Request], Awaitable[Response]]


class Meters:
    """The meters of one server: counts, times and the figures of the rewards, in Prometheus' text form."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ours: Any = {"namespace": "rubricflow", "registry": self.registry}
        self.requests = Counter("requests", "Requests for rewards, by status of the answer", ["status"], **ours)
        self.seconds = Histogram("request_seconds", "Seconds to the answer", buckets=_SECONDS, **ours)
        self.open = Gauge("open_rollouts", "Rollouts that wait or are being judged", **ours)
        self.judging = Gauge("joint_batches", "Joint batches that are being judged", **ours)
        self.rollouts = Counter("rollouts", "Rollouts answered", **ours)
        self.unscored = Counter("unscored_rollouts", "Rollouts without a reward, by reason", ["reason"], **ours)
        self.calls = Counter("judge_calls", "Calls to the judge, without stored replies", **ours)
        self.tokens = Counter("judge_tokens", "Tokens of these calls", ["kind"], **ours)
        self.figures = Gauge("last_mean", "Mean of the last answered request", ["figure"], **ours)

    def note(self, summary: Summary) -> None:
        """Takes the figures of an answered request."""
        self.rollouts.inc(summary["rollouts"])
        for reason, count in summary["reasons"].items():
            self.unscored.labels(reason).inc(count)
        self.calls.inc(summary["calls"])
        self.tokens.labels("prompt").inc(summary["prompt_tokens"])
        self.tokens.labels("completion").inc(summary["completion_tokens"])
        figures: Record = {**summary}
        for name in _FIGURES:
            if figures[name] is not None:
                self.figures.labels(name).set(figures[name])


class RewardEndpoints:
    """Answers requests for rewards."""

    def __init__(self, service: Service, trouble: str | None = None) -> None:
        self._service = service
        self.waves, self.meters = Waves(service.judge), Meters()
        self._training = TrainingMemory(service.recorded())
        self.trouble = trouble
        """What has to be mended before anything can be judged; None while it goes well."""

    async def rewards(self, request: Request) -> Response:
        """Rewards of a batch, with all that is known of each rollout."""
        begin = time.monotonic()
        body = await body_of(request, MOST_BYTES)
        sent = await asyncio.to_thread(parsed, body, RewardRequest)
        answers = await self._answers(sent, begin)
        paid = {"aggregation": self._service.aggregation, "rewards": [answer["reward"] for answer in answers]}
        return JSONResponse({**paid, "summary": self._noted(answers, sent.step), "rollouts": answers})

    async def remote_rewards(self, request: Request) -> Response:
        """The same in the form of OpenRLHF's remote reward models, whose trainer knows no missing reward."""
        begin = time.monotonic()
        try:
            unscored = float(request.query_params.get("unscored", ""))
        except ValueError:
            unscored = math.nan
        if not math.isfinite(unscored):
            rule = "OpenRLHF knows no missing reward: the address has to say what a rollout without one becomes"
            raise InputError(rule, field="unscored", hint="/openrlhf?unscored=0")
        sent = await asyncio.to_thread(parsed, await body_of(request, MOST_BYTES), RemoteRewardRequest)
        texts = map(_completion, sent.query, sent.prompts)
        rollouts = [SentRollout(item_id=label, completion=text) for label, text in zip(sent.labels, texts, strict=True)]
        answers = await self._answers(RewardRequest(rollouts=tuple(rollouts)), begin)
        self._noted(answers, None)

        def column(name: Literal["reward", "flat", "gear", "false_credit"], default: float) -> list[float]:
            values = (answer[name] for answer in answers)
            return [default if value is None else value for value in values]

        rewards = column("reward", unscored)
        logs = {
            "flat": column("flat", unscored),
            "gear": column("gear", unscored),
            "false_credit": column("false_credit", 0.0),
            "unscored": [float(answer["reward"] is None) for answer in answers],
        }
        return JSONResponse({"rewards": rewards, "scores": rewards, "extra_logs": logs})

    async def held_out(self, request: Request) -> Response:
        """Takes an evaluation of the policy on held-out items, and says whether the alarm of reward hacking rings."""
        sent = await asyncio.to_thread(parsed, await body_of(request, MOST_BYTES), HeldOutRequest)
        await asyncio.to_thread(self._service.record_quality, sent.step, sent.quality)
        return JSONResponse(self._training.evaluated(sent.step, sent.quality))

    async def prompts(self, request: Request) -> Response:
        """The prompts with their items' ids, for a trainer's data set."""
        rows = await asyncio.to_thread(self._service.prompts)
        return JSONResponse({"rows": rows})

    async def about(self, request: Request) -> Response:
        """What is served."""
        return JSONResponse({"name": self._service.name, "aggregation": self._service.aggregation})

    async def metrics(self, request: Request) -> Response:
        """The meters."""
        self.meters.open.set(self.waves.open)
        self.meters.judging.set(self.waves.judging)
        return Response(generate_latest(self.meters.registry), media_type=CONTENT_TYPE_LATEST)

    async def health(self, request: Request) -> Response:
        """That the process answers."""
        return JSONResponse({"status": "alive"})

    async def ready(self, request: Request) -> Response:
        """Whether rollouts are judged."""
        if self.trouble:
            return JSONResponse({"status": "not ready", "error": self.trouble}, 503)
        return JSONResponse({"status": "ready"})

    def counted(self, answering: Answering) -> Answering:
        """The same, with its time and status on the meters; whatever goes wrong is answered in words."""

        async def counted(request: Request) -> Response:
            begin = time.monotonic()
            try:
                response = await answering(request)
            except Exception as error:
                response = _refused(error)
            self.meters.requests.labels(response.status_code).inc()
            self.meters.seconds.observe(time.monotonic() - begin)
            return response

        return counted

    async def _answers(self, sent: RewardRequest, begin: float) -> list[RolloutAnswer]:
        """Poses a request's rollouts and waits for their answers, at most until its deadline.

        begin: when it came in, as `time.monotonic`.
        """
        seconds = sent.deadline_s or self._service.deadline_s
        until = begin + seconds
        self.waves.admit(len(sent.rollouts))
        posed = await asyncio.to_thread(self._service.pose, sent.rollouts, sent.step)
        try:
            answers = await self.waves.answers(posed, until)
        except InputError:
            raise
        except UserError as error:
            self.trouble = str(error)
            raise
        said = f"no answer within {seconds:g} s"
        if any(answer and answer["reward"] is not None for answer in answers):
            self.trouble = None
        return [
            answer or unscored_answer(rollout.item_id or "", "deadline", said)
            for answer, rollout in zip(answers, sent.rollouts, strict=True)
        ]

    def _noted(self, answers: Sequence[RolloutAnswer], step: int | None) -> Record:
        """A batch's figures, with those of the training."""
        summary = summary_of(answers)
        self.meters.note(summary)
        self._training.note(step, answers)
        return {**summary, **self._training.figures}


def create_app(service: Service, gate: TokenGate, trouble: str | None = None) -> FastAPI:
    """The application; it has no pages of documentation, which would load scripts from elsewhere.

    trouble: what has to be mended before anything can be judged, as far as it is known.
    """
    endpoints = RewardEndpoints(service, trouble)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await endpoints.waves.finish()

    def admit(request: Request) -> None:
        path = request.url.path
        if path in _OPEN_TO_ALL:
            return
        in_address = request.query_params.get("token") if path == _WITHOUT_HEADERS else None
        gate.check(f"Bearer {in_address}" if in_address else request.headers.get("authorization", ""))
        remember(request)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.endpoints = endpoints
    app.state.loggers = (__name__,)
    app.add_middleware(Guard, is_own=gate.is_own, most_bytes=MOST_BYTES, admit=admit)
    posts = {
        "/v1/rewards": endpoints.rewards,
        _WITHOUT_HEADERS: endpoints.remote_rewards,
        "/v1/held-out": endpoints.held_out,
    }
    for path, answering in posts.items():
        app.add_route(path, endpoints.counted(answering), methods=["POST"])
    gets = {"/v1/prompts": endpoints.prompts, "/v1/about": endpoints.about, "/metrics": endpoints.metrics}
    for path, answering in {**gets, "/health": endpoints.health, "/ready": endpoints.ready}.items():
        app.add_route(path, answering, methods=["GET"])
    return app


def _refused(error: Exception) -> JSONResponse:
    """What went wrong, as an answer."""
    match error:
        case TooBusyError():
            rule = f"the server has as many rollouts as it can take; {error}"
            return JSONResponse({"error": rule}, 429, {"Retry-After": str(error.retry_s)})
        case RefusedRequest():
            return JSONResponse({"error": str(error)}, error.status)
        case InputError():
            return JSONResponse({"error": str(error)}, 422)
        case UserError():
            return JSONResponse({"error": str(error)}, 503, {"Retry-After": "5"})
        case ClientDisconnect():
            return JSONResponse({"error": "the client went away"}, 400)
    _LOG.error("a request failed", exc_info=error)
    return JSONResponse({"error": "the server failed; its log says why"}, 500)


def _completion(query: str, prompt: str) -> str:
    """What the policy wrote, of a text that begins with its prompt, without the marks that close it."""
    text = query.removeprefix(prompt)
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        mark = _END_MARK.search(text, max(0, end - _LONGEST_MARK), end)
        if mark is None:
            return text[:end]
        end = mark.start()
