"""Calls over one connection: whatever pieces an answer comes in, it is the answer; what is left over is no other's."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.completions import Completions
from rubricflow.tasks.core.llm.backends.connections import Connections
from rubricflow.tasks.core.llm.request import Message, Request

TEXTS = st.text(st.characters(exclude_categories=()), max_size=60)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@asynccontextmanager
async def served(answers):
    """A server that gives these answers one after the other, each as pieces; None ends the connection. Yields its
    address and what it got: one list of bodies for each connection."""
    got, left = [], iter(answers)

    async def serve(reader, writer):
        bodies = []
        got.append(bodies)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(next(line.split(":")[1] for line in head.splitlines() if line.startswith("content-length")))
                bodies.append((head, await reader.readexactly(size)))
                for piece in next(left):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError, StopIteration):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions", got
    finally:
        server.close()


def asked(answers, calls=1, wait=0.0):
    """What came of calls one after the other, errors as errors, and what the server got."""

    async def run():
        async with served(answers) as (url, got):
            connections, came = Connections({"Authorization": "Bearer k"}, 300), []
            for _ in range(calls):
                try:
                    came.append(await asyncio.wait_for(connections.post(url, b'{"a": 1}', "k"), 300))
                except httpx.HTTPError as error:
                    came.append(error)
                await asyncio.sleep(wait)
            await connections.close()
            return came, got

    return asyncio.run(run())


def whole(content):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Two: a\r\n\r\n%s" % (len(content), content)


def chunked(content, size):
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


@settings(max_examples=15)
@given(content=st.binary(max_size=300), size=st.integers(1, 50), form=st.sampled_from(["whole", "chunked", "ended"]))
def test_an_answer_is_read_whatever_pieces_it_comes_in(content, size, form):
    said = {
        "whole": whole(content),
        "chunked": chunked(content, size),
        "ended": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + content,
    }[form]
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    if form == "ended":
        pieces.append(None)
    (first, second), got = asked([pieces, pieces], calls=2)
    assert (first.status_code, first.content) == (second.status_code, second.content) == (200, content)
    assert len(got) == (2 if form == "ended" else 1)


def test_what_goes_before_an_answer_is_passed_over():
    (answer,), _ = asked([[b"HTTP/1.1 103 Early Hints\r\n\r\n", whole(b"{}")]])
    assert json.loads(answer.content) == {}


@pytest.mark.parametrize(
    "pieces",
    [
        [b"SSH-2.0-OpenSSH_9.6\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", None],
        [b"HTTP/1.1 200 OK\r\nContent-Le", None],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab", None],
        [None],
    ],
)
def test_what_is_no_answer_is_an_error_and_the_next_call_has_a_connection_of_its_own(pieces):
    (broken, answer), got = asked([pieces, [whole(b"{}")]], calls=2)
    assert isinstance(broken, httpx.HTTPError)
    assert json.loads(answer.content) == {}
    assert len(got) == 2


@pytest.mark.parametrize("more", [whole(b'"not yours"'), b"HTTP/1.1 408 Request Timeout\r\n\r\n", None])
def test_what_a_server_says_unasked_is_nobodys_answer(more):
    (first, second), got = asked([[whole(b'"mine"'), more], [whole(b'"mine, too"')]], calls=2, wait=0.05)
    assert (json.loads(first.content), json.loads(second.content)) == ("mine", "mine, too")
    assert len(got) == 2


def test_a_proxy_of_the_environment_is_taken(monkeypatch):
    async def run():
        async with served([[whole(b'"by proxy"')]]) as (url, got):
            for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("http_proxy", url.removesuffix("/v1/chat/completions"))
            connections = Connections({}, 5)
            answer = await connections.post("http://judge.invalid/v1/chat/completions", b"{}", "k")
            await connections.close()
            return answer, got

    answer, got = asyncio.run(run())
    assert json.loads(answer.content) == "by proxy"
    assert got[0][0][0].startswith("post http://judge.invalid/v1/chat/completions ")


@given(
    system=TEXTS,
    user=TEXTS,
    schema=st.none() | st.dictionaries(st.text(), JSON, max_size=3),
    options=st.dictionaries(st.sampled_from(["seed", "min_p", "é"]), st.integers() | st.text(), max_size=3),
)
def test_what_is_written_in_parts_says_what_was_to_be_said(system, user, schema, options):
    wire = Completions(Engine(model='m"ö', urls=("http://x/v1",), options=options), "")
    request = Request(
        messages=(Message("system", system), Message("user", user)), role="grade", subject="r", schema=schema
    )
    for _ in range(2):  # the second time from what was written before
        body = wire.body(request)
        assert json.loads(wire.content(body)) == json.loads(json.dumps(body))
