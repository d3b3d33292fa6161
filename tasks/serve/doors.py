"""Who may ask: programs on this machine, and elsewhere those with the token."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field

from starlette.requests import Request

from tasks.contracts.errors import InputError

TOKEN = "RUBRICFLOW_TOKEN"
"""The environment variable that holds the token, of the server and of its clients."""
MOST_BYTES = 64 * 1024 * 1024
"""Of a request's body."""
_SHORTEST = 16


@dataclass(frozen=True)
class ServerGate:
    """The address that is bound, and the token that a request has to carry there."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

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

    def refusal(self, request: Request) -> str | None:
        """Why a request is not answered; None where it is.

        Without a token a request has to name this machine as its host, so that no page of a browser's can ask.
        """
        if self.token is not None:
            said = request.headers.get("authorization", "")
            wanted = f"Bearer {self.token}"
            if hmac.compare_digest(said.encode("utf-8", "replace"), wanted.encode()):
                return None
            return f"the request carries no token, or a wrong one; clients take it from {TOKEN}"
        name = request.url.hostname or ""
        return None if is_local(name) else f"'{name[:100]}' is no name of this machine"


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TooLongError(Exception):
    """A body beyond `MOST_BYTES`."""


async def body_of(request: Request) -> bytes:
    """The body of a request; TooLongError as soon as it is too long."""
    chunks, size = list[bytes](), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MOST_BYTES:
            raise TooLongError
        chunks.append(chunk)
    return b"".join(chunks)
