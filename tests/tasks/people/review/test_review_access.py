"""Who gets in: names on this machine, tokens elsewhere, and only what our own page asks."""

from __future__ import annotations

import json
import logging
import socket
import threading
from io import StringIO
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from review_scene import PORT, scene

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.web.server import serve
from rubricflow.tasks.people.review.app import Access, create_app, reviewer_name
from rubricflow.tasks.people.review.ledger import Ledger

BASE = f"http://127.0.0.1:{PORT}"
OWN = {"content-type": "application/json"}
VOTE = {
    "act_id": "6f6d3b52-3c3f-4a56-9c0f-000000000001",
    "kind": "submit",
    "subject_kind": "label",
    "response_id": "R-0412",
    "rater": "Ada",
}


@pytest.fixture
def closed(ledger_path: Path) -> tuple[TestClient, Access]:
    """A page that only Ada and Bo may use."""
    access = Access("127.0.0.1", PORT, reviewers=("Ada", "Bo"))
    return TestClient(create_app(scene(), ledger_path, access), base_url=BASE, headers=OWN), access


@given(st.text(min_size=1, max_size=64))
def test_a_name_comes_back_from_its_pass_and_hostile_ones_are_refused(text: str) -> None:
    open_to_all, closed = Access("localhost", PORT), Access("localhost", PORT, reviewers=("Ada",))
    try:
        name = reviewer_name(text)
    except InputError:
        return
    assert open_to_all.reviewer(open_to_all.pass_for(name)) == name
    assert closed.reviewer(open_to_all.pass_for(name)) is None
    assert closed.reviewer(closed.pass_for(name)) == (name if name == "Ada" else None)


@pytest.mark.parametrize("name", ["", "  ", "a" * 65, "\u202eadA", "Ada\x00", "\ud800", "Ada\u200b"])
def test_a_name_that_deceives_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="reviewer"):
        reviewer_name(name)


def test_a_pass_ends_with_its_start_and_its_secret_is_not_shown() -> None:
    first, second = (Access("127.0.0.1", PORT, reviewers=("Ada",)) for _ in range(2))
    assert first.reviewer(first.pass_for("Ada")) == "Ada"
    assert second.reviewer(first.pass_for("Ada")) is None
    assert repr(first.secret) not in repr(first)


def test_an_address_that_others_reach_needs_reviewers() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "marking.example"):
        with pytest.raises(InputError, match="link of their own"):
            Access(host, PORT)
    links = Access("192.0.2.7", PORT, reviewers=("Ada", "Bo")).links()
    assert list(links) == ["Ada", "Bo"]
    assert all(link.startswith(f"http://192.0.2.7:{PORT}/?token=") for link in links.values())
    with pytest.raises(InputError, match="same name"):
        Access("127.0.0.1", PORT, reviewers=("Ada", " Ada "))


def test_nothing_is_told_without_a_token(closed: tuple[TestClient, Access]) -> None:
    client, _ = closed
    for path in ("/", "/api/cases", "/api/cases/0", "/?token=QWRh.0"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "science" not in answer.text
        assert "potato" not in answer.text
    assert client.post("/api/acts", json=VOTE).status_code == 401
    assert client.post("/api/me", json={"name": "Ada"}).status_code == 403


def test_a_link_lets_its_reviewer_in_and_nobody_else(closed: tuple[TestClient, Access]) -> None:
    client, access = closed
    entered = client.get(access.links()["Bo"])
    assert entered.status_code == 200
    assert 'content="0; url=/"' in entered.text
    assert access.pass_for("Bo") not in entered.text
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/cases").json()["reviewer"] == "Bo"
    assert client.post("/api/acts", json=VOTE).status_code == 401  # Bo cannot speak for Ada


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "evil.example"},
        {"host": f"127.0.0.1:{PORT + 1}"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": None},
    ],
)
def test_another_page_cannot_act_in_a_reviewers_name(ledger_path: Path, wrong: dict[str, str | None]) -> None:
    client = TestClient(create_app(scene(), ledger_path, Access("127.0.0.1", PORT)), base_url=BASE)
    assert client.post("/api/me", json={"name": "Ada"}, headers=OWN).status_code == 200
    headers = {name: value for name, value in (OWN | wrong).items() if value is not None}
    expected = 403 if "content-type" not in wrong else 415
    assert client.post("/api/acts", content=json.dumps(VOTE).encode(), headers=headers).status_code == expected
    own = OWN | {"origin": BASE, "sec-fetch-site": "same-origin"}
    assert client.post("/api/acts", json=VOTE, headers=own).status_code == 409  # let through: it has no votes yet
    with Ledger(ledger_path) as ledger:
        assert ledger.acts("science") == []


def test_another_site_can_neither_read_nor_frame(ledger_path: Path) -> None:
    client = TestClient(create_app(scene(), ledger_path, Access("127.0.0.1", PORT)), base_url=BASE)
    client.post("/api/me", json={"name": "Ada"}, headers=OWN)
    assert client.get("/api/cases", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/api/cases", headers={"host": "evil.example"}).status_code == 403
    for answer in (client.get("/"), client.get("/nowhere"), client.get("/page/review.js"), client.get("/api/cases/99")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
    for name in ("..%2Fapp.py", "review.html.j2", "%2Fetc%2Fpasswd"):
        assert client.get(f"/page/{name}").status_code == 404


def test_a_token_is_in_no_log(ledger_path: Path) -> None:
    listening, logged = socket.create_server(("127.0.0.1", 0)), StringIO()
    port = listening.getsockname()[1]
    access = Access("127.0.0.1", port, reviewers=("Ada",))
    app = create_app(scene(), ledger_path, access)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="debug", access_log=True))
    for name in ("uvicorn", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).addHandler(logging.StreamHandler(logged))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert httpx.get(access.links()["Ada"], timeout=300).status_code == 200
    server.should_exit = True
    thread.join(300)
    assert "GET / HTTP" in logged.getvalue()
    assert "token" not in logged.getvalue()


def test_a_port_in_use_is_said(ledger_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = create_app(scene(), ledger_path, Access("127.0.0.1", port))
        with TestClient(app, base_url=f"http://127.0.0.1:{port}"):
            pass
        with pytest.raises(InputError, match="cannot be bound"):
            serve(app, "127.0.0.1", port, open_browser=False)
