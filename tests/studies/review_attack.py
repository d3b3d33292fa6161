"""The review page under slow attacks: do honest reviewers go on being served, and what do memory and the log cost?

A server of its own with few file descriptors; for each attack some seconds of it, all on this machine, while honest
reviewers open cases and vote. Prints how long they waited, whether every vote that was answered is in the ledger, the
server's memory and the growth of its log.

    python tests/studies/review_attack.py [--connections 1200] [--seconds 10] [--descriptors 128] [--only heads,bodies]
"""

import argparse
import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/tasks/people/review")]

from review_scene import case, free_port, scene  # noqa: E402

from rubricflow.tasks.people.review.ledger import Ledger  # noqa: E402

NAMES = ("Ada", "Bo", "Cyd")
CASES = 40
HEAD = b"POST /api/acts HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"


def board():
    return scene(tuple(case(f"R-{number:04}") for number in range(CASES)))


def served(port, ledger):
    """In the server's process: the page, until it is stopped."""
    from rubricflow.tasks.core.web.server import serve
    from rubricflow.tasks.people.review.access import Access
    from rubricflow.tasks.people.review.app import create_app

    access = Access("127.0.0.1", port, reviewers=NAMES, secret=b"bench")
    serve(create_app(board(), ledger, access), access.host, port, open_browser=False)


def passes(port):
    from rubricflow.tasks.people.review.access import Access

    access = Access("127.0.0.1", port, reviewers=NAMES, secret=b"bench")
    return {name: {access.cookie: access.pass_for(name)} for name in NAMES}


async def reading(reader, writer, sends):
    """What a connection sends, while it reads all that is answered, until either ends it."""
    sending = asyncio.ensure_future(sends)
    with contextlib.suppress(OSError):
        while await reader.read(4096):
            pass
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


async def trickle(writer, first, rest, pause):
    """Sends `first` at once and then `rest` over and over, a little at a time."""
    writer.write(first)
    while rest:
        await writer.drain()
        await asyncio.sleep(pause)
        writer.write(rest)


async def unread(writer, asked):
    """Asks again and again and reads no answer."""
    writer.transport.pause_reading()
    await trickle(writer, asked, asked, 0.2)


def kinds(port):
    """Attack → what one connection of it does."""
    head = HEAD % port
    some = next(iter(passes(port).values()))
    cookie = "; ".join(f"{name}={value}" for name, value in some.items()).encode()
    listed = b"GET /api/cases HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nCookie: %s\r\n\r\n" % (port, cookie)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    return {
        "silent": lambda r, w: reading(r, w, trickle(w, b"", b"", 1)),
        "heads": lambda r, w: reading(r, w, trickle(w, head + b"X: ", b"a", 1)),
        "bodies": lambda r, w: reading(r, w, trickle(w, head + b"Content-Length: 60000\r\n\r\n{", b" ", 1)),
        "chunks": lambda r, w: reading(r, w, trickle(w, head + chunked, b"1\r\n{\r\n", 1)),
        "known bodies": lambda r, w: reading(
            r, w, trickle(w, head + b"Cookie: %s\r\nContent-Length: 60000\r\n\r\n{" % cookie, b" ", 1)
        ),
        "large heads": lambda r, w: reading(r, w, trickle(w, head + b"X: " + b"a" * 15_000, b"a" * 100, 0.5)),
        "garbage": lambda r, w: reading(r, w, trickle(w, b"\x16\x03\x01 no HTTP\r\n\r\n", b"\x00\r\n\r\n", 0.1)),
        "upgrades": lambda r, w: reading(
            r, w, trickle(w, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"", 1)
        ),
        "idlers": lambda r, w: reading(
            r, w, trickle(w, b"GET /page/dom.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port, b"", 1)
        ),
        "known idlers": lambda r, w: reading(r, w, trickle(w, listed, b"", 1)),
        "unread": lambda r, w: unread(w, listed),
    }


async def keep_attacking(port, act, until):
    """One attacker, who comes again whenever they are put out."""
    while time.monotonic() < until:
        writer = None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await act(reader, writer)
        if writer:
            writer.transport.abort()
        await asyncio.sleep(0.2)


def attack(port, kind, connections, seconds):
    """In the attackers' process."""

    async def all_of_them():
        until = time.monotonic() + seconds
        act = kinds(port)[kind]
        await asyncio.gather(*(keep_attacking(port, act, until) for _ in range(connections)))

    asyncio.run(all_of_them())


def honest(port, name, cookies, numbers, until):
    """A reviewer with one keep-alive client: (seconds each step took, acts answered, what failed)."""
    took, stored, failed = [], [], []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", cookies=cookies, timeout=20) as client:
        for number in numbers:
            if time.monotonic() > until:
                break
            for criterion in range(3):
                started = time.monotonic()
                try:
                    asked = client.get(f"/api/cases/{number}").json()["asked"][criterion]
                    act = {
                        "act_id": str(uuid.uuid4()),
                        "kind": "vote",
                        "subject_kind": "label",
                        "response_id": f"R-{number:04}",
                        "rater": name,
                        "criterion_id": asked["criterion_id"],
                        "value": "1",
                        "digest": asked["digest"],
                    }
                    answer = client.post("/api/acts", json=act)
                    if answer.status_code == 200:
                        stored.append(act["act_id"])
                    else:
                        failed.append(answer.text)
                except httpx.HTTPError as error:
                    failed.append(repr(error))
                took.append(time.monotonic() - started)
                time.sleep(0.1)
    return took, stored, failed


def started(port, ledger, log, descriptors):
    """The server's process, once it answers."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, __file__, "--serve", str(port), str(ledger)]
    server = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=few)
    for _ in range(300):
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/")
            return server
        time.sleep(0.1)
    raise SystemExit("the page did not come up")


def resident(pid):
    """A process's memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measured(kind, connections, seconds, descriptors):
    """One attack on a server of its own, as a line of figures."""
    from concurrent.futures import ThreadPoolExecutor

    with tempfile.TemporaryDirectory() as folder:
        port, ledger, log_path = free_port(), Path(folder) / "votes.sqlite", Path(folder) / "log"
        with log_path.open("wb") as log:
            server = started(port, ledger, log, descriptors)
        before, peak = resident(server.pid), 0.0
        command = [sys.executable, __file__, "--attack", str(port), kind, str(connections), str(seconds)]
        attackers = subprocess.Popen(command, stderr=subprocess.DEVNULL) if kind != "none" else None
        until = time.monotonic() + seconds
        time.sleep(min(3, seconds / 3))
        known = passes(port)
        with ThreadPoolExecutor(len(NAMES)) as pool:
            doing = [pool.submit(honest, port, name, known[name], range(CASES), until) for name in NAMES]
            while not all(one.done() for one in doing):
                peak = max(peak, resident(server.pid))
                time.sleep(0.1)
            parts = [one.result() for one in doing]
        if attackers:
            attackers.wait()
        stopping = time.monotonic()
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
        stopping = time.monotonic() - stopping
        with Ledger(ledger) as kept:
            there = {act.act_id for act in kept.acts("science")}
        took = sorted(t for part in parts for t in part[0])
        stored = {act for part in parts for act in part[1]}
        failed = [text for part in parts for text in part[2]]
        text = log_path.read_bytes()
        lines = text.count(b"\n")
        print(
            f"{kind:13} votes {len(stored):4} lost {len(stored - there)} failed {len(failed):3} | step median "
            f"{took[len(took) // 2]:.3f} s, longest {took[-1]:.2f} s | memory +{peak - before:.0f} MiB | "
            f"log {len(text):,} bytes, {lines:,} lines | stopped in {stopping:.1f} s "
            f"{set(failed) if failed else ''}"[:400],
            flush=True,
        )


def main():
    if sys.argv[1:2] == ["--serve"]:
        return served(int(sys.argv[2]), Path(sys.argv[3]))
    if sys.argv[1:2] == ["--attack"]:
        return attack(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=1200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--descriptors", type=int, default=128)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.environ["PYTHONPATH"] = str(ROOT)
    chosen = asked.only.split(",") if asked.only else ["none", *kinds(1)]
    print(f"{asked.connections} connections, {asked.descriptors} descriptors, {asked.seconds:g} s each")
    for kind in chosen:
        measured(kind, asked.connections, asked.seconds, asked.descriptors)


if __name__ == "__main__":
    main()
