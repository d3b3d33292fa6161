"""A training loop against a reward server that is killed (SIGKILL) and started again: does every rollout get its
reward, and what is asked twice?

    .venv/bin/python tests/studies/serve_kills.py [--kills N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "builders"))

from loopback import Server, body_of, http

from rubricflow.client import RewardClient

HOUSE = Path(__file__).resolve().parents[2]
BATCH, CRITERIA = 8, 12


def judged(number, body):
    """A judge that meets every criterion."""
    schema = body["response_format"]["json_schema"]["schema"]
    decisions = {name: {"level": 1, "evidence": []} for name in schema["properties"]["decisions"]["properties"]}
    return http(200, body_of(json.dumps({"decisions": decisions})))


def started(folder, port, judge):
    """The server as a process of its own."""
    source = [str(folder / "list.jsonl"), "--judge", "m", "--url", judge.url]
    command = [sys.executable, "-m", "rubricflow.flows.cli", "serve", *source]
    where = ["--port", str(port), "--warehouse", str(folder / "house")]
    return subprocess.Popen([*command, *where], cwd=HOUSE, stdout=subprocess.DEVNULL)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=60)
    given = arguments.parse_args()
    judge, rng = Server(judged, pause=0.1), random.Random(0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rubric = [{"text": f"Names thing {number} and says why", "weight": 1} for number in range(CRITERIA)]
        (folder / "list.jsonl").write_text(json.dumps({"item_id": "a", "question": "Why?", "rubric": rubric}))
        server, over, kills = started(folder, port, judge), threading.Event(), []
        client = RewardClient(f"http://127.0.0.1:{port}", patience_s=300)
        client.dataset()

        def kill():
            nonlocal server
            while len(kills) < given.kills and not over.wait(rng.uniform(1, 3)):
                server.send_signal(signal.SIGKILL)
                server.wait()
                kills.append(time.monotonic())
                server = started(folder, port, judge)
                RewardClient(f"http://127.0.0.1:{port}", patience_s=300).dataset()

        killing = threading.Thread(target=kill)
        killing.start()
        rewards, steps = [], 0
        while steps < given.steps or killing.is_alive():
            texts = [f"rollout {steps} {number}" for number in range(BATCH)]
            rewards += client.rewards([{"item_id": "a", "completion": text} for text in texts], steps)["rewards"]
            steps += 1
        over.set()
        killing.join()
        wanted, calls = steps * BATCH * CRITERIA // 4, len(judge.calls)
        asked = [json.dumps(call["messages"]) for call in judge.calls]
        lost = sum(reward is None for reward in rewards)
        print(f"{len(kills)} kills, {steps} steps, {len(rewards)} rollouts, {lost} without a reward")
        print(f"{calls} calls for {wanted} questions: {len(asked) - len(set(asked))} asked twice, in flight at a kill")
        server.send_signal(signal.SIGTERM)
        server.wait()
    judge.close()
    os._exit(0)


if __name__ == "__main__":
    main()
