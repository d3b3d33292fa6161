"""Who may ask a server of ours, and how: under its own names, from no other page, with JSON that is not too long."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricflow.tasks.core.contracts.errors import InputError

TOKEN = "RUBRICFLOW_TOKEN"
"""The environment variable that holds the token, of the server and of its clients."""
TOKEN_FILE = Path(".rubricflow") / "token"
"""Where the token of this machine's servers is kept, in the user's home; `rubricflow.client` reads it there."""
_SHORTEST = 16
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class RefusedRequest(Exception):
    """A request that is not answered; status: of HTTP."""

    def __init__(self, status: int, rule: str) -> None:
        super().__init__(rule)
        self.status = status


class Guard:
    """Middleware around an application: refuses what a browser sends for another page, what is no JSON and what is too
    long, and puts the security headers on every answer.

    A page of another site can send a browser's request anywhere, but not with a content type of JSON, and not under
    our name: so neither a reviewer's votes nor a judge's calls can be made by it.
    """

    def __init__(
        self,
        app: ASGIApp,
        is_own: Callable[[str], bool],
        most_bytes: int,
        below: str = "/",
        admit: Callable[[Request], None] = lambda request: None,
    ) -> None:
        """is_own: whether a Host header, or the address in an Origin header, is this server's.

        most_bytes: of a body. below: paths that other sites may not even link to. admit: raises RefusedRequest.
        """
        self._app, self._is_own, self._most_bytes, self._below, self._admit = app, is_own, most_bytes, below, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["query_string"] = b""  # so that no server logs a token
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._app
        try:
            self._check(Request(scope))
        except RefusedRequest as error:
            answer = JSONResponse({"error": str(error)}, error.status)
        await answer(dict(scope), receive, guarded)

    def _check(self, request: Request) -> None:
        headers = request.headers
        is_read = request.method in ("GET", "HEAD")
        if not self._is_own(headers.get("host", "")):
            raise RefusedRequest(403, f"{headers.get('host', '')[:100]!r} is no name of this server")
        site = headers.get("sec-fetch-site")
        is_typed = request.method == "GET" and site == "none"
        if request.url.path.startswith(self._below) and site not in (None, "same-origin") and not is_typed:
            raise RefusedRequest(403, "asked by another page")
        if not is_read:
            origin = headers.get("origin")
            if origin is not None and not self._is_own(origin.removeprefix("http://").removeprefix("https://")):
                raise RefusedRequest(403, "asked by another page")
        self._admit(request)
        if not is_read:
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise RefusedRequest(415, "the body is JSON, and the header Content-Type has to say so")
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length[:20]) > self._most_bytes:
                raise too_long(self._most_bytes)


def too_long(most_bytes: int) -> RefusedRequest:
    """What is said of a body beyond so many bytes."""
    return RefusedRequest(413, f"the body is longer than {most_bytes:,} bytes")


async def body_of(request: Request, most_bytes: int) -> bytes:
    """The body of a request; RefusedRequest as soon as it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise too_long(most_bytes)
    return bytes(body)


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class TokenGate:
    """The address that is bound, and the token that a request has to carry there."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    """None lets in whoever can open a connection on this machine."""

    def __post_init__(self) -> None:
        if self.token is None and not is_local(self.host):
            rule = f"{self.host} can be reached from other machines, so every request has to carry a token"
            raise InputError(rule, field="host", hint=f"set {TOKEN} here and where the trainer runs")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InputError("the token has characters that no header can carry", field=TOKEN)
        if self.token is not None and len(self.token) < _SHORTEST:
            raise InputError(f"the token is shorter than {_SHORTEST} characters", field=TOKEN)

    @property
    def url(self) -> str:
        """Where a client on this machine finds the server."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def is_own(self, address: str) -> bool:
        """Whether a Host header names this machine; any name will do where the server is bound for others, too, who
        know it by names that it does not."""
        try:
            name = urlsplit(f"//{address}").hostname or ""
        except ValueError:
            return False
        return is_local(name) or not is_local(self.host)

    def check(self, said: str) -> None:
        """RefusedRequest where this is not the token; `said` as a header `Authorization` has it."""
        if self.token is None:
            return
        if not hmac.compare_digest(said.encode("utf-8", "replace"), f"Bearer {self.token}".encode()):
            rule = f"the request carries no token, or a wrong one; clients take it from {TOKEN} or ~/{TOKEN_FILE}"
            raise RefusedRequest(401, rule)


def kept_token() -> str:
    """The token of this user's servers: that of the environment, or the one kept in the user's home, made at first.

    InputError where it cannot be kept, or others can read it.
    """
    if given := os.environ.get(TOKEN):
        return given
    path = Path.home() / TOKEN_FILE
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32))
        except FileExistsError:
            pass
        if path.stat().st_mode & 0o077:
            raise InputError("others on this machine can read the token", file=path, hint="chmod 600, or delete it")
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = f"set {TOKEN}, or serve with --no-token"
        raise InputError(f"the token cannot be kept: {error}", file=path, hint=hint) from error
