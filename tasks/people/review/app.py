"""The review page's server: one HTML page, a JSON interface for its script, and every act in the ledger at once."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field, ValidationError
from starlette.requests import ClientDisconnect

from rubricflow.tasks.core.contracts.errors import StoreError, UserError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.web.guard import Guard, RefusedRequest, body_of
from rubricflow.tasks.core.web.server import remember
from rubricflow.tasks.people.review.access import Access, reviewer_name
from rubricflow.tasks.people.review.board import Board
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.predicted import Follow
from rubricflow.tasks.people.review.reviews import NotAllowed
from rubricflow.tasks.people.review.view import Desk, Levels, Sent

_LOG = logging.getLogger(__name__)
_PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_Model = TypeVar("_Model", bound=Frozen)
_BODY = 64 * 1024
"""Bytes of a request, at most."""
_HTML = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Review</title>{}</html>'
_ONWARD = _HTML.format('<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on</a></p>')
_CLOSED = _HTML.format("<p>Open the link that you were given. After a restart of the server there is a new one.</p>")


class ReviewerName(Frozen):
    """Who a reviewer says they are."""

    name: str = Field(max_length=500)


def create_app(board: Board, ledger_path: Path, access: Access, follow: Follow | None = None) -> FastAPI:
    """The application; StoreError where the ledger cannot be used. follow: how scores follow from levels, if they do.

    What it answers: `GET /` the page; `GET /api/me` who asks; `POST /api/me` gives a name; `GET /api/cases` the list;
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
    app.include_router(_interface(Desk(board, ledger, follow), access))
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
        if access.reviewers and _reviewer(access, request) is None:
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
        return _json(desk.listed(asking(request), adjudicating))

    @routes.get("/cases/{number}")
    def case(request: Request, number: int, adjudicating: bool = False) -> Response:
        return _json(desk.opened(number, asking(request), adjudicating))

    @routes.post("/cases/{number}/following")
    async def following(request: Request, number: int) -> Response:
        rater = asking(request)
        sent = await _read(request, Levels)
        return _json(await run_in_threadpool(desk.following, number, rater, sent.levels))

    @routes.post("/acts")
    async def act(request: Request) -> Response:
        rater = asking(request)
        sent = await _read(request, Sent)
        if sent.rater != rater:
            raise NotAllowed(401, f"you are {rater} here now, not {sent.rater}")
        stored = await run_in_threadpool(desk.store, sent)
        return _json({"number": stored.number, "at": stored.stored_at.isoformat(), "blind": stored.blind})

    return routes


def _json(content: object, status: int = 200) -> Response:
    """In ASCII: half a surrogate pair, which a student may have written, has no other encoding."""
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def _reviewer(access: Access, request: Request) -> str | None:
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
