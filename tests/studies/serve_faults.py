"""A live training against a reward server whose judge or disk fails for a while: does each survive as its setting says,
and is everything as before when the fault is over? Kills are in serve_kills.py.

    .venv/bin/python tests/studies/serve_faults.py
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "builders"))

from loopback import HANG, Server, body_of, http

from rubricflow.client import RewardClient, RewardError

HOUSE = Path(__file__).resolve().parents[2]
BATCH, STEPS, DEADLINE_S, PATIENCE_S = 8, 3, 4.0, 8.0
FREE = resource.RLIM_INFINITY


class Judge:
    """A judge that meets every criterion, unless it is told to fail."""

    def __init__(self):
        self.fault = None

    def __call__(self, number, body):
        if self.fault == "500":
            return http(500, {"error": {"message": "out of memory"}})
        if self.fault == "hangs":
            return HANG
        if self.fault == "prose":
            return http(200, body_of("What a fine essay! I would give it full marks."))
        schema = body["response_format"]["json_schema"]["schema"]
        named = schema["properties"]["decisions"]["properties"]
        return http(200, body_of(json.dumps({"decisions": {name: {"level": 1, "evidence": []} for name in named}})))


def started(folder, judge):
    """The server as a process of its own, and its address."""
    rubric = [{"text": f"Names thing {number}", "weight": 1} for number in range(8)]
    (folder / "list.jsonl").write_text(json.dumps({"item_id": "a", "question": "Why?", "rubric": rubric}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source = [str(folder / "list.jsonl"), "--judge", "m", "--url", judge.url, "--record", "training"]
    command = [sys.executable, "-m", "rubricflow.flows.cli", "serve", *source]
    where = ["--port", str(port), "--warehouse", str(folder / "house")]
    process = subprocess.Popen([*command, *where], cwd=HOUSE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process, f"http://127.0.0.1:{port}"


def trained(client, phase):
    """Rewards of a few steps, and what ended them before their time."""
    rewards = []
    for step in range(STEPS):
        texts = [f"{phase} {step} {number} {time.monotonic_ns()}" for number in range(BATCH)]
        try:
            rewards += client.rewards([{"item_id": "a", "completion": text} for text in texts], step)["rewards"]
        except RewardError as error:
            return rewards, str(error)[:90]
    return rewards, "goes on"


def show(fault, setting, rewards, end):
    lost = sum(reward is None for reward in rewards)
    print(f"| {fault} | {setting} | {len(rewards)} | {lost} | {end} |", flush=True)


def main():
    play = Judge()
    judge = Server(play, pause=0.02)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server, url = started(folder, judge)
        RewardClient(url, patience_s=300).dataset()
        print("| fault | on_failure | rollouts | without a reward | the training |\n|---|---|---|---|---|", flush=True)
        for fault in ("500", "hangs", "prose", "full disk"):
            for setting in ("none", "stop"):
                client = RewardClient(url, deadline_s=DEADLINE_S, patience_s=PATIENCE_S, on_failure=setting)
                play.fault = fault
                if fault == "full disk":
                    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, hard))
                show(fault, setting, *trained(client, f"{fault} {setting}"))
                play.fault = None
                resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (FREE, FREE))
                patient = RewardClient(url, patience_s=60)
                show("over", setting, *trained(patient, f"after {fault} {setting}"))
        server.send_signal(signal.SIGTERM)
        print(f"the server ends with {server.wait(60)}")
    judge.close()
    os._exit(0)


if __name__ == "__main__":
    main()
