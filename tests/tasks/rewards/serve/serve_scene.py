"""A served service that a test scripts, on a port of its own."""

import socket
import threading
from contextlib import contextmanager

from builders.waiting import until

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.web.guard import TokenGate
from rubricflow.tasks.core.web.server import Server, usual_limits
from rubricflow.tasks.rewards.serve.answered import TrainingRecord, unscored_answer
from rubricflow.tasks.rewards.serve.app import create_app


def paid(item_id, reward, **more):
    """A rollout's answer with this reward."""
    return {
        **unscored_answer(item_id, "", ""),
        "unscored": None,
        "reward": reward,
        "flat": reward,
        "gear": reward,
    } | more


class Scripted:
    """Pays a rollout its number of words, once it is `free` to."""

    name, aggregation, deadline_s = "scripted", "gear", 300.0

    def __init__(self, fault=None, free=None):
        """free: a threading.Event, that is set unless a test holds the judge up."""
        self.free, self.fault, self.batches, self.qualities = free or threading.Event(), fault, [], {}
        if free is None:
            self.free.set()

    def pose(self, rollouts, step):
        for row, rollout in enumerate(rollouts, 1):
            if rollout.item_id == "unknown":
                raise InputError("there is no item 'unknown'", row=row, field="item_id")
        return list(rollouts)

    def judge(self, posed, until, is_last):
        self.batches.append(len(posed))
        self.free.wait(600)
        if self.fault:
            raise self.fault
        return [paid(rollout.item_id or "", float(len(rollout.completion.split()))) for rollout in posed]

    def recorded(self):
        return TrainingRecord({}, {})

    def record_quality(self, step, quality):
        self.qualities[step] = quality

    def prompts(self):
        return [{"item_id": "a", "prompt": "Why?"}]


class Running:
    """A server in a thread."""

    def __init__(self, service, token=None, host="127.0.0.1", port=0, limits=None):
        self.listening = socket.create_server((host, port))
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = create_app(service, TokenGate(host, self.port, token))
        self.endpoints, self.service = self.app.state.endpoints, service
        self._server = Server(self.app, self.listening, limits or usual_limits())
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    @property
    def is_ending(self):
        return self._server._taking.done()

    def stop(self):
        self._server.should_exit = True
        self._thread.join(600)
        self.listening.close()


@contextmanager
def serving(service, **more):
    running = Running(service, **more)
    try:
        yield running
    finally:
        running.stop()
