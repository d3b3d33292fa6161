"""The backends by name: what settings must know of one without loading it.

A backend is its line here and its module `tasks/core/llm/backends/<name>.py`, which `tasks.core.llm.opening` opens;
one that reads no prose is opened by the room whose plain data it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from pydantic import AfterValidator

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.tables.judging import RaterKind

Purpose = Literal["judge", "annotate", "graph", "prompt", "rollouts", "schemes"]
"""What answers are wanted for: responses judged; labels given; rubric graphs made; grades given by a prompted model; a
policy's rollouts judged; responses judged under an edited mark scheme."""
Need = Literal["engine", "model", "truth", "grader"]
_EVERY: frozenset[Purpose] = frozenset(get_args(Purpose))
_NEEDED: Mapping[Need, str] = {
    "engine": "an engine with the model's name",
    "model": "the model whose replies to use, or the file of recorded replies",
    "truth": "the truth that it knows",
    "grader": "the grader's file",
}


class Choice(Protocol):
    """Settings that name a backend."""

    @property
    def backend(self) -> str:
        """Its name in `BACKENDS`."""

    @property
    def engine(self) -> Engine | None:
        """The model, where it is asked now."""

    @property
    def model(self) -> str | None:
        """Whose recorded replies to use."""

    @property
    def replies(self) -> str | None:
        """The file of recorded replies to use."""


@dataclass(frozen=True)
class RegisteredBackend:
    """What is known of a backend without loading it."""

    rater_kind: RaterKind
    """What its judgments are labelled as."""
    needs: Need | None = None
    """The setting without which there is nothing to open."""
    reads_prose: bool = False
    """Whether a language model, or what one said, answers: any request, and not only the one that a room is made
    for."""
    local_weights: bool = False
    """Whether its engine's model may be a folder, whose files then belong to a run's inputs."""
    extra: str | None = None
    """The optional extra that it runs with."""
    serves: frozenset[Purpose] = _EVERY
    """What it can be asked for."""


BACKENDS: dict[str, RegisteredBackend] = {
    "embedded": RegisteredBackend("encoder", extra="embedded", serves=_EVERY - {"prompt"}),
    "vllm": RegisteredBackend("llm", needs="engine", reads_prose=True, local_weights=True, extra="vllm"),
    "openai": RegisteredBackend("llm", needs="engine", reads_prose=True),
    "replay": RegisteredBackend("replayed", needs="model", reads_prose=True),
    "simulated": RegisteredBackend("simulated", needs="truth", serves=frozenset({"judge", "annotate"})),
    "trained": RegisteredBackend("trained", needs="grader", extra="embedded", serves=frozenset({"judge", "rollouts"})),
}


def backends_serving(purpose: Purpose) -> str:
    """The names of the backends that serve a purpose, as a sentence lists them."""
    *names, last = (name for name, backend in BACKENDS.items() if purpose in backend.serves)
    return f"{', '.join(names)} or {last}"


def missing_setting(choice: Choice) -> str | None:
    """What the settings' backend needs and they do not give, in words; None where nothing is missing."""
    need = BACKENDS[choice.backend].needs
    if need is None or getattr(choice, need) is not None or (need == "model" and choice.replies is not None):
        return None
    return f"backend '{choice.backend}' needs {_NEEDED[need]}"


def engine_of(choice: Choice) -> Engine:
    """The engine of settings whose backend needs one."""
    assert choice.engine is not None, missing_setting(choice)  # the settings were checked
    return choice.engine


def is_generative(choice: Choice) -> bool:
    """Whether a language model, or what one said, answers by these settings."""
    return BACKENDS[choice.backend].reads_prose and missing_setting(choice) is None


def serves(purpose: Purpose) -> AfterValidator:
    """Marks a setting that names a backend for a purpose."""

    def check(name: str) -> str:
        if name not in BACKENDS or purpose not in BACKENDS[name].serves:
            raise ValueError(f"'{name}' is no backend for this; use {backends_serving(purpose)}")
        return name

    return AfterValidator(check)
