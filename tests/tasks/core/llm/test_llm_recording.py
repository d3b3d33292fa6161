"""Recorded replies: what is written comes back, what was changed is noticed, and what is not there is told apart."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backends.replay import (
    Header,
    Recorded,
    RecordedCall,
    Recording,
    Speaker,
    as_lines,
    read_recording,
    write_recording,
)
from rubricflow.tasks.core.llm.opening import model_of, open_backend
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request, Token, digest

SPEAKER = Speaker(
    who="judge",
    name="m",
    weights=None,
    model="m@1",
    mender="small@2",
    structured=True,
    logprobs=3,
    sampling=Sampling(max_tokens=600),
)
HEADER = Header(
    format=0,
    run_id="r-1",
    recorded="2026-11-22T10:00:00+00:00",
    speakers=(SPEAKER,),
    versions={"python": "3.11"},
    replies=0,
    errors=0,
    content="",
)


def asking(subject: str = "a", system: str = "rubric", user: str = "text", **more: object) -> Request:
    messages = Message("system", system), Message("user", user)
    return Request(**{"messages": messages, "role": "grade", "subject": subject, "sampling": SPEAKER.sampling} | more)


def row(request: Request, model: str = "m@1", error: str | None = None) -> dict[str, str | None]:
    """A request as `attempts` has it."""
    said = {"system": request.content_of("system"), "prompt": request.content_of("user"), "error": error}
    return {"request_digest": digest(request, model), "response_id": request.subject, **said}


def recorded(path: Path, *asked: tuple[Request, str, Reply], header: Header = HEADER) -> Recording:
    lines, lost = as_lines(
        [row(request, model, reply.error) for request, model, reply in asked],
        {digest(request, model): reply for request, model, reply in asked if reply.error is None},
    )
    assert not lost
    write_recording(path, header, lines)
    return read_recording(path)


replies = st.builds(
    Reply,
    text=st.text(),
    prompt_tokens=st.none() | st.integers(0, 10**6),
    latency_s=st.none() | st.floats(0, 100),
    token_logprobs=st.none() | st.lists(st.builds(Token, st.text(), st.floats(-50, 0), st.just((("x", -0.5),)))),
    level_probabilities=st.none() | st.dictionaries(st.text(max_size=5), st.lists(st.floats(0, 1), max_size=4)),
) | st.builds(Reply, error=st.text(min_size=1))


@given(st.lists(st.tuples(st.text(max_size=20), replies), unique_by=lambda pair: pair[0], min_size=1, max_size=8))
def test_every_reply_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, said: list) -> None:
    path = tmp_path_factory.mktemp("r") / "replies.parquet"
    asked = [(asking(user=f"{n} {text}"), "m@1", reply) for n, (text, reply) in enumerate(said)]
    recording = recorded(path, *asked)
    backend = Recorded(recording, SPEAKER)
    assert [reply for _, reply in backend.answer([request for request, *_ in asked])] == [reply for *_, reply in asked]
    errors = sum(reply.error is not None for *_, reply in asked)
    assert (recording.header.replies, recording.header.errors) == (len(said) - errors, errors)


def test_who_mends_answers_under_a_name_of_its_own(tmp_path: Path) -> None:
    request = asking()
    recording = recorded(
        tmp_path / "r", (request, "m@1", Reply(text="bad")), (request, "small@2", Reply(text="mended"))
    )
    judge, mender = Recorded(recording, SPEAKER), Recorded(recording, SPEAKER, mends=True)
    assert [reply.text for one in (judge, mender) for _, reply in one.answer([request])] == ["bad", "mended"]


def test_an_answer_counts_before_the_error_that_came_first() -> None:
    request = asking()
    asked = [row(request, error="empty: nothing"), row(request), row(asking("b", user="long"), error="too_long: x")]
    lines, lost = as_lines(asked, {digest(request, "m@1"): Reply(text="later")})
    assert sorted(line.reply for line in lines) == ['{"error":"too_long: x"}', '{"text":"later"}']
    assert not lost
    assert as_lines(asked[1:2], {})[1] == {digest(request, "m@1")}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (asking("new", user="new"), "1 about responses that were not there"),
        (asking(system="another rubric"), "1 with other instructions"),
        (asking(user="another text"), "1 with another message about the response"),
        (asking(sampling=Sampling(max_tokens=9)), "1 with another sampling (max_tokens 9, recorded with 600)"),
        (asking(schema={"type": "object"}), "1 under another contract"),
        (asking(want_logprobs=True), "1 under another contract"),
    ],
)
def test_what_is_not_recorded_is_told_apart_and_nothing_is_answered(tmp_path: Path, request_, told) -> None:
    recording = recorded(tmp_path / "replies.parquet", (asking(), "m@1", Reply(text="x")))
    given = Recorded(recording, SPEAKER).answer([asking(), request_, asking()])
    with pytest.raises(InputError) as refused:
        list(given)
    assert f"replies.parquet: it holds no reply to 1 of 3 requests: {told}" in str(refused.value)
    assert "rubricflow replies --to FILE" in str(refused.value)


@pytest.mark.parametrize("column", ["request_digest", "subject", "instructions", "prompt", "reply"])
def test_a_changed_row_is_noticed(tmp_path: Path, column: str) -> None:
    path = tmp_path / "replies.parquet"
    recorded(path, (asking(), "m@1", Reply(text="x")), (asking("b", user="other"), "m@1", Reply(text="y")))
    table = pq.read_table(path)
    values = table[column].to_pylist()
    at = table.column_names.index(column)
    changed = table.set_column(at, table.schema.field(at), [[values[0], (values[1] or "") + " "]])
    pq.write_table(changed, path)
    with pytest.raises(InputError, match="changed since they were recorded"):
        read_recording(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(InputError, match="changed since they were recorded"):
        read_recording(path)


def test_a_changed_header_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "replies.parquet"
    recorded(path, (asking(), "m@1", Reply(text="x")))
    table = pq.read_table(path)
    ((name, content),) = table.schema.metadata.items()
    pq.write_table(table.replace_schema_metadata({name: content.replace(b'"m"', b'"n"')}), path)
    with pytest.raises(InputError, match="changed since it was written"):
        read_recording(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(InputError, match="no file of recorded replies"):
        read_recording(path)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_never_changes_a_reply(tmp_path_factory, at: int, by: int) -> None:
    path = tmp_path_factory.mktemp("r") / "replies.parquet"
    recorded(path, (asking(), "m@1", Reply(text="x" * 50)))
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= by
    path.write_bytes(bytes(content))
    with suppress(InputError):
        assert read_recording(path).reply(digest(asking(), "m@1")) == Reply(text="x" * 50)


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.parquet: there is no such file of recorded replies"):
        read_recording(tmp_path / "gone.parquet")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="it cannot be read"):
        read_recording(tmp_path / "text")


def test_settings_open_the_judge_of_a_file_or_whom_they_name(tmp_path: Path) -> None:
    other = SPEAKER.model_copy(update={"who": "first", "name": "n", "model": "n@3"})
    header = HEADER.model_copy(update={"speakers": (SPEAKER, other)})
    recorded(tmp_path / "r", (asking(), "m@1", Reply(text="x")), header=header)
    with ReplyStore(":memory:") as store:
        names = {None: "m@1", "n": "n@3", "first": "n@3", "n@3": "n@3"}
        for name, model in names.items():
            choice = Judge(backend="replay", replies="r", model=name)
            assert open_backend(choice, tmp_path, store).model == model_of(choice, tmp_path) == model
    with pytest.raises(InputError, match="has no replies of 'who'"):
        model_of(Judge(backend="replay", replies="r", model="who"), tmp_path)


def test_the_rows_are_in_one_order_whatever_order_they_came_in(tmp_path: Path) -> None:
    lines = [RecordedCall(str(n), "a", None, None, '{"text":"x"}') for n in range(5)]
    forward, backward = (
        write_recording(tmp_path / name, HEADER, some) for name, some in (("f", lines), ("b", lines[::-1]))
    )
    assert forward == backward
    assert (tmp_path / "f").read_bytes() == (tmp_path / "b").read_bytes()
