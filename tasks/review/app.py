"""The review page's server: one HTML page, a JSON interface for its script, and every act in the ledger at once."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field, ValidationError
from starlette.requests import ClientDisconnect

from tasks.contracts.errors import StoreError, UserError
from tasks.contracts.schema import Frozen
from tasks.review.access import Access, Guard, reviewer_name
from tasks.review.board import Board
from tasks.review.ledger import Act, Ledger, Stored
from tasks.review.places import remember
from tasks.review.sight import NotAllowed, Reviews
from tasks.review.view import listed, opened

_LOG = logging.getLogger(__name__)
_PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_Model = TypeVar("_Model", bound=Frozen)
_BODY = 64 * 1024
"""Bytes of a request, at most."""
_HTML = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>{}</html>'
_ONWARD = _HTML.format('<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on</a></p>')
_CLOSED = _HTML.format("<p>Open the link that you were given. After a restart of the server there is a new one.</p>")


class Named(Frozen):
    """Who a reviewer says they are."""

    name: str = Field(max_length=500)


class Sent(Frozen):
    """An act as the page sends it."""

    act_id: str = Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    kind: Literal["vote", "undo", "submit", "adjudicate", "note"]
    subject_kind: Literal["label", "score"]
    response_id: str
    criterion_id: str | None = None
    value: str | None = None
    comment: str | None = Field(default=None, max_length=4000)
    undoes: str | None = None
    digest: str = ""
    rater: str
    """Whom the page was opened by: an act that waited is never stored under the name of somebody else."""
    shown: bool = False
    """Whether the page has shown more than the response, in a visit that the server may have forgotten."""

    def act(self, study: str) -> Act:
        """What the ledger takes, but for `blind`."""
        content = self.model_dump(exclude={"rater", "shown", "comment"})
        return Act(**content, study=study, rater_id=self.rater, comment=(self.comment or "").strip() or None)


class Desk:
    """The board with its ledger; safe for several threads."""

    def __init__(self, board: Board, ledger: Ledger) -> None:
        self._reviews, self._ledger, self._lock = Reviews(board), ledger, threading.Lock()
        self._study = board.study

    def listed(self, rater: str, adjudicating: bool) -> dict[str, Any]:
        with self._lock:
            self._catch_up()
            return listed(self._reviews, rater, adjudicating)

    def opened(self, number: int, rater: str, adjudicating: bool) -> dict[str, Any]:
        with self._lock:
            self._catch_up()
            cases = self._reviews.board.cases
            if not 0 <= number < len(cases):
                raise NotAllowed(404, "there is no such case")
            return opened(self._reviews, cases[number], rater, adjudicating)

    def store(self, sent: Sent) -> Stored:
        """The stored act; the same one sent again is answered alike. NotAllowed where it must not be stored."""
        act = sent.act(self._study)
        with self._lock:
            self._catch_up()
            known = self._reviews.known(act.act_id)
            if known is not None:
                if not _says(known, act):
                    raise NotAllowed(409, "another act has this id")
                return known
            case = self._reviews.case(act)
            if sent.shown:
                self._reviews.show(case, act.rater_id)
            self._reviews.check(case, act)
            if act.kind == "vote":
                act = replace(act, blind=self._reviews.is_blind(case, act.rater_id))
            stored = self._ledger.add(act)
            self._catch_up()  # with what others stored a moment before
            return stored

    def _catch_up(self) -> None:
        """Others write into the ledger, too."""
        self._reviews.take(self._ledger.acts(self._study, after=self._reviews.number))


def _says(known: Stored, act: Act) -> bool:
    """Whether a stored act is this one; what was added here when it came does not count."""
    return all(getattr(known, one.name) == getattr(act, one.name) for one in fields(Act) if one.name != "blind")


def create_app(board: Board, ledger_path: Path, access: Access) -> FastAPI:
    """The application; StoreError where the ledger cannot be used.

    What it answers: `GET /` the page; `GET /api/me` who asks; `POST /api/me` gives a name; `GET /api/cases` the list;
    `GET /api/cases/{number}` one case; `POST /api/acts` one act, answered once it is stored for good.
    """
    ledger = Ledger(ledger_path)

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        yield
        ledger.close()

    async def refused(_: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, error.status if isinstance(error, NotAllowed) else 422)

    async def unusable(_: Request, error: Exception) -> Response:
        _LOG.error("%s", error)  # it names a file of this machine
        return _json({"error": "the votes cannot be read or written now"}, 503)

    handlers: dict[Any, Any] = {NotAllowed: refused, UserError: refused, StoreError: unusable}
    app = FastAPI(lifespan=living, exception_handlers=handlers, openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, access=access)
    app.include_router(_page(board.title, access))
    app.include_router(_interface(Desk(board, ledger), access))
    return app


def _page(title: str, access: Access) -> APIRouter:
    """The page and its files."""
    routes = APIRouter()
    files = {path.name: path.read_bytes() for path in _PAGE.iterdir() if path.suffix in _KINDS}
    pages = Environment(loader=FileSystemLoader(_PAGE), autoescape=True, undefined=StrictUndefined)

    @routes.get("/")
    def page(request: Request, token: str | None = None) -> Response:
        if token is not None:
            return _entered(access, token)
        if access.reviewers and _known(access, request) is None:
            return Response(_CLOSED, 401, media_type="text/html")
        return Response(pages.get_template("review.html.j2").render(title=title), media_type="text/html")

    @routes.get("/page/{name}")
    def file(name: str) -> Response:
        if name not in files:
            raise NotAllowed(404, "there is no such file")
        return Response(files[name], media_type=_KINDS[Path(name).suffix])

    return routes


def _interface(desk: Desk, access: Access) -> APIRouter:
    """What the page's script asks."""
    routes = APIRouter(prefix="/api")

    def asking(request: Request) -> str:
        rater = _known(access, request)
        if rater is None:
            raise NotAllowed(401, "open the link that you were given" if access.reviewers else "say who you are")
        remember(request)
        return rater

    @routes.get("/me")
    def me(request: Request) -> Response:
        return _json({"reviewer": _known(access, request), "tokens": bool(access.reviewers)})

    @routes.post("/me")
    async def enter(request: Request) -> Response:
        if access.reviewers:
            raise NotAllowed(403, "open the link that you were given")
        name = reviewer_name((await _read(request, Named)).name)
        return _with_pass(_json({"reviewer": name}), access, name)

    @routes.get("/cases")
    def cases(request: Request, adjudicating: bool = False) -> Response:
        return _json(desk.listed(asking(request), adjudicating))

    @routes.get("/cases/{number}")
    def case(request: Request, number: int, adjudicating: bool = False) -> Response:
        return _json(desk.opened(number, asking(request), adjudicating))

    @routes.post("/acts")
    async def act(request: Request) -> Response:
        rater = asking(request)
        sent = await _read(request, Sent)
        if sent.rater != rater:
            raise NotAllowed(401, f"you are {rater} here now, not {sent.rater}")
        stored = await run_in_threadpool(desk.store, sent)
        return _json({"number": stored.number, "at": stored.at.isoformat(), "blind": stored.blind})

    return routes


def _json(content: object, status: int = 200) -> Response:
    """In ASCII: half a surrogate pair, which a student may have written, has no other encoding."""
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def _known(access: Access, request: Request) -> str | None:
    """Who asks, by their cookie."""
    return access.reviewer(request.cookies.get(access.cookie))


def _entered(access: Access, token: str) -> Response:
    """Lets a reviewer in by their link. A page that goes on by itself and not a redirect: a browser that came from a
    link elsewhere would not send the cookie along with one."""
    name = access.reviewer(token) if access.reviewers else None
    if name is None:
        return Response(_CLOSED, 401, media_type="text/html")
    return _with_pass(Response(_ONWARD, media_type="text/html"), access, name)


def _with_pass(response: Response, access: Access, name: str) -> Response:
    response.set_cookie(access.cookie, access.pass_for(name), httponly=True, samesite="strict", path="/")
    return response


async def _read(request: Request, model: type[_Model]) -> _Model:
    """The body as what it should be; NotAllowed for one that is too long or is something else."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise NotAllowed(415, "the body is JSON")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > _BODY:
                raise NotAllowed(413, f"the body is longer than {_BODY} bytes")
    except ClientDisconnect as error:
        raise NotAllowed(400, "the body has no end") from error
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NotAllowed(422, f"{where}: {first['msg']}" if where else first["msg"]) from error
