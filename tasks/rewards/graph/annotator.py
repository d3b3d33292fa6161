"""Who annotates, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.schema import compact
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.rewards.graph.subject import Authored, GraphSubject

PROMPTS = Templates(Path(__file__).with_name("prompts"))
_QUERY = (4_000, 1_000)
"""Characters of a question, and of its material, that are shown from the beginning and from the end."""
_CRITERION = (1_200, 300)
"""The same of a criterion."""
_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}
"""What breaks a line and JSON leaves as it is."""


def silent(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Annotator:
    """A backend with its reply store and the study's plan."""

    backend: Backend
    replies: Replies
    plan: Graphs
    tell: Callable[[str], None] = silent
    """Says to a person how far it is."""
    examples: str = ""
    """Graphs by people that it is shown, see `worked_examples`."""

    def sampling(self, tokens: int) -> Sampling:
        """How replies are drawn: at least so many tokens long."""
        given = self.plan.sampling
        return given.model_copy(update={"max_tokens": max(given.longest, tokens)})


def settings_of(plan: Graphs, model: str, examples: str) -> Record:
    """What of a plan can change the graphs that a model makes."""
    return {
        "annotator": model,
        "profile": plan.profile,
        "orders": plan.orders,
        "sampling": plan.sampling.model_dump(),
        "structured": is_structured(plan),
        "examples": examples,
    }


def is_structured(plan: Graphs) -> bool:
    """Whether the model is held to the contract's JSON Schema."""
    return plan.engine is None or plan.engine.structured


# Prompts of the annotator: templates in prompts/*.txt. The query and the criteria are data inside fences that they
# cannot close, whatever they say.


def instructions(profile: str, examples: str) -> str:
    """The part that all requests share."""
    values = {"profile": PROMPTS.fill(f"profile_{profile}", {}), "examples": examples}
    return PROMPTS.fill("graph", values, frozenset({"examples"} if examples else ()))


def worked_examples(most: int, written: Mapping[str, Authored], subjects: Mapping[str, GraphSubject]) -> str:
    """The first graphs that people wrote, as an annotator is shown them: the query, and by each criterion the role,
    where its author says one, and what it needs."""
    shown = []
    for name, (graph, listed) in islice(written.items(), most):
        records = []
        for criterion, node in zip(subjects[name].criteria, graph.nodes, strict=True):
            role = {"role": node.role} if criterion.id in listed else {}
            needs = {edge.parent: edge.relation for edge in graph.edges if edge.child == criterion.id}
            records.append(
                {"id": criterion.id, "points": criterion.weight, "text": wording(criterion), **role, "needs": needs}
            )
        shown.append(f"{query(subjects[name])}\n{lines(records)}")
    return "\n\n".join(shown)


def query(subject: GraphSubject) -> str:
    """What the responses answer, in its fence."""
    asked = f"Question:\n{_cut(subject.question, _QUERY)}"
    if subject.context:
        asked += f"\n\nMaterial that belongs to it:\n{_cut(subject.context, _QUERY)}"
    return fenced("QUERY", asked)


def fenced(title: str, text: str) -> str:
    """A text between two lines with a code made of its own content: the same text makes the same prompt, and one that
    held its own fence would have another code."""
    code = nonce(text)
    return f"====={title} {code}=====\n{text}\n=====END {code}====="


def lines(records: Iterable[Fields]) -> str:
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
