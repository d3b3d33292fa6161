"""Who may ask a server of ours: names, origins, content types, lengths, tokens, on random requests."""

import stat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.web.guard import TOKEN, TOKEN_FILE, Guard, RefusedRequest, TokenGate, body_of, kept_token

MOST = 100
SECRET = "a-token-of-some-length"
JSON = {"content-type": "application/json"}


def client(gate=None, **more):
    """A client of an application that says how long its body was, behind the guard."""
    gate = gate or TokenGate("127.0.0.1", 80)

    async def answer(request: Request):
        try:
            return PlainTextResponse(str(len(await body_of(request, MOST))))
        except RefusedRequest as error:
            return PlainTextResponse("", error.status)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT", "DELETE"])])
    app.add_middleware(Guard, is_own=gate.is_own, most_bytes=MOST, **more)
    return TestClient(app, base_url="http://127.0.0.1")


KINDS = st.one_of(
    st.sampled_from(["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/json"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
)


@given(KINDS, st.sampled_from(["POST", "PUT", "DELETE"]))
@example("text/plain; application/json", "POST")
@example("application/jsonp", "POST")
def test_what_a_form_can_send_is_refused(kind, method):
    expected = 200 if kind.partition(";")[0].strip().lower() == "application/json" else 415
    assert client().request(method, "/x", content=b"{}", headers={"content-type": kind}).status_code == expected


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_answered_in_every_spelling(kind):
    assert client().post("/x", content=b"{}", headers={"content-type": kind}).status_code == 200


@given(st.from_regex(r"[a-z0-9.\-]{1,20}(:[0-9]{1,4})?", fullmatch=True))
@example("127.0.0.1.evil.example")
@example("localhost.evil.example:80")
@example("evil.example:80")
def test_another_hosts_name_or_page_is_refused(name):
    gate = TokenGate("127.0.0.1", 80)
    if not gate.is_own(name):
        assert client().post("/x", content=b"{}", headers={**JSON, "host": name}).status_code == 403
        assert client().get("/x", headers={"host": name}).status_code == 403
        for scheme in ("http://", "https://", ""):
            origin = {**JSON, "origin": f"{scheme}{name}"}
            assert client().post("/x", content=b"{}", headers=origin).status_code == 403


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:8321", "localhost:1", "LOCALHOST", "[::1]:8321", "127.9.9.9"])
def test_this_machine_is_known_by_its_names(name):
    own = {**JSON, "host": name, "origin": f"http://{name}"}
    assert client().post("/x", content=b"{}", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("site", "get", "post"),
    [("cross-site", 403, 403), ("same-site", 403, 403), ("none", 200, 403), ("same-origin", 200, 200)],
)
def test_where_a_browser_says_that_it_comes_from(site, get, post):
    header = {**JSON, "sec-fetch-site": site}
    assert client().get("/x", headers=header).status_code == get
    assert client().post("/x", content=b"{}", headers=header).status_code == post
    linked = client(below="/api/")
    assert linked.get("/", headers=header).status_code == 200
    assert linked.get("/api/x", headers=header).status_code == get


@pytest.mark.parametrize(("size", "status"), [(MOST - 1, 200), (MOST, 200), (MOST + 1, 413)])
def test_a_body_has_a_most_length_said_or_not(size, status):
    def chunks():
        yield from (b"x" for _ in range(size))

    assert client().post("/x", content=b"x" * size, headers=JSON).status_code == status
    assert client().post("/x", content=chunks(), headers=JSON).status_code == status


@pytest.mark.parametrize("length", ["-1", "1e9", "x", str(MOST + 1), "9" * 500])
def test_a_length_that_is_none_is_refused_unread(length):
    assert client().post("/x", content=b"{}", headers={**JSON, "content-length": length}).status_code == 413


def test_every_answer_carries_the_headers_of_safety():
    for answer in (client().get("/x"), client().post("/x"), client().get("/x", headers={"host": "evil.example"})):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
@example(f"bearer {SECRET}")
@example(f"Bearer {SECRET} ")
@example(SECRET)
def test_no_other_text_is_the_token(said):
    gate = TokenGate("127.0.0.1", 80, SECRET)
    if said != f"Bearer {SECRET}":
        with pytest.raises(RefusedRequest) as refused:
            gate.check(said)
        assert refused.value.status == 401
    gate.check(f"Bearer {SECRET}")
    TokenGate("127.0.0.1", 80).check(said)


def test_elsewhere_any_name_will_do_and_a_token_has_to_be():
    assert TokenGate("0.0.0.0", 80, SECRET).is_own("rewards.internal:8321")
    for host in ("0.0.0.0", "::", "192.0.2.7", "rewards.internal"):
        with pytest.raises(InputError, match="token"):
            TokenGate(host, 80)


def test_the_token_is_made_once_and_only_its_owner_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(TOKEN, raising=False)
    first = kept_token()
    assert len(first) >= 32
    assert kept_token() == first
    path = tmp_path / TOKEN_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(InputError, match="others"):
        kept_token()
    monkeypatch.setenv(TOKEN, SECRET)
    assert kept_token() == SECRET


def test_a_home_that_cannot_be_written_is_told_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(InputError, match="--no-token"):
        kept_token()
