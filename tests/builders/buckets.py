"""Buckets of a server on this machine that speaks S3, and one that is in a bad mood."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import httpx
import pytest

_numbers = count()


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server with no bucket yet; a test that needs it is skipped where its packages are missing."""
    moto = pytest.importorskip("moto.server", reason="needs moto's server: pip install '.[test]'")
    pytest.importorskip("obstore", reason="needs the extra: pip install '.[s3]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


def variables(endpoint: str) -> dict[str, str]:
    """What the environment says of a server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "not-told",
        "AWS_REGION": "us-east-1",
    }


def new_bucket(endpoint: str) -> str:
    """The address of a new bucket's prefix."""
    name = f"bucket-{next(_numbers)}"
    httpx.put(f"{endpoint}/{name}", trust_env=False, timeout=300).raise_for_status()
    return f"s3://{name}/house"


Mood = Callable[[str, str, int], float | int | None]
"""(verb, path, how often it was asked) → a status to answer with, seconds to wait as a float, or None."""


@contextmanager
def moody(behind: str, mood: Mood) -> Iterator[tuple[str, Counter[tuple[str, str]]]]:
    """A server before another one, and what it was asked: verb and path → how often."""
    asked: Counter[tuple[str, str]] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = self.path.partition("?")[0]
            asked[self.command, path] += 1
            told = mood(self.command, path, asked[self.command, path])
            if isinstance(told, float):
                time.sleep(told)
            if type(told) is int:
                return self._send(told, {}, b"<Error><Code>SlowDown</Code></Error>")
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            sent: Any = {"content": content, "headers": headers, "trust_env": False, "timeout": 300}
            reply = httpx.request(self.command, behind + self.path, **sent)
            self._send(reply.status_code, dict(reply.headers), reply.content)

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "content-encoding"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
