"""Prompts of the annotator: templates in prompts/*.txt. The query and the criteria are data inside fences that they
cannot close, whatever they say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.bundle import Criterion
from tasks.graph.subject import GraphSubject
from tasks.llm.schema import compact
from tasks.text.templates import Templates

PROMPTS = Templates(Path(__file__).with_name("prompts"))
_QUERY = (4_000, 1_000)
"""Characters of a question, and of its material, that are shown from the beginning and from the end."""
_CRITERION = (1_200, 300)
"""The same of a criterion."""
_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}
"""What breaks a line and JSON leaves as it is."""


def instructions(name: str, profile: str, subject: GraphSubject) -> str:
    """The part that all requests of a kind about one rubric share; name: of the template."""
    query = f"Question:\n{_cut(subject.question, _QUERY)}"
    if subject.context:
        query += f"\n\nMaterial that belongs to it:\n{_cut(subject.context, _QUERY)}"
    return PROMPTS.fill(name, {"profile": PROMPTS.fill(f"profile_{profile}", {}), "query": fenced("QUERY", query)})


def fenced(title: str, text: str) -> str:
    """A text between two lines with a code made of its own content: the same text makes the same prompt, and one that
    held its own fence would have another code."""
    code = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"====={title} {code}=====\n{text}\n=====END {code}====="


def lines(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as fenced lines of JSON: no text in them can begin a line."""
    return fenced("LIST", "\n".join(compact(record).translate(_BREAKS) for record in records))


def wording(criterion: Criterion) -> str:
    """A criterion's text as a prompt shows it."""
    return _cut(criterion.text, _CRITERION)


def _cut(text: str, sizes: tuple[int, int]) -> str:
    """A text without its middle where it is longer than what is shown."""
    head, tail = sizes
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[… {left_out} characters left out …]\n{text[-tail:]}"
