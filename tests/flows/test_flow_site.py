"""A run's reports in a browser: its pages and nothing else of it, for nobody but those who may."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from rubricflow.flows.reports import READER, create_site
from rubricflow.tasks.people.review.app import Access

SECRET = "a student's mark"
PARTS = [
    *("..", ".", "", "run", "responses", "ingest", "all.parquet", "manifest.json", ".lock", "other.html"),
    *("way-out.html", ".old.tmp.html", "%2e%2e", "..%2f", "\\..", "_done", "all.json", "x.html", "\x00.html"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a report, a picture, and what is not for browsers."""
    run = tmp_path / "run"
    for name in ("report.html", "pictures/a.html", "data_docs/static/style.css"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(f"page {name}")
    for name in ("manifest.json", ".lock", "responses/ingest/all.parquet", "_done/ingest/all.json", ".old.tmp.html"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(SECRET)
    (tmp_path / "other.html").write_text(SECRET)
    (run / "way-out.html").symlink_to(tmp_path / "other.html")
    return run


def client(folder: Path, access: Access) -> TestClient:
    return TestClient(create_site(folder, "report.html", access), base_url=access.url().rstrip("/"))


def test_on_this_machine_the_pages_open_without_a_word(folder: Path) -> None:
    with client(folder, Access("127.0.0.1", 8766)) as local:
        answer = local.get("/")
        assert (answer.status_code, answer.text, answer.url.path) == (200, "page report.html", "/report.html")
        assert local.get("/pictures/a.html").text == "page pictures/a.html"
        assert local.get("/data_docs/static/style.css").text == "page data_docs/static/style.css"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["", "", "", ".."])
@given(
    st.lists(
        st.sampled_from(PARTS),
        max_size=6,
    )
)
def test_nothing_else_of_the_machine_is_given_out(folder: Path, parts: list[str]) -> None:
    with client(folder, Access("127.0.0.1", 8766)) as local:
        for path in ("/".join(parts), quote("/".join(parts), safe="")):
            # A whole address: a relative one cannot begin with two slashes.
            answer = local.get(f"http://127.0.0.1:8766/{quote(path, safe='/%')}", follow_redirects=False)
            assert SECRET not in answer.text
            assert answer.status_code in (200, 307, 403, 404)


def test_nothing_can_be_changed_and_no_other_name_leads_there(folder: Path) -> None:
    with client(folder, Access("127.0.0.1", 8766)) as local:
        assert local.post("/report.html").status_code == 405
        assert local.delete("/report.html").status_code == 405
        assert local.get("/report.html", headers={"host": "evil.example:8766"}).status_code == 403


def test_elsewhere_the_link_with_the_token_opens_them(folder: Path) -> None:
    access = Access("192.0.2.7", 8766, (READER,))
    with client(folder, access) as stranger:
        assert stranger.get("/report.html").status_code == 403
        assert stranger.get("/report.html?token=wrong").status_code == 403
        link = urlsplit(access.links()[READER])
        answer = stranger.get(f"/?{link.query}")
        assert (answer.status_code, answer.url.query, answer.text) == (200, b"", "page report.html")
        assert stranger.get("/pictures/a.html").status_code == 200
