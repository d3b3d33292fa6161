"""How providers are asked and how they answer, each in its own interface's form of today: pure functions, the same for
a live call, a line of a batch file and a line of its results. `form` says what they share; one module a provider.

Checked against the documentation and the clients of November 2026 (openai 3.54, anthropic 2.12, google-genai 3.4).
"""

from __future__ import annotations

from collections.abc import Mapping

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.forms import anthropic, gemini, openai
from rubricflow.tasks.core.llm.forms.form import PASSING, THINKING, Form
from rubricflow.tasks.core.llm.request import Request

__all__ = ["FORMS", "PASSING", "Form", "answered_by", "form_of", "room"]

FORMS: Mapping[str, Form] = {"openai": openai.FORM, "anthropic": anthropic.FORM, "gemini": gemini.FORM}


def form_of(engine: Engine) -> Form:
    """The form of an engine's provider: Bedrock and Vertex give others' models in their makers' forms."""
    if engine.provider == "vertex":
        return FORMS["anthropic" if "claude" in engine.model else "gemini"]
    return FORMS[{"compatible": "openai", "bedrock": "anthropic"}.get(engine.provider, engine.provider)]


def room(request: Request, engine: Engine | None) -> int:
    """Tokens that a reply may take at most, with what its model thinks before it; None for one that does not."""
    if engine is None:
        return request.sampling.longest
    if engine.provider == "compatible":
        return request.sampling.longest + (0 if engine.effort is None else THINKING[engine.effort])
    return form_of(engine).room(request, engine)


def answered_by(answer: Mapping[str, object]) -> str | None:
    """The model as its provider names it in an answer."""
    name = answer.get("model") or answer.get("modelVersion")
    return name if isinstance(name, str) else None
