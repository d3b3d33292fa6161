"""The page goes on serving while strangers hold connections open, and neither waits for them nor writes of each."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from builders.loopback import free_port
from builders.waiting import until
from review_scene import case, scene

from rubricflow.tasks.core.web.server import Limits, LogRateLimiter
from rubricflow.tasks.people.review.ledger import Ledger

Serving = Callable[..., str]
FEW = Limits(places=12)
HASTY = Limits(places=12, request_s=0.3, answer_s=0.3)
HEAD = "POST /api/acts HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
LISTED = "GET /api/cases HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n"
HALVES = {
    "silent": "",
    "one letter": "P",
    "half a head": HEAD,
    "a large head": HEAD + "X: " + "a" * 15_000,
    "no body": HEAD + "Content-Length: 60000\r\n\r\n",
    "half a body": HEAD + "Cookie: {cookie}\r\nContent-Length: 60000\r\n\r\n{{",
    "half a chunk": HEAD + "Cookie: {cookie}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{{",
    "waits to be asked": HEAD + "Cookie: {cookie}\r\nExpect: 100-continue\r\nContent-Length: 60000\r\n\r\n",
    "a file, and idle": "GET /page/dom.js HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a reviewer's, and idle": LISTED,
}


@contextmanager
def reviewer(url: str, name: str = "Ada") -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=300) as client:
        assert again(lambda: client.post("/api/me", json={"name": name})).status_code == 200
        yield client


def again(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """An answer; where its connection was closed meanwhile it is asked again, as the page does."""
    for _ in range(20):
        with suppress(httpx.TransportError):
            return ask()
    return ask()


def voted(client: httpx.Client, number: int) -> str:
    """A vote of Ada's, with an id that ends with its number."""
    asked = again(lambda: client.get("/api/cases/0")).json()["asked"][number % 3]
    act = {
        "act_id": f"00000000-0000-4000-8000-{number:012d}",
        "kind": "vote",
        "subject_kind": "label",
        "response_id": "R-0412",
        "rater": "Ada",
        "criterion_id": asked["criterion_id"],
        "value": "1",
        "digest": asked["digest"],
    }
    assert again(lambda: client.post("/api/acts", json=act)).status_code == 200
    return act["act_id"]


@contextmanager
def opened(url: str, half: str, count: int, cookie: str = "") -> Iterator[list[socket.socket]]:
    """That many connections on which half a request was sent; little is kept for them that they do not read."""
    where = urlsplit(url)
    text = half.format(host=where.netloc, cookie=cookie).encode()
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(socket.socket()))
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            held[-1].settimeout(300)
            held[-1].connect((where.hostname, where.port))
            held[-1].sendall(text)
        yield held


def pass_of(client: httpx.Client) -> str:
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def is_closed(connection: socket.socket) -> bool:
    """Whether the server ends a connection in time, whatever it says before."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def taken(connection: socket.socket) -> bytes:
    """Some of what was answered; nothing at the end."""
    try:
        return connection.recv(2**20)
    except ConnectionResetError:
        return b""


def read_until(connection: socket.socket, word: str) -> str:
    """What was answered, up to the part that ends with a word."""
    text = ""
    while word not in text:
        part = connection.recv(65536)
        assert part, text
        text += part.decode()
    return text


@pytest.mark.parametrize("half", ["silent", "half a chunk", "waits to be asked", "a reviewer's, and idle"])
def test_reviewers_are_served_however_many_connections_others_leave_half_said(
    serving: Serving, ledger_path: Path, half: str
) -> None:
    url = serving(limits=FEW)
    with reviewer(url) as ada:
        stored = [voted(ada, 0)]
        with opened(url, HALVES[half], 60, pass_of(ada)), reviewer(url, "Bo") as bo:
            for number in range(1, 3):
                stored.append(voted(ada, number))
                with opened(url, HALVES[half], 20, pass_of(ada)):
                    assert again(lambda: bo.get("/api/cases")).status_code == 200
    with Ledger(ledger_path) as ledger:
        assert [act.act_id for act in ledger.acts("science") if act.rater_id == "Ada"] == stored


def test_a_client_that_lets_the_server_wait_is_put_out(serving: Serving) -> None:
    url = serving(limits=HASTY)
    with reviewer(url) as ada:
        cookie = pass_of(ada)
    with ExitStack() as stack:
        held = {half: stack.enter_context(opened(url, text, 1, cookie)) for half, text in HALVES.items()}
        assert [half for half, (connection,) in held.items() if not is_closed(connection)] == []


def test_a_client_that_trickles_is_put_out(serving: Serving) -> None:
    url = serving(limits=HASTY)
    with opened(url, HALVES["half a head"], 1) as (one,):
        one.settimeout(0.05)
        for _ in range(6000):
            try:
                one.sendall(b"a")
                assert one.recv(1) == b""
                break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("still open")


@pytest.mark.parametrize("limits", [Limits(40, 0.3, answer_s=0.6), Limits(40, unsent=2**20)], ids=["late", "much"])
def test_answers_that_nobody_takes_are_not_kept(serving: Serving, started: list[Any], limits: Limits) -> None:
    long = 5_000_000  # more than the system takes for a client that does not read
    url = serving(scene((case("R-0412", text="w" * long),)), limits=limits)
    asks = LISTED.replace("/api/cases", "/api/cases/0")
    with reviewer(url) as ada, opened(url, asks, 2, pass_of(ada)) as held:
        for one in held:
            with suppress(ConnectionResetError):
                one.recv(1, socket.MSG_PEEK)  # waits until its answer has begun
        time.sleep(1)
        (server, _), *_ = started
        until(lambda: sum(connection.unsent > 0 for connection in list(server._places._open)) < len(held))
        assert again(lambda: ada.get("/api/cases")).status_code == 200
        got = [sum(map(len, iter(lambda one=one: taken(one), b""))) for one in held]
        assert min(got) < long  # the one that comes last may be served when the others are gone


def test_a_reviewers_kept_connection_outlasts_strangers(serving: Serving) -> None:
    url = serving(limits=FEW)
    with reviewer(url) as ada:
        cookie = pass_of(ada)
    with opened(url, LISTED, 1, cookie) as (kept,):
        assert read_until(kept, "latest").startswith("HTTP/1.1 200")
        with opened(url, HALVES["half a head"], 60):
            kept.sendall(LISTED.format(host=urlsplit(url).netloc, cookie=cookie).encode())
            assert read_until(kept, "latest").startswith("HTTP/1.1 200")


def test_half_sent_requests_do_not_keep_the_server_from_stopping(serving: Serving) -> None:
    url = serving(limits=FEW)
    held = [stack for half in HALVES.values() for stack in [ExitStack()] if stack.enter_context(opened(url, half, 1))]
    assert len(held) == len(HALVES)  # they stay open while the fixture stops the server, which must not wait for them


def test_a_body_that_breaks_off_is_no_defect(
    serving: Serving, started: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    url = serving(limits=FEW)
    with reviewer(url) as ada:
        with opened(url, HALVES["half a body"], 3, pass_of(ada)):
            time.sleep(0.1)
        assert ada.get("/api/me").json()["reviewer"] == "Ada"
    ((_, thread),) = started
    assert [record for record in caplog.records if record.threadName == thread.name] == []


def test_with_few_descriptors_a_crowd_fills_no_log(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from review_scene import scene\n"
        "from rubricflow.tasks.people.review.app import Access\n"
        "from rubricflow.tasks.people.review.app import create_app\n"
        "from rubricflow.tasks.core.web.server import serve\n"
        "port = int(sys.argv[1])\n"
        "app = create_app(scene(), Path('votes.sqlite'), Access('127.0.0.1', port))\n"
        "serve(app, '127.0.0.1', port, open_browser=False)\n"
    )
    port, root = free_port(), Path(__file__).parents[4]
    command = [sys.executable, "-c", code, str(port), str(root), str(Path(__file__).parent)]
    url = f"http://127.0.0.1:{port}/"
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            stderr=log,
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)),
        )
    try:
        while not answers(url):
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        with reviewer(url) as ada, opened(url, HALVES["half a head"], 100):
            assert ada.get("/api/cases").status_code == 200
    finally:
        server.terminate()
        server.wait()
    assert (tmp_path / "log").read_text() == ""


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_flood_of_messages_is_counted_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("rubricflow.tasks.core.web.server.time.monotonic", lambda: clock[0])
    sparing, written = LogRateLimiter(), []
    for second in range(10):
        clock[0] = float(second)
        for number in range(1000):
            record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "no %s", (number,), None)
            if sparing.filter(record):
                written.append(record.getMessage())
    assert written[:5] == [f"no {number}" for number in range(5)]
    assert written[5:7] == ["no 0 (995 messages before were left out)", "no 0 (999 messages before were left out)"]
    assert len(written) == 14
