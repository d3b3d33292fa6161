"""The mailbox's files: what is written, whatever students write, and what is said of answers, whatever is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.mailbox import NotedRequest
from rubricflow.tasks.core.llm.mailbox_files import as_lines, as_markdown, is_same_model, read_sections
from rubricflow.tasks.core.llm.mailbox_folder import opened
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Request, digest

ENGINE = Engine(model="strong")
BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"]


def noted(*texts: str) -> dict[str, NotedRequest]:
    made = {}
    for text in texts:
        request = Request(messages=(Message("system", "Grade."), Message("user", text)), role="grade", subject=text)
        made[digest(request, "strong")] = NotedRequest(request, "strong", ENGINE)
    return made


def openai(key: str, content: str | None = '{"level":1}', **more: Any) -> str:
    message = {"role": "assistant", "content": content, "refusal": more.pop("refusal", None)}
    body = {
        "model": "strong-2026-01-01",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {},
    } | more
    return json.dumps({"custom_id": key, "response": {"status_code": 200, "body": body}, "error": None})


@given(
    st.lists(st.sampled_from([*BREAKS, "## ", "0123456789abcdef", "# System prompt S1", "```", "    ", "x", "\ud800"]))
)
def test_no_text_of_a_case_begins_a_line(parts: list[str]) -> None:
    written = as_markdown(noted("".join(parts)), "strong")
    (key,) = noted("".join(parts))
    headings = [line for line in written.splitlines() if re.match(r"\s{0,3}(#|```|~~~|Model)", line)]
    assert headings == ["# 1 cases for strong", "# System prompt S1", f"## {key[:16]}", "### user"]
    assert len(as_lines(noted("".join(parts)), "strong").strip("\n").split("\n")) == 2


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_answers_in_sections_are_read_as_they_were_written(texts: list[str]) -> None:
    texts = [("x" + re.sub("[\r\n]+#", "#", text)).strip().replace("\r\n", "\n") for text in texts]
    sections = "".join(f"## {number:016x}\n{text}\n\n" for number, text in enumerate(texts))
    assert [reply for _, _, reply, _ in read_sections(sections)] == texts


def test_what_is_wrong_with_an_answer_is_said_by_name_and_place(tmp_path: Path) -> None:
    asked = noted(*"abcdefghijk")
    a, b, c, d, e, f, g, h, i, j, k = asked
    answers = tmp_path / "answers"
    with opened(tmp_path) as mailbox:
        mailbox.write_wave(asked, "plain")
    lines = [
        json.dumps({"id": a[:16], "reply": "fine"}),
        json.dumps({"id": b, "reply": {"level": 1}, "model": "strong-2026-01-01"}),
        json.dumps({"id": b, "reply": '{"level":1}'}),
        json.dumps({"id": c, "reply": "one"}),
        json.dumps({"id": c, "reply": "another"}),
        json.dumps({"id": d, "reply": "fine", "model": "strong-mini"}),
        json.dumps({"id": "0" * 16, "reply": "fine"}),
        '{"id": "' + e,
        json.dumps({"id": e, "reply": '{"level": [{"x"'}),
        "[1]",
        json.dumps({"id": f, "reply": " "}),
        openai(g),
        openai(h, None, refusal="I cannot."),
        json.dumps({"custom_id": i, "response": None, "error": {"code": "batch_expired", "message": "too late"}}),
        json.dumps({"custom_id": j, "result": {"type": "canceled"}}),
    ]
    (answers / "batch_77_output.jsonl").write_text("\n".join(lines))
    (answers / "more.md").write_text("Nothing to say.")
    (answers / "notes.pdf").write_bytes(b"\xff")
    with opened(tmp_path) as mailbox, ReplyStore(":memory:") as store:
        assert mailbox.take(asked, store) == 5
        open_ = {
            key: one for key, one in asked.items() if key not in store.get_many(asked) and key not in mailbox.errors
        }
        said = "\n".join(mailbox.notes(open_, store))
        kept = store.get_many(asked)
        assert set(kept) == {a, b, e, g}
        assert set(open_) == {c, d, f, i, j, k}
        assert mailbox.errors[h].error == "refusal: the model declines: I cannot."
        source = kept[g].source
        assert source is not None
        assert (source.provider, source.model, source.batch) == ("openai", "strong-2026-01-01", "batch_77_output")
        (repeated,) = mailbox.write_wave(open_, "openai")
        assert set(repeated.digests) == set(open_)
        assert mailbox.missing(open_) == {}  # they are in the new file
    places = {
        "cannot be read": ["line 8", "line 10", "more.md, line 1: has no heading"],
        "answer another prompt": ["line 7: 0000000000000000"],
        "are there twice": ["line 3"],
        "differ from": ["line 4", "line 5"],
        "of another model": ["line 6"],
        "are cut off": ["line 9"],
        "hold no reply": ["line 13"],
        "asked again": ["line 11", "line 14", "line 15"],
    }
    blocks = re.split(r"\n(?=\d)", said)
    for words, lines_ in places.items():
        (block,) = (block for block in blocks if words in block.split("\n")[0])
        assert all(f"{line}:" in block or line in block for line in lines_), block
        assert len(block.split("\n")) == 1 + len(lines_), block


def test_an_error_that_comes_again_and_again_stays(tmp_path: Path) -> None:
    asked = noted("a")
    (key,) = asked
    for wave in range(3):
        with opened(tmp_path) as mailbox, ReplyStore(":memory:") as store:
            assert mailbox.take(asked, store) == 0
            assert len(mailbox.write_wave(asked, "anthropic")) == 1
            assert mailbox.write_wave(asked, "anthropic") == []  # it is under way
        line = {"custom_id": key, "result": {"type": "expired"}}
        (tmp_path / "answers" / f"{wave}.jsonl").write_text(json.dumps(line))
    with opened(tmp_path) as mailbox, ReplyStore(":memory:") as store:
        assert mailbox.take(asked, store) == 1
        assert str(mailbox.errors[key].error).startswith("expired")


def test_files_keep_the_limits_and_each_is_of_one_model(tmp_path: Path) -> None:
    long = noted(*("x" * 90_000 + str(n) for n in range(9)))
    others = {key: one._replace(model="other", engine=Engine(model="other")) for key, one in noted("a", "b").items()}
    with opened(tmp_path) as mailbox:
        files = mailbox.write_wave(long | others, "plain")
    assert [len(file.digests) for file in files] == [4, 4, 1, 2]
    assert [file.model for file in files] == ["strong"] * 3 + ["other"]


def test_a_mailbox_is_of_one_process_and_a_broken_index_is_told(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(UserError, match="another process"), opened(tmp_path):
        pass
    (tmp_path / "mailbox.json").write_text("{")
    with pytest.raises(InputError, match="no index of a mailbox"), opened(tmp_path):
        pass


@pytest.mark.parametrize(
    ("asked", "named", "same"),
    [
        ("gpt-5", "gpt-5-2026-01-05", True),
        ("gpt-5", "gpt-5-mini", False),
        ("gpt-5", "gpt-5-mini-2026-01-05", False),
        ("claude-opus-5", "claude-opus-5-20260101", True),
        ("gemini-3-pro", "gemini-3-pro-preview-11-2026", True),
        ("google/gemini-3-pro", "models/gemini-3-pro", True),
        ("claude-sonnet-latest", "claude-sonnet-5", True),
        ("gpt-5", "gpt-4", False),
    ],
)
def test_a_version_is_the_same_model_and_a_smaller_sister_is_not(asked: str, named: str, same: bool) -> None:
    assert is_same_model(asked, named) is same
