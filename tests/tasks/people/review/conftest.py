"""The review page for tests: a client without a browser, a server of its own, and the machine's browser."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.waiting import until
from fastapi.testclient import TestClient
from review_scene import PORT, scene

from rubricflow.tasks.core.web.server import Limits, Server, usual_limits
from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Board, Follow

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    return tmp_path / "votes.sqlite"


@pytest.fixture
def visit(ledger_path: Path) -> Iterator[Callable[..., TestClient]]:
    """visit(name, board): a client that is let in under a name, all on one ledger and one server."""
    apps: dict[int, Any] = {}

    def let_in(name: str, board: Board | None = None) -> TestClient:
        if id(board) not in apps:
            apps[id(board)] = create_app(board or scene(), ledger_path, Access("127.0.0.1", PORT))
        client = TestClient(apps[id(board)], base_url=f"http://127.0.0.1:{PORT}")
        assert client.post("/api/me", json={"name": name}).status_code == 200
        return client

    yield let_in
    for app in apps.values():
        with TestClient(app):
            pass  # which closes the ledger


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The machine's own chromium, started once. Playwright runs an event loop until it is stopped, in which other tests
    of the process would find themselves."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("needs chromium or google-chrome on this machine")
    sync = pytest.importorskip("playwright.sync_api", reason="needs playwright, an extra of the tests")
    with sync.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=300_000)
        yield started
        started.close()


@pytest.fixture
def started() -> list[tuple[Server, threading.Thread]]:
    """What `serving` has started."""
    return []


@pytest.fixture
def serving(ledger_path: Path, started: list[tuple[Server, threading.Thread]]) -> Iterator[Callable[..., str]]:
    """serving(board, limits, follow): serves it in a thread, and says where."""

    def serve(board: Board | None = None, limits: Limits | None = None, follow: Follow | None = None) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        app = create_app(board or scene(), ledger_path, Access("127.0.0.1", port), follow)
        server = Server(app, listening, limits or usual_limits())
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        started.append((server, thread))
        until(lambda: server.started)
        return f"http://127.0.0.1:{port}/"

    yield serve
    for server, thread in started:
        server.should_exit = True
        thread.join(300)
        assert not thread.is_alive()
        server.listening.close()


@pytest.fixture
def person(browser: Any) -> Iterator[Callable[..., Any]]:
    """person(url, name): a page of somebody's own browser; what goes wrong in it fails the test."""
    contexts, faults = [], []

    def come(url: str, name: str, **settings: Any) -> Any:
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        page.on(
            "dialog",
            lambda dialog: (
                (faults.append(dialog.message), dialog.accept())[1] if dialog.type != "beforeunload" else None
            ),
        )
        page.goto(url)
        page.fill("#name", name)
        page.keyboard.press("Enter")
        page.wait_for_selector(".crit.now")
        return page

    yield come
    for context in contexts:
        context.close()
    assert faults == []
