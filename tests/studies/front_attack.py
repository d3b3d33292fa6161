"""Both servers under attack, from this machine alone: half-requests, a hanging judge call, a wide rubric, a page
of another site, a signal. What do honest clients get meanwhile, and what does it cost? A row for each attack.

    .venv/bin/python tests/studies/front_attack.py [--half 400] [--seconds 10] [--descriptors 256]
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

HOUSE = Path(os.environ.get("HOUSE", Path(__file__).resolve().parents[2]))
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests" / "builders"), str(HOUSE / "tests" / "tasks" / "people" / "review")]

from loopback import HANG, Server, body_of  # noqa: E402
from loopback import http as replied  # noqa: E402

from rubricflow.client import RewardClient, RewardError  # noqa: E402

DEADLINE_S = 8.0
RUBRIC = [{"text": f"Names thing {number} and says why it matters", "weight": 1} for number in range(4)]
REVIEW = (
    "import sys; from pathlib import Path\n"
    "from review_scene import scene; from rubricflow.tasks.people.review.access import Access; from rubricflow.tasks.people.review.app import create_app\n"  # noqa: E501
    "try: from rubricflow.tasks.core.web.server import serve\n"
    "except ImportError: from rubricflow.tasks.people.review.server import serve\n"
    "port = int(sys.argv[1]); app = create_app(scene(), Path(sys.argv[2]), Access('127.0.0.1', port))\n"
    "serve(app, '127.0.0.1', port, open_browser=False)\n"
)


def judged(number, body):
    """Meets every criterion after a moment, and never answers what says so."""
    if "never answer" in json.dumps(body["messages"]):
        return HANG
    named = body["response_format"]["json_schema"]["schema"]["properties"]["decisions"]["properties"]
    quote = {"unit": "S1", "quote": "The first sentence stands here"}
    return replied(200, body_of(json.dumps({"decisions": {name: {"level": 1, "evidence": [quote]} for name in named}})))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def running(command, folder, descriptors):
    """A server's process, its port and its log, once it takes connections."""
    port, log = free_port(), folder / "log"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few = (descriptors, min(most, descriptors))
    with log.open("ab") as out:
        process = subprocess.Popen(
            [part.replace("PORT", str(port)) for part in command],
            cwd=HOUSE,
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:3])},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few),
        )
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        log.write_bytes(b"")
        yield process, port, log
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def rewards_server(folder, judge, *more):
    line = {"item_id": "a", "question": "Why?", "rubric": RUBRIC}
    (folder / "list.jsonl").write_text(json.dumps(line))
    source = [str(folder / "list.jsonl"), "--judge", "m", "--url", judge.url, "--judged-twice", "0"]
    return [
        sys.executable,
        "-m",
        "rubricflow.flows.cli",
        "serve",
        *source,
        "--port",
        "PORT",
        "--warehouse",
        str(folder / "house"),
        *more,
    ]


def rollouts(*texts, **more):
    where = more or {"item_id": "a"}
    return [{**where, "completion": f"The first sentence stands here. {text} {time.monotonic_ns()}"} for text in texts]


def asked(port, *texts, deadline_s=DEADLINE_S, **more):
    """Rollouts with a reward of all, and the seconds that they took; the error instead of the first."""
    begin = time.monotonic()
    client = RewardClient(f"http://127.0.0.1:{port}", deadline_s=deadline_s, patience_s=5, on_failure="none")
    try:
        found = client.rewards(rollouts(*texts, **more))["rewards"]
        said = f"{sum(reward is not None for reward in found)} of {len(found)}"
    except RewardError as error:
        said = str(error).partition(": ")[2][:60]
    return f"{said} in {time.monotonic() - begin:.1f} s"


def posted(port, path, kind, body=b"{}", **headers):
    """The status of a post as a browser sends it for a page of another site."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, body, {"Content-Type": kind, "Origin": "http://evil.example", **headers})
    status = connection.getresponse().status
    connection.close()
    return status


def halves(port, path, count, seconds, honest):
    """Connections with half a request each, which come again when they are put out; what the honest get meanwhile."""
    until, head = time.monotonic() + seconds, f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
    with ExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                held = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
                held.sendall(head)
        took = []
        while time.monotonic() < until:
            begin = time.monotonic()
            took.append(f"{honest()}")
            time.sleep(max(0.0, 1 - (time.monotonic() - begin)))
    return took


def row(server, attack, found, log=None):
    size = f"{log.stat().st_size:,}" if log else ""
    print(f"| {server} | {attack} | {found} | {size} |", flush=True)


def attacked(folder, given):
    judge = Server(judged, pause=0.02)
    with running(rewards_server(folder, judge), folder, given.descriptors) as (process, port, log):
        asked(port, "warm")
        took = halves(port, "/v1/rewards", given.half, given.seconds, lambda: asked(port, "x", deadline_s=4))
        good = sum(said.startswith("1 of 1") for said in took)
        row("serve", f"{given.half} half-requests", f"{good} of {len(took)} honest requests paid", log)
        before = len(judge.calls)
        body = json.dumps({"rollouts": rollouts("cross-site")}).encode()
        status = posted(port, "/v1/rewards", "text/plain", body)
        row("serve", "text/plain from another page", f"status {status}, {len(judge.calls) - before} calls paid", log)
        with ThreadPoolExecutor(2) as threads:
            hanging = threads.submit(asked, port, "good", "never answer", "fine", "well")
            time.sleep(0.002)
            neighbour = threads.submit(asked, port, "a", "b", deadline_s=60)
            found = f"its batch {hanging.result()} of {DEADLINE_S:g}; a neighbour's {neighbour.result()}"
        row("serve", "a hanging call beside good ones", found, log)
        for criteria in (1000, 100):
            wide = [
                {"text": f"Says {number} and thing {number * 7} of {number**2}", "weight": 1}
                for number in range(criteria)
            ]
            with ThreadPoolExecutor(2) as threads:
                slow = threads.submit(asked, port, "w", question=f"Wide {criteria}?", rubric=wide, deadline_s=30)
                time.sleep(0.5)
                narrow = asked(port, "n", question=f"Narrow {criteria}?", rubric=RUBRIC[:2], deadline_s=30)
                row("serve", f"a rubric of {criteria} beside one of 2", f"narrow {narrow}; wide {slow.result()}", log)
    with running([*rewards_server(folder, judge), *given.open], folder, given.descriptors) as (process, port, log):
        status = posted(port, "/v1/rewards", "text/plain", body, Host=f"localhost:{port}")
        row("serve without a token", "text/plain from another page", f"status {status}", log)
    for name in ("SIGTERM", "SIGINT"):
        served = running(rewards_server(folder, judge), folder, given.descriptors)
        with served as (process, port, log), ThreadPoolExecutor(1) as threads:
            before = len(judge.calls)
            last = threads.submit(asked, port, *[f"{name} {number}" for number in range(64)])
            while len(judge.calls) == before:
                time.sleep(0.01)
            process.send_signal(getattr(signal, name))
            status = process.wait(60)
            row("serve", name, f"last batch {last.result()}; ends with {status}", log)
            if given.show:
                print(log.read_text())
    judge.close()
    with running([sys.executable, "-c", REVIEW, "PORT", str(folder / "votes")], folder, given.descriptors) as (
        process,
        port,
        log,
    ):

        def cases():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/")
                return connection.getresponse().status
            return 0

        took = halves(port, "/api/acts", given.half, given.seconds, cases)
        row(
            "review", f"{given.half} half-requests", f"{took.count('200')} of {len(took)} honest requests answered", log
        )
        status = posted(port, "/api/me", "text/plain", b'{"name": "Eve"}')
        row("review", "text/plain from another page", f"status {status}", log)


def main():
    logging.getLogger("asyncio").disabled = True  # the judge's, of whom a connection is closed
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--half", type=int, default=400)
    arguments.add_argument("--seconds", type=float, default=10)
    arguments.add_argument("--descriptors", type=int, default=256)
    arguments.add_argument("--show", action="store_true", help="the log of the servers that are stopped")
    given = arguments.parse_args()
    given.open = ["--no-token"] if (HOUSE / "tasks" / "core" / "web").is_dir() else []
    print("| server | attack | what is answered | bytes of log |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        attacked(Path(home), given)
    os._exit(0)


if __name__ == "__main__":
    main()
