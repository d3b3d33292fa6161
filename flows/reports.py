"""The command `report`: a run's reports written anew and, where wanted, shown in a browser.

What is shown is read only, a run's pages alone, with a token on any address but this machine's.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Port, RunId, WarehouseFolder
from rubricflow.flows.finished_runs import find_run, settle_scores
from rubricflow.flows.recorder import CURVES, gather
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.web.guard import is_local
from rubricflow.tasks.core.web.server import serve as serve_site
from rubricflow.tasks.grading.report.task import write_page
from rubricflow.tasks.methods.report.task import write_graders, write_policies
from rubricflow.tasks.people.report.task import write_annotation
from rubricflow.tasks.people.review.app import Access
from rubricflow.tasks.rewards.report.task import write_rewards, write_training

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


def report(
    run: RunId = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    serve: Annotated[bool, typer.Option("--serve", help="Show them in a browser until Ctrl-C.")] = False,
    host: Annotated[str, typer.Option(help="Address to serve on; any but this machine's own asks for a token.")] = (
        "127.0.0.1"
    ),
    port: Port = 8766,
    browser: Annotated[bool, typer.Option(help="Open the report in this machine's browser.")] = True,
) -> None:
    """Writes the reports and prints their paths; serves them until it is stopped, where that is wanted."""
    chosen = find_run(warehouse, run)
    settle_scores(chosen)
    pages = write_pages(chosen)
    print(*pages, sep="\n")
    if serve:
        for folder in ("data_docs", "graphs", "pictures"):
            chosen.warehouse.fetch_folder(chosen.folder / folder)
        access = Access(host, port, () if is_local(host) else (READER,))
        print(f"report: {access.links().get(READER, access.url())} (Ctrl-C stops it)", flush=True)
        site = create_site(chosen.folder, pages[0].name, access)
        serve_site(site, host, port, browser and not access.reviewers)


def write_pages(run: Run) -> list[Path]:
    """Write anew every report of a finished run, or of a training under way; StoreError if there is none."""
    gather(run)
    if run.shards(CURVES):  # a training has no end that a manifest could be written at
        return [write_training(run)]
    read_manifest(run)
    writers = {
        ("evaluate", "all"): write_page,
        ("reward", "all"): write_rewards,
        ("compare", "all"): write_annotation,
        ("bottleneck", "people"): write_graders,
        ("edit", "worth"): write_policies,
    }
    done = [write for shard, write in writers.items() if run.done(*shard)]
    if not done:
        raise StoreError(f"run {run.run_id} has no report: nothing was graded, rewarded, annotated or trained in it")
    return [write(run) for write in done]


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
