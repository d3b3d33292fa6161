"""Connections to servers, one call on each at a time.

A pool of httpx looks through all its connections at every call: with hundreds open that took many times as long as all
else. Here each connection is a client of its own, and the one used last is used next.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Connections:
    """Connections that are kept open between calls. One event loop uses them."""

    def __init__(self, headers: Mapping[str, str], timeout_s: float) -> None:
        self._headers, self._timeout_s = dict(headers), timeout_s
        self._idle: defaultdict[str, list[httpx.AsyncClient]] = defaultdict(list)

    async def post(self, base: str, path: str, body: Any) -> httpx.Response:
        """The answer to a body posted as JSON. base: the server's address; errors are those of httpx."""
        idle = self._idle[base]
        client = idle.pop() if idle else self._opened()
        try:
            response = await client.post(f"{base}{path}", json=body)
        except BaseException:
            await asyncio.shield(client.aclose())  # what is left of the answer belongs to no other call
            raise
        idle.append(client)
        return response

    async def close(self) -> None:
        """Closes all that are idle."""
        clients = [client for idle in self._idle.values() for client in idle]
        self._idle.clear()
        for client in clients:
            await client.aclose()

    def _opened(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=self._headers, limits=_ONE, timeout=self._timeout_s, verify=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted, read once."""
    return httpx.create_ssl_context()
