"""Connections to servers, one call on each at a time; the one used last is used next."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from tasks.llm.backends.wire import Address, HttpAnswer, Wire, address_of

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Connection(Protocol):
    """A connection to a server, over which one call goes after the other."""

    @property
    def is_open(self) -> bool:
        """Whether another call can go over it."""

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        """The answer to a body of JSON; errors are those of httpx.

        key: sent as Idempotency-Key, by which some servers know a call that they have begun already.
        """

    async def close(self) -> None:
        """Gives the connection back, whatever is under way."""


class Connections:
    """Connections that are kept open between calls. One event loop uses them."""

    def __init__(self, headers: Mapping[str, str], timeout_s: float) -> None:
        self._headers, self._timeout_s = dict(headers), timeout_s
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._addresses: dict[str, Address] = {}

    async def post(self, url: str, content: bytes, key: str) -> HttpAnswer:
        """See `Connection.post`."""
        idle = self._idle[url]
        while idle and not idle[-1].is_open:
            idle.pop()
        connection = idle.pop() if idle else await self._opened(url)
        try:
            answer = await connection.post(content, key)
        except BaseException:
            await asyncio.shield(connection.close())  # what is left of the answer belongs to no other call
            raise
        if connection.is_open:
            idle.append(connection)
        return answer

    async def get(self, url: str, timeout_s: float) -> HttpAnswer:
        """What stands at an address, asked for once; errors are those of httpx."""
        trusted = _trusted() if urlsplit(url).scheme == "https" else False  # it takes its time
        async with httpx.AsyncClient(headers=self._headers, timeout=timeout_s, verify=trusted) as client:
            response = await client.get(url)
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Closes all that are idle."""
        connections = list(chain.from_iterable(self._idle.values()))
        self._idle.clear()
        for connection in connections:
            await connection.close()
        await asyncio.sleep(0)  # in which the loop takes note of it

    async def _opened(self, url: str) -> Connection:
        if _has_proxy(url):
            return _Proxied(url, self._headers, self._timeout_s)
        if url not in self._addresses:
            self._addresses[url] = address_of(url, self._headers, _trusted())
        return await Wire.opened(self._addresses[url])


class _Proxied:
    """A connection through the proxy that the environment names, which httpx knows how to take."""

    is_open = True

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url = url
        written = {**headers, "Content-Type": "application/json"}
        self._client = httpx.AsyncClient(headers=written, limits=_ONE, timeout=timeout_s, verify=_trusted())

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        """See `Connection.post`."""
        response = await self._client.post(self._url, content=content, headers={"Idempotency-Key": key})
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Gives the connection back."""
        await self._client.aclose()


def _has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for this address."""
    parts, proxies = urlsplit(url), getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted, read once."""
    trusted = httpx.create_ssl_context()
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted
