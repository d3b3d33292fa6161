"""Who may use the review page: names on this machine, tokens anywhere else, and requests of our own page only."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import socket
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.web.guard import is_local

_NAME_LENGTH = 64


def reviewer_name(text: str) -> str:
    """A name as it is kept: NFC, single spaces; InputError for none, a long one or one with unseen characters."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not 0 < len(name) <= _NAME_LENGTH:
        raise InputError(f"a reviewer's name has 1 to {_NAME_LENGTH} characters", field="reviewer")
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co") for character in name):
        raise InputError("a reviewer's name has only characters that can be seen", field="reviewer")
    return name


@dataclass(frozen=True)
class Access:
    """Where the page is served and to whom.

    On this machine's own address anybody gives a name; whoever can open a connection there is trusted. Where reviewers
    are named each has a link of their own with a token, and nobody else gets in: any other address needs that. The
    secret behind the tokens lives as long as the object, so a new start means new links. Traffic is not encrypted.
    """

    host: str
    """The address that is bound."""
    port: int
    reviewers: Sequence[str] = ()
    """Names of those who get a link."""
    names: Sequence[str] = ()
    """Host names under which the page may be asked for, besides the address that is bound."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        reviewers = tuple(reviewer_name(name) for name in self.reviewers)
        object.__setattr__(self, "reviewers", reviewers)
        if len(set(reviewers)) < len(reviewers):
            raise InputError("two reviewers have the same name", field="reviewer")
        if not reviewers and not is_local(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines: every reviewer needs a link of their own",
                field="host",
                hint="name each with --reviewer, or serve on 127.0.0.1",
            )

    @property
    def _host_names(self) -> tuple[str, ...]:
        """Host names under which the page is asked for, the best for a link first."""
        on_every_address = self.host in ("0.0.0.0", "::")
        local = ("localhost", "127.0.0.1", "::1") if on_every_address or is_local(self.host) else ()
        return (*self.names, socket.gethostname() if on_every_address else self.host, *local)

    @property
    def hosts(self) -> frozenset[str]:
        """What the Host header may say; a name that resolves here by somebody else's doing is not among them."""
        names = [f"[{name}]" if ":" in name else name.lower() for name in self._host_names]
        with_port = [f"{name}:{self.port}" for name in names]
        return frozenset(with_port + (names if self.port == 80 else []))

    @property
    def cookie(self) -> str:
        """Its name; with the port, because browsers share cookies between the ports of a host."""
        return f"rubricflow_{self.port}"

    def url(self) -> str:
        """Where the page is."""
        name = self._host_names[0]
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"

    def links(self) -> dict[str, str]:
        """Reviewer → the link that lets them in, to be handed to nobody else; empty where a name is enough."""
        return {name: f"{self.url()}?{urlencode({'token': self.pass_for(name)})}" for name in self.reviewers}

    def pass_for(self, name: str) -> str:
        """What the cookie, and where there are tokens the link, holds."""
        plain = base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
        return f"{plain}.{self._signature(name)}" if self.reviewers else plain

    def reviewer(self, cookie: str | None) -> str | None:
        """Whose pass this is; None for none, a wrong one, or one of an earlier start."""
        plain, _, signature = (cookie or "").partition(".")
        try:
            name = reviewer_name(base64.b64decode(plain + "=" * (-len(plain) % 4), b"-_", validate=True).decode())
        except (InputError, binascii.Error, UnicodeError, ValueError):
            return None
        if not self.reviewers:
            return name
        right = hmac.compare_digest(signature.encode(), self._signature(name).encode())
        return name if right and name in self.reviewers else None

    def _signature(self, name: str) -> str:
        return hmac.new(self.secret, name.encode(), "sha256").hexdigest()
