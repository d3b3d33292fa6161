"""The judge of bench_scale behind HTTP, for workers in other processes."""

from __future__ import annotations

import json
import re
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CRITERION = re.compile(r"^- (P\d+) .*explains (\w+)\.$", re.MULTILINE)
SENTENCE = re.compile(r"^\[(sentence \d+)\] (.*)$", re.MULTILINE)


class KeywordServer(ThreadingHTTPServer):
    """Answers chat completions at once."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        system, response = (message["content"] for message in body["messages"][:2])
        message = {"role": "assistant", "content": json.dumps({"decisions": decisions(system, response)})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 400, "completion_tokens": 90}
        content = json.dumps({"choices": [choice], "model": body["model"], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def decisions(system: str, response: str) -> dict[str, dict[str, Any]]:
    """Criterion → its level and evidence, by the checklist of a prompt: the sentence with the criterion's word is
    quoted, and one quote in twenty is invented."""
    sentences = SENTENCE.findall(response)
    levels = {}
    for criterion, word in CRITERION.findall(system):
        quoting = [(unit, text) for unit, text in sentences if word in text.lower()]
        if not quoting:
            levels[criterion] = {"evidence": [], "level": 0}
            continue
        unit, text = quoting[0]
        quote = "nobody wrote these words" if zlib.crc32(text.encode()) % 20 == 0 else text
        level = 2 if f"{word} because" in text.lower() else 1
        levels[criterion] = {"evidence": [{"unit": unit, "quote": quote}], "level": level}
    return levels
