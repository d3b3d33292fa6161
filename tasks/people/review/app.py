"""The review page's server: who may use it, one HTML page, a JSON interface for its script, and every act in the ledger
at once."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import secrets
import socket
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field, ValidationError
from starlette.requests import ClientDisconnect

from rubricflow.tasks.core.contracts.errors import InputError, StoreError, UserError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.web.guard import Guard, RefusedRequest, body_of, is_local
from rubricflow.tasks.core.web.server import remember
from rubricflow.tasks.people.review.board import Board, Follow
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.reviews import NotAllowed
from rubricflow.tasks.people.review.view import Levels, ReviewService, Sent

_LOG = logging.getLogger(__name__)
_PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_Model = TypeVar("_Model", bound=Frozen)
_BODY = 64 * 1024
"""Bytes of a request, at most."""
_HTML = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>{}</html>'
_ONWARD = _HTML.format('<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on</a></p>')
_CLOSED = _HTML.format("<p>Open the link that you were given. After a restart of the server there is a new one.</p>")
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
        return (socket.gethostname() if on_every_address else self.host, *local)

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
        except (InputError, ValueError):  # of base64 and of its encoding, too
            return None
        if not self.reviewers:
            return name
        right = hmac.compare_digest(signature.encode(), self._signature(name).encode())
        return name if right and name in self.reviewers else None

    def _signature(self, name: str) -> str:
        return hmac.new(self.secret, name.encode(), "sha256").hexdigest()


class ReviewerName(Frozen):
    """The name that a reviewer gives."""

    name: str = Field(max_length=500)


def create_app(
    board: Board,
    ledger_path: Path,
    access: Access,
    follow: Follow | None = None,
    on_stored: Callable[[], object] | None = None,
) -> FastAPI:
    """The application; StoreError where the ledger cannot be used. follow: how scores follow from levels, if they do;
    on_stored: called after every act that was stored.

    Routes: `GET /` the page; `GET /api/me` the reviewer; `POST /api/me` gives a name; `GET /api/cases` the list;
    `GET /api/cases/{number}` one case; `POST /api/cases/{number}/following` the score that follows from levels;
    `POST /api/acts` one act, answered once it is stored for good.
    """
    ledger = Ledger(ledger_path)

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        yield
        ledger.close()

    async def refused(_: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, getattr(error, "status", 422))

    async def unusable(_: Request, error: Exception) -> Response:
        _LOG.error("%s", error)  # it names a file of this machine
        return _json({"error": "the votes cannot be read or written now"}, 503)

    handlers: dict[Any, Any] = {NotAllowed: refused, RefusedRequest: refused, UserError: refused, StoreError: unusable}
    app = FastAPI(lifespan=living, exception_handlers=handlers, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.loggers = (__name__,)
    hosts = access.hosts
    app.add_middleware(Guard, is_own=lambda address: address.lower() in hosts, most_bytes=_BODY, below="/api/")
    app.include_router(_page(board.title, access))
    app.include_router(_interface(ReviewService(board, ledger, follow, on_stored), access))
    return app


def _page(title: str, access: Access) -> APIRouter:
    routes = APIRouter()
    files = {path.name: path.read_bytes() for path in _PAGE.iterdir() if path.suffix in _KINDS}
    pages = Environment(loader=FileSystemLoader(_PAGE), autoescape=True, undefined=StrictUndefined)

    @routes.get("/")
    def page(request: Request, token: str | None = None) -> Response:
        name = _reviewer(access, request) if token is None else access.reviewer(token) if access.reviewers else None
        if name is None and (access.reviewers or token is not None):
            return Response(_CLOSED, 401, media_type="text/html")
        if name is not None and token is not None:
            # A page that goes on by itself and not a redirect: a browser that came from a link elsewhere would not send
            # the cookie along with one.
            return _with_pass(Response(_ONWARD, media_type="text/html"), access, name)
        return Response(pages.get_template("review.html.j2").render(title=title), media_type="text/html")

    @routes.get("/page/{name}")
    def file(name: str) -> Response:
        if name not in files:
            raise NotAllowed(404, "there is no such file")
        return Response(files[name], media_type=_KINDS[Path(name).suffix])

    return routes


def _interface(service: ReviewService, access: Access) -> APIRouter:
    """What the page's script asks."""
    routes = APIRouter(prefix="/api")

    def asking(request: Request) -> str:
        rater = _reviewer(access, request)
        if rater is None:
            raise NotAllowed(401, "open the link that you were given" if access.reviewers else "say who you are")
        remember(request)
        return rater

    @routes.get("/me")
    def me(request: Request) -> Response:
        return _json({"reviewer": _reviewer(access, request), "tokens": bool(access.reviewers)})

    @routes.post("/me")
    async def enter(request: Request) -> Response:
        if access.reviewers:
            raise NotAllowed(403, "open the link that you were given")
        name = reviewer_name((await _read(request, ReviewerName)).name)
        return _with_pass(_json({"reviewer": name}), access, name)

    @routes.get("/cases")
    def cases(request: Request, adjudicating: bool = False) -> Response:
        return _json(service.list_cases(asking(request), adjudicating))

    @routes.get("/cases/{number}")
    def case(request: Request, number: int, adjudicating: bool = False) -> Response:
        return _json(service.show_case(number, asking(request), adjudicating))

    @routes.post("/cases/{number}/following")
    async def following(request: Request, number: int) -> Response:
        rater = asking(request)
        sent = await _read(request, Levels)
        return _json(await run_in_threadpool(service.following, number, rater, sent.levels))

    @routes.post("/acts")
    async def act(request: Request) -> Response:
        rater = asking(request)
        sent = await _read(request, Sent)
        if sent.rater != rater:
            raise NotAllowed(401, f"you are {rater} here now, not {sent.rater}")
        stored = await run_in_threadpool(service.store, sent)
        return _json({"number": stored.number, "at": stored.stored_at.isoformat(), "blind": stored.blind})

    return routes


def _json(content: object, status: int = 200) -> Response:
    """In ASCII: half a surrogate pair, which a student may have written, has no other encoding."""
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def _reviewer(access: Access, request: Request) -> str | None:
    return access.reviewer(request.cookies.get(access.cookie))


def _with_pass(response: Response, access: Access, name: str) -> Response:
    response.set_cookie(access.cookie, access.pass_for(name), httponly=True, samesite="strict", path="/")
    return response


async def _read(request: Request, model: type[_Model]) -> _Model:
    """The body as what it should be; NotAllowed or RefusedRequest for one that is too long or is something else."""
    try:
        body = await body_of(request, _BODY)
    except ClientDisconnect as error:
        raise NotAllowed(400, "the body has no end") from error
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NotAllowed(422, f"{where}: {first['msg']}" if where else first["msg"]) from error
