"""A server on this machine that answers what a test says, faults included."""

import asyncio
import json
import random
import socket
import threading
from contextlib import suppress

HANG, DROP = "hang", "drop"


def free_port():
    """A port on which nobody listens, of those that systems give to no connection of their own accord: it stays free
    until the server starts that it is meant for."""
    for port in random.SystemRandom().sample(range(10_000, 16_000), 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise OSError("no port is free from 10000 to 15999")


def body_of(text, **more):
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more
    return {"choices": [choice], "usage": usage}


def http(code, body, headers=(), cut=0):
    """Bytes of an answer; `cut`: how many are missing at its end."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {code} X", f"Content-Length: {len(content)}", "Connection: close", *headers]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + content[: len(content) - cut]


def echo(n, body):
    return http(200, body_of(body["messages"][-1]["content"]))


class Time:
    """A clock that only pauses move on."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)
        self.now += seconds


class Server:
    """Answers what `play` says: (number of the call, body) → bytes, HANG or DROP. `pause` keeps calls in flight;
    `models` says what the list of models is, none by default."""

    def __init__(self, play=echo, pause=0.0, models=lambda: http(404, {"detail": "Not Found"})):
        self.play, self.pause, self.models, self.looks = play, pause, models, 0
        self.calls, self.headers, self.in_flight, self.most = [], [], 0, 0
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait(300)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def asked(self):
        """What was asked, call by call."""
        return [call["messages"][-1]["content"] for call in self.calls]

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._over.set()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    async def _answer(self, reader, writer):
        # What a client leaves half said, or does not wait for, is no fault of the test's.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer_whole(reader, writer)
        writer.close()

    async def _answer_whole(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET "):
            self.looks += 1
            writer.write(self.models())
            await writer.drain()
            return
        size = int(next(line.split(":")[1] for line in head.lower().splitlines() if line.startswith("content-length")))
        call = json.loads(await reader.readexactly(size))
        self.headers.append(head)
        self.calls.append(call)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        answer = self.play(len(self.calls) - 1, call)
        if answer == HANG:
            await self._over.wait()
            answer = DROP
        await asyncio.sleep(self.pause)
        self.in_flight -= 1
        if answer != DROP:
            writer.write(answer)
            await writer.drain()

    def close(self):
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
