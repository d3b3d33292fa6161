"""Servers on this machine that take batches as OpenAI, Anthropic and Gemini document them, faults included."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LOSE, FAIL, CANCEL = "lose", "fail", "cancel"
"""What may become of a batch: it is made, and its id is lost on the way; OpenAI refuses it, or somebody cancels it."""


class Batch(NamedTuple):
    """A batch as it was made."""

    number: int
    requests: Mapping[str, Mapping[str, Any]]
    """Custom id → body."""
    mark: str | None
    created: datetime


class BatchServer:
    """Answers each request by `answer` (prompt → text); `fate` (custom id, number of the batch) may say 'expired',
    'error' or 'refused' instead. A batch ends at the second look. faults: what becomes of the next batches.
    tokens: of each prompt and reply."""

    def __init__(self, answer: Callable[[str], str], fate: Callable[[str, int], str | None] = lambda key, n: None):
        self.answer, self.fate = answer, fate
        self.batches: list[Batch] = []
        self.files: dict[str, bytes] = {}
        self.looks: dict[int, int] = {}
        self.faults: list[str | int] = []
        self.tokens = (11, 3)
        self.ends: dict[int, str | int | None] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.split("?")[0]
                status, headers, content = outer.served(self.command, path, self.headers, body)
                if status == 0:
                    self.close_connection = True
                    return
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in (
                    {"Content-Length": len(data), "Content-Type": "application/json"} | headers
                ).items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()

    def made(self, requests: Mapping[str, Mapping[str, Any]], mark: str | None) -> Batch | None:
        """A new batch; None where its id is lost."""
        fault = self.faults.pop(0) if self.faults else None
        batch = Batch(len(self.batches), requests, mark, datetime.now(UTC))
        self.batches.append(batch)
        self.ends[batch.number] = fault
        return None if fault == LOSE else batch

    def has_ended(self, number: int) -> bool:
        """Whether a batch has ended; looks at it."""
        self.looks[number] = self.looks.get(number, 0) + 1
        return self.looks[number] >= 2

    def served(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], Any]:
        """Status, headers and content for a call."""
        raise NotImplementedError


class OpenAIServer(BatchServer):
    """`/v1/files` and `/v1/batches`."""

    def served(self, method, path, headers, body):
        parts = path.strip("/").split("/")[1:]
        if (method, parts) == ("POST", ["files"]):
            name = f"file-{len(self.files)}"
            (lines,) = (part for part in body.split(b"\r\n\r\n") if b'{"custom_id"' in part)
            self.files[name] = lines.rsplit(b"\r\n--", 1)[0]
            return 200, {}, self._file(name)
        if (method, parts) == ("POST", ["batches"]) and self.faults and isinstance(self.faults[0], int):
            return self.faults.pop(0), {}, {"error": {"message": "Incorrect API key provided", "code": "no_key"}}
        if (method, parts) == ("POST", ["batches"]):
            asked = json.loads(body)
            lines = map(json.loads, self.files[asked["input_file_id"]].splitlines())
            batch = self.made({line["custom_id"]: line["body"] for line in lines}, asked["metadata"]["rubricflow"])
            return (200, {}, self._batch(batch, False)) if batch else (0, {}, None)
        if parts == ["batches"]:
            rows = [self._batch(batch, False) for batch in reversed(self.batches)]
            return 200, {}, {"object": "list", "data": rows, "has_more": False}
        if parts[0] == "batches":
            batch = self.batches[int(parts[1].split("_")[1])]
            return 200, {}, self._batch(batch, self.has_ended(batch.number))
        kind, number = parts[1].split("-")
        return 200, {}, self.results(self.batches[int(number)], kind == "errors")

    def _file(self, name):
        return {"id": name, "object": "file", "status": "processed"}

    def _batch(self, batch, ended):
        total = len(batch.requests)
        record = {
            "id": f"batch_{batch.number}",
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": "f",
            "completion_window": "24h",
            "created_at": int(batch.created.timestamp()),
            "metadata": {"rubricflow": batch.mark},
            "status": "completed" if ended else "in_progress",
            "request_counts": {"total": total, "completed": total if ended else 1, "failed": 0},
        }
        if ended and self.ends[batch.number] == CANCEL:
            return record | {"status": "cancelled", "output_file_id": f"output-{batch.number}"}
        if self.ends[batch.number] == FAIL:
            told = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached for strong"}
            return record | {"status": "failed", "errors": {"object": "list", "data": [told]}}
        if ended:
            record |= {"output_file_id": f"output-{batch.number}", "error_file_id": f"errors-{batch.number}"}
        return record

    def results(self, batch, errors):
        lines = []
        for key, asked in batch.requests.items():
            fate = self.fate(key, batch.number)
            message = {"role": "assistant", "content": self.answer(_prompt(asked["messages"])), "refusal": None}
            if fate == "refused":
                message |= {"content": None, "refusal": "I cannot help with that."}
            body = {
                "id": "c",
                "object": "chat.completion",
                "model": f"{asked['model']}-2026-10-01",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": self.tokens[0], "completion_tokens": self.tokens[1]},
            }
            line = {"custom_id": key, "response": {"status_code": 200, "body": body}, "error": None}
            if fate == "expired":
                line |= {
                    "response": None,
                    "error": {"code": "batch_expired", "message": "It was not executed in time."},
                }
            elif fate == "error":
                line["response"] = {"status_code": 500, "body": {"error": {"message": "The server had an error"}}}
            if errors == (fate in ("expired", "error")):
                lines.append(json.dumps(line))
        return "\n".join(lines).encode()


class AnthropicServer(BatchServer):
    """`/v1/messages/batches`."""

    def served(self, method, path, headers, body):
        parts = path.strip("/").split("/")[3:]
        if method == "POST":
            asked = json.loads(body)["requests"]
            batch = self.made({one["custom_id"]: one["params"] for one in asked}, None)
            return (200, {}, self._batch(batch, False)) if batch else (0, {}, None)
        if not parts:
            rows = [self._batch(batch, False) for batch in reversed(self.batches)]
            return 200, {}, {"data": rows, "has_more": False, "first_id": None, "last_id": None}
        batch = self.batches[int(parts[0].split("_")[1])]
        if parts[1:] == ["results"]:
            return 200, {"Content-Type": "application/x-jsonl"}, self.results(batch)
        return 200, {}, self._batch(batch, self.has_ended(batch.number) or self.looks[batch.number] > 1)

    def _batch(self, batch, ended):
        created, total = batch.created.isoformat().replace("+00:00", "Z"), len(batch.requests)
        counts = dict.fromkeys(("errored", "canceled", "expired"), 0)
        counts |= {"processing": 0 if ended else total, "succeeded": total if ended else 0}
        name = f"msgbatch_{batch.number}"
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": created,
            "expires_at": created,
            "results_url": f"{self.url}/v1/messages/batches/{name}/results" if ended else None,
        }

    def results(self, batch):
        lines = []
        for key, asked in batch.requests.items():
            fate = self.fate(key, batch.number)
            message = {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": f"{asked['model']}-20261001",
                "content": [{"type": "text", "text": self.answer(_prompt(asked["messages"]))}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": self.tokens[0], "output_tokens": self.tokens[1]},
            }
            if fate == "refused":
                message |= {"content": [], "stop_reason": "refusal"}
            result = {"type": "succeeded", "message": message}
            if fate == "expired":
                result = {"type": "expired"}
            elif fate == "error":
                result = {"type": "errored", "error": {"error": {"type": "overloaded_error", "message": "Overloaded"}}}
            lines.append(json.dumps({"custom_id": key, "result": result}))
        return "\n".join(reversed(lines)).encode()


class GeminiServer(BatchServer):
    """`files`, `models/NAME:batchGenerateContent` and `batches`."""

    def served(self, method, path, headers, body):
        if method == "POST" and path.endswith("/files"):
            where = f"{self.url}/upload/put/{len(self.files)}"
            return 200, {"X-Goog-Upload-URL": where, "X-Goog-Upload-Status": "active"}, {}
        if path.startswith("/upload/put/"):
            name = f"files/{path.rpartition('/')[2]}"
            self.files[name] = body
            file = {"name": name, "uri": f"{self.url}/{name}", "mimeType": "jsonl"}
            return 200, {"X-Goog-Upload-Status": "final"}, {"file": file}
        if path.endswith(":batchGenerateContent"):
            asked = json.loads(body)["batch"]
            lines = map(json.loads, self.files[asked["inputConfig"]["fileName"]].splitlines())
            batch = self.made({line["key"]: line["request"] for line in lines}, asked["displayName"])
            return (200, {}, self._batch(batch, False)) if batch else (0, {}, None)
        if path.endswith(":download"):
            batch = self.batches[int(path.split("-")[-1].split(":")[0])]
            return 200, {"Content-Type": "application/octet-stream"}, self.results(batch)
        if path.endswith("/batches"):
            return 200, {}, {"operations": [self._batch(batch, False) for batch in reversed(self.batches)]}
        batch = self.batches[int(path.rpartition("/")[2])]
        return 200, {}, self._batch(batch, self.has_ended(batch.number) or self.looks[batch.number] > 1)

    def _batch(self, batch, ended):
        made = batch.created.isoformat().replace("+00:00", "Z")
        metadata = {
            "displayName": batch.mark,
            "createTime": made,
            "state": "BATCH_STATE_SUCCEEDED" if ended else "BATCH_STATE_RUNNING",
            "name": f"batches/{batch.number}",
        }
        record = {"name": f"batches/{batch.number}", "metadata": metadata}
        if ended:
            metadata["output"] = {"responsesFile": f"files/batch-{batch.number}"}
            record |= {"done": True, "response": {"responsesFile": f"files/batch-{batch.number}"}}
        return record

    def results(self, batch):
        lines = []
        for key, asked in batch.requests.items():
            fate = self.fate(key, batch.number)
            prompt = "\n".join(part["text"] for turn in asked["contents"] for part in turn["parts"])
            content = {"parts": [{"text": self.answer(prompt)}], "role": "model"}
            candidate = {"content": content, "finishReason": "STOP", "index": 0}
            response = {
                "candidates": [candidate],
                "modelVersion": "strong-001",
                "usageMetadata": {"promptTokenCount": self.tokens[0], "candidatesTokenCount": self.tokens[1]},
            }
            if fate == "refused":
                response = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "strong-001"}
            line = {"key": key, "response": response}
            if fate in ("expired", "error"):
                error = {"code": 14 if fate == "error" else 4, "message": "The service is overloaded"}
                line = {"key": key, "error": error}
            lines.append(json.dumps(line))
        return "\n".join(lines).encode()


def _prompt(turns: Any) -> str:
    return "\n".join(turn["content"] for turn in turns if turn["role"] != "system")
