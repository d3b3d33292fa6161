"""What a scripted annotator says of a rubric, for the tests of graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rubricflow.tasks.core.llm.request import Request


def edge(
    parent: str, child: str, relation: Any = "weak_prerequisite", reason: Any = "It rests on it."
) -> dict[str, Any]:
    return {"child": child, "parent": parent, "relation": relation, "reason": reason}


def said(roles: Mapping[str, Any], *edges: Any) -> str:
    return json.dumps({"roles": dict(roles), "edges": list(edges)})


def by_sign(request: Request) -> dict[str, str]:
    return {c.id: "penalty" if c.weight < 0 else "core" for c in request.data.criteria}


def annotating(
    roles: Mapping[str, str],
    forwards: Mapping[tuple[str, str], str],
    backwards: Mapping[tuple[str, str], str] | None = None,
) -> Callable[[Request], str]:
    """A script that gives these roles, those of the sign otherwise, and these edges; others where the rubric is listed
    backwards."""

    def answer(request: Request) -> str:
        is_backwards = "from the rubric's last one" in request.messages[1].content
        edges = backwards if is_backwards and backwards is not None else forwards
        return said(by_sign(request) | dict(roles), *(edge(*pair, relation) for pair, relation in edges.items()))

    return answer
