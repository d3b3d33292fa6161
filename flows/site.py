"""A run's reports in a browser: read only, its pages alone, with a token on any address but this machine's."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from rubricflow.tasks.core.web.guard import is_local
from rubricflow.tasks.core.web.server import serve
from rubricflow.tasks.people.review.app import Access

READER = "reader"
"""Who has the link, where one is needed."""
SUFFIXES = {".html", ".css", ".svg", ".png"}
"""What a page is made of: tables, labels and locks of the run are not served."""
HEADERS = {
    # No page has a script, and none is run that somebody wrote into an answer.
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
Answer = Callable[[Request], Awaitable[Response]]


def serve_pages(folder: Path, first: str, host: str, port: int, open_browser: bool) -> None:
    """Serves a run's pages until it is stopped, and prints where; InputError where the address cannot be bound.

    first: name of the page that `/` leads to.
    """
    access = Access(host, port, () if is_local(host) else (READER,))
    print(f"report: {access.links().get(READER, access.url())} (Ctrl-C stops it)", flush=True)
    serve(create_site(folder, first, access), host, port, open_browser and not access.reviewers)


def create_site(folder: Path, first: str, access: Access) -> FastAPI:
    """The application: pages below `folder` for those whom `access` lets in."""
    site = FastAPI(openapi_url=None)

    @site.middleware("http")
    async def guard(request: Request, answer: Answer) -> Response:
        response = refusal(request, access) or entrance(request, access) or await answer(request)
        response.headers.update(HEADERS)
        return response

    @site.get("/")
    def front() -> Response:
        return RedirectResponse(f"/{first}")

    site.mount("/", Pages(directory=folder))
    return site


def refusal(request: Request, access: Access) -> Response | None:
    """What somebody gets who may not see the pages: another name of this machine, a change, no token."""
    if request.headers.get("host", "").lower() not in access.hosts:
        return PlainTextResponse("this name is not the page's", 403)
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("the pages are read only", 405)
    token = request.query_params.get("token") or request.cookies.get(access.cookie)
    if access.reviewers and access.reviewer(token) is None:
        return PlainTextResponse("the link that the command printed opens these pages", 403)
    return None


def entrance(request: Request, access: Access) -> Response | None:
    """Puts the token of a link into a cookie, and leads to the page without it; None where the link holds none."""
    token = request.query_params.get("token")
    if token is None or not access.reviewers:
        return None
    response = RedirectResponse("/")
    response.set_cookie(access.cookie, token, httponly=True, samesite="strict")
    return response


class Pages(StaticFiles):
    """Files of a folder that pages are made of, none of them hidden."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Full path and status of a file; nothing for what is no part of a page."""
        parts = Path(path).parts
        if Path(path).suffix not in SUFFIXES or any(part.startswith(".") for part in parts):
            return "", None
        return super().lookup_path(path)
