"""The study file: what to grade, with which rubrics, by which judge, calibrated and compared with whom.

Paths are relative to the study file. An unknown key is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from tasks.contracts.bundle import (
    ConsistencyMemory,
    CriterionKind,
    EvidenceType,
    Protocol,
    ProtocolName,
    Repair,
    RubricMemory,
    Scale,
    Signal,
)
from tasks.contracts.engine import Engine, Sampling
from tasks.contracts.errors import InputError
from tasks.contracts.graph import Graphs, Reward
from tasks.contracts.table import Frozen

Model = TypeVar("Model", bound=Frozen)
Column = str | dict[Literal["const"], Any]
"""A column of the source by name, or `{const: value}` for every row."""


class ScoreColumns(Frozen):
    """The columns of one human rater's grading."""

    rater: str
    """Rater id."""
    kind: Literal["human", "adjudication", "replayed"] = "human"
    """A person; a score resolved from those of persons, which is no second opinion beside them; or what a machine
    recorded, on a scale of its own."""
    score: str | None = None
    """Column of the score; empty cells are no grading. A rater may have marked traits only."""
    traits: dict[str, str] = {}
    """Trait → column."""


class Source(Frozen):
    """One file and how its columns map to the canonical tables. One file may feed several tables."""

    file: str
    """CSV, TSV, JSONL, JSON (a list of objects) or Parquet, by its ending."""
    where: dict[str, str | int | float | bool] = {}
    """Only rows in which each of these columns has this value."""
    items: dict[str, Column] = {}
    """Canonical column of `items` → column. Repeated rows must agree."""
    responses: dict[str, Column] = {}
    """Canonical column of `responses` (response_id, item_id, author_id, text, split) → column."""
    groups: dict[str, str] = {}
    """Group variable → column."""
    scores: tuple[ScoreColumns, ...] = ()
    """Human raters' gradings beside the responses."""
    scored: Column | None = None
    """In a file of scores without the responses: the column of the response's id."""
    marks: dict[str, Column] = {}
    """Decisions per criterion: response_id, rater_id, criterion_id, level and, for what a machine recorded rather than
    a person, rater_kind ('replayed') → column."""

    @model_validator(mode="after")
    def _raters_once(self) -> Source:
        raters = [columns.rater for columns in self.scores]
        if len(set(raters)) < len(raters):
            raise ValueError(f"a rater is given twice: {', '.join(raters)}")
        if self.scored and (self.responses or not self.scores):
            raise ValueError("'scored' is for a file that has scores and no responses")
        return self


class Data(Frozen):
    """Where the data is."""

    layout: str | None = None
    """A layout shipped in tasks/ingest/layouts."""
    folder: str = "."
    """The folder that the sources' files are in."""
    sources: tuple[Source, ...] = ()
    """The files; beside a layout further ones, such as responses to its items."""

    @model_validator(mode="after")
    def _at_least_one(self) -> Data:
        if not (self.layout or self.sources):
            raise ValueError("give a layout, sources, or both")
        return self


class Derived(Frozen):
    """Rubrics made from what the items carry, for items that no authored rubric names."""

    origin: Literal["reference_answer", "key_elements", "criteria"]
    """The sentences of the reference answer, or the listed elements, become gold points; or the item lists its criteria
    itself."""
    scale: Scale
    """The score scale of these items."""
    kind: CriterionKind = "gold_point"
    """Kind of the criteria made."""
    evidence: EvidenceType = "local_quote"
    """Their evidence type."""
    levels: tuple[str, ...] = ("absent", "in part", "present")
    """Their levels, where the item says none."""


class Induce(Frozen):
    """How a language model makes criteria of a rubric's prose (Rulers, phase I). It is asked once; the reply store and
    the locked bundle keep what it said."""

    criteria: int = Field(default=20, ge=1, le=60)
    """About how many checklist items it shall make."""
    seed: int = 42
    """Another seed is another induction."""
    temperature: float = Field(default=0.7, ge=0.0)
    """Above 0, so that another seed can bring another reply."""


class Rubrics(Frozen):
    """Where the rubrics come from."""

    file: str | None = None
    """YAML file with authored rubrics under `rubrics:`."""
    derive: Derived | None = None
    """How to make the others."""
    induce: Induce | None = None
    """The criteria of the authored rubrics are made anew from their prose by the study's judge."""
    variant: Literal["standard", "criteria_reversed", "levels_reversed", "paraphrased"] = "standard"
    """How the rubrics are presented: as written, with the criteria in reverse, with the levels printed in reverse, or
    in other words by the study's judge. The intent stays the same."""

    @model_validator(mode="after")
    def _at_least_one(self) -> Rubrics:
        if not (self.file or self.derive):
            raise ValueError("give a file of rubrics, or say how to derive them")
        if self.induce and not self.file:
            raise ValueError("to induce criteria needs a file of rubrics with their prose")
        return self


class Split(Frozen):
    """Which responses calibrate and which test. A split column in the source wins over this."""

    by: Literal["response", "author", "item"] = "response"
    """What is kept whole, so that nothing of it is on both sides."""
    per: Literal["item", "set"] = "item"
    """Whether `calibration` counts labelled responses of each item or of the whole set."""
    calibration: int = Field(default=200, ge=0)
    """Labelled responses to calibrate on; never more than half of the labelled ones."""
    seed: int = 0
    """Another seed is another split."""


class Reader(Frozen):
    """How to read the score in a foreign raw reply: the sum of JSON keys, or of the groups of a pattern."""

    json_keys: tuple[str, ...] = ()
    """JSON keys whose numbers are added."""
    pattern: str | None = None
    """A regular expression."""
    otherwise: tuple[str, ...] = ()
    """Further ones, each tried where those before it read nothing: judges word a score in many ways."""
    take: Literal["first", "last"] = "first"
    """Which match counts."""
    values: dict[str, float] = {}
    """What the pattern may find in place of a number, and the number that it stands for: 'four', 'a', '****'."""

    @model_validator(mode="after")
    def _one_of(self) -> Reader:
        if bool(self.json_keys) == bool(self.pattern):
            raise ValueError("give either json_keys or a pattern")
        if (self.otherwise or self.values) and not self.pattern:
            raise ValueError("'otherwise' and 'values' belong to a pattern")
        return self


class ForeignItem(Frozen):
    """How one item's foreign replies are read."""

    reader: Reader | None = None
    """In place of the general reader."""
    scale: Scale | None = None
    """In place of the general scale."""


class Foreign(Frozen):
    """A table of raw replies that another system recorded."""

    file: str
    """Parquet, CSV, TSV or JSONL."""
    response_id: str | tuple[str, ...]
    """Column of the response's id, or several whose values make it, joined by colons."""
    reply: str | tuple[str, ...]
    """Column of the raw reply, or several whose values are taken as a JSON object under their names."""
    recorded: str | None = None
    """Column of the score that the other system read from it, to compare with ours."""
    where: dict[str, str | int | float | bool] = {}
    """Only rows in which each of these columns has this value."""
    reader: Reader
    """How the score is read."""
    scale: Scale | None = None
    """The scale that the judge used; the bundle's where not given. Scores are rescaled linearly."""
    items: dict[str, ForeignItem] = {}
    """Exceptions per item."""


class Truth(Frozen):
    """The simulated rater: for method studies over data whose truth is known. All it produces is labelled simulated."""

    rater: str
    """Whose marks and scores it knows: a human rater of the study."""
    severity: float = 0.0
    """Shift of its opinion, in shares of the scale; negative is stricter."""
    noise: float = Field(default=0.1, ge=0)
    """Standard deviation of its opinion, in shares of the scale."""
    anchoring: float = Field(default=0.5, ge=0, le=1)
    """How far it moves towards the exemplars it is shown."""
    invented: float = Field(default=0.05, ge=0, le=1)
    """Share of its quotes that stand nowhere in the response."""
    broken: float = Field(default=0.01, ge=0, le=1)
    """Share of its replies that break the contract."""
    seed: int = 0
    """Another seed is another rater."""


class Judge(Frozen):
    """Who judges and how."""

    protocol: ProtocolName = "rulers"
    """See `Protocol.name`."""
    backend: Literal["embedded", "replay", "vllm", "openai", "simulated"] = "embedded"
    """embedded: the small sentence encoder; replay: recorded replies; vllm: a language model in this process; openai:
    one behind an OpenAI-compatible server; simulated: a made-up rater that knows the truth."""
    engine: Engine | None = None
    """With vllm or openai: the model."""
    repair_engine: Engine | None = None
    """With vllm or openai: the model that mends replies; the same one where not given."""
    truth: Truth | None = None
    """With simulated: what it knows and how it errs."""
    sampling: Sampling = Sampling()
    """How replies are drawn."""
    samples: int = Field(default=1, ge=1)
    """How often everything is asked: repetition s with the seed + s. Calibration uses the mean of the repetitions."""
    model: str | None = None
    """With replay and no foreign table: whose replies of the reply store to use."""
    foreign: Foreign | None = None
    """With replay: a foreign table of raw replies."""
    signals: tuple[Signal, ...] | None = None
    """In place of the protocol's own list."""
    final_score: Literal["weighted_points", "trait_mean", "trait_sum", "judged"] | None = None
    """In place of the protocol's own formula."""
    failed_quote: Literal["demote", "count", "drop"] = "demote"
    """What a failed quote does."""
    unscored: Literal["null", "bounds", "zero"] = "null"
    """What an unscored criterion does to the score."""
    min_tokens: int | None = Field(default=None, ge=0)
    """In place of the protocol's own gate for short responses."""
    evidence: Literal["typed", "off"] = "typed"
    """off: no criterion demands evidence (rulers without phase II)."""
    evidence_match: Literal["lexical", "semantic"] = "lexical"
    """See `Protocol.evidence_match`."""
    echo: Literal["refused", "allowed"] | None = None
    """See `Protocol.echo`; where not given, allowed for rubrics made of a model answer and refused for the others."""
    repair: Repair | None = None
    """Budgets of repair; null for none."""
    rubric_memory: RubricMemory | None = None
    """See `RubricMemory`; null for none."""
    consistency_memory: ConsistencyMemory | None = None
    """See `ConsistencyMemory`; null for none."""
    context_tokens: int | None = Field(default=None, ge=256)
    """See `Protocol.context_tokens`."""
    criteria_per_call: int = Field(default=1, ge=1)
    """With protocol: pointwise: criteria in one call; GEAR's reward judge takes at most 4."""
    keep: str | None = None
    """An earlier run by the same judge: its decisions on criteria, questions and responses that have not changed since
    stand, and only the others are asked for."""

    @model_validator(mode="after")
    def _is_complete(self) -> Judge:
        if self.foreign and (self.backend != "replay" or self.protocol != "dhs"):
            raise ValueError("a foreign table of replies needs backend: replay and protocol: dhs")
        if self.backend in ("vllm", "openai") and self.engine is None:
            raise ValueError(f"backend '{self.backend}' needs an engine with the model's name")
        if self.backend == "simulated" and self.truth is None:
            raise ValueError("backend 'simulated' needs the truth that it knows")
        if self.samples > 1 and self.keep:
            raise ValueError("'samples' asks everything anew, so that 'keep' has no place beside it")
        if self.samples > 1 and self.backend in ("vllm", "openai") and self.sampling.temperature == 0:
            raise ValueError("with temperature 0 every sample is the same reply; set judge.sampling.temperature")
        if self.criteria_per_call > 1 and self.protocol != "pointwise":
            raise ValueError("criteria_per_call belongs to protocol: pointwise")
        if self.consistency_memory and self.protocol != "gradeagentops":
            raise ValueError("consistency_memory belongs to protocol: gradeagentops")
        if self.rubric_memory and self.protocol != "gradeagentops":
            raise ValueError("rubric_memory belongs to protocol: gradeagentops")
        return self

    def as_protocol(self) -> Protocol:
        """The protocol as the bundle carries it."""
        traits: tuple[Signal, ...] = ("trait_scores", "length", "confidence", "uncertainty", "tie")
        default: dict[ProtocolName, tuple[Any, tuple[Signal, ...], int]] = {
            "rulers": ("trait_mean", traits, 1),
            "unlocked": ("trait_mean", traits, 1),
            "pointwise": ("weighted_points", ("criteria", "trait_means", "length", "confidence"), 1),
            "dhs": ("judged", ("score", "length"), 1),
            "autoscore": ("judged", ("score",), 1),
            "checkeval": ("weighted_points", ("score",), 1),
            "mts": ("trait_mean", ("score",), 1),
            "gradeagentops": ("trait_mean", ("score", "trait_scores"), 3),
        }
        formula, signals, gate = default[self.protocol]
        return Protocol(
            name=self.protocol,
            final_score=self.final_score or formula,
            failed_quote=self.failed_quote,
            unscored=self.unscored,
            signals=self.signals or signals,
            min_tokens=gate if self.min_tokens is None else self.min_tokens,
            repair=self.repair,
            rubric_memory=self.rubric_memory,
            consistency_memory=self.consistency_memory,
            context_tokens=self.context_tokens,
            evidence_match=self.evidence_match,
            criteria_per_call=self.criteria_per_call,
        )


class Calibration(Frozen):
    """How raw scores become human-scale scores."""

    method: Literal["choose", "rulers", "ridge", "linear", "isotonic", "linking", "identity"] = "choose"
    """A method by name (ridge: rulers without its map of distributions), or the one that does best inside folds of the
    calibration split."""
    choose_by: Literal["qwk", "rmse"] = "qwk"
    """What it has to do best in: agreement of the rounded scores, which keeps their spread, or error, which shrinks
    it."""
    minimum: int = Field(default=50, ge=2)
    """Labels an item needs for a mapping of its own; otherwise items are pooled."""
    alpha: float = Field(default=2.5, gt=0)
    """Strength of the ridge."""


class Release(Frozen):
    """Which scores go out without a person looking first."""

    tolerance: float = Field(default=1.0, ge=0)
    """Steps of the scale that a released score may differ from the human score."""
    risk: float = Field(default=0.05, gt=0, lt=1)
    """Share of released scores that may differ by more."""
    confidence: float = Field(default=0.9, gt=0.5, lt=1)
    """Confidence with which that is promised."""
    by: Literal["item", "set"] = "item"
    """Whether the promise is made for every item by its own labels, or for the set as a whole."""
    coverage: float = Field(default=0.9, gt=0, lt=1)
    """Share of human scores that the intervals shall hold."""


class Evaluation(Frozen):
    """What the scores are compared with."""

    target: str = "mean"
    """The human score that counts: a rater id, or 'mean' for the mean of the available persons."""
    draws: int = Field(default=2000, ge=0)
    """Bootstrap draws."""
    seed: int = 0
    """Seed of the bootstrap."""


class Study(Frozen):
    """A study file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    """Short name; the run's id begins with it."""
    data: Data
    rubrics: Rubrics
    split: Split = Split()
    judge: Judge = Judge()
    graph: Graphs = Graphs()
    reward: Reward | None = None
    calibration: Calibration = Calibration()
    release: Release = Release()
    evaluation: Evaluation = Evaluation()


def load_study(path: Path) -> Study:
    """Read a study file; InputError names the file, the key and the rule."""
    return parse(Study, read_yaml(path), path)


class _Loader(yaml.SafeLoader):
    """YAML in which no key is given twice: the last one would win and nobody would know."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key '{key.value}' is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file in UTF-8; InputError where it cannot be read or gives a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), _Loader)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", file=path) from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"is not YAML: {error.problem}{line}", file=path) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", file=path) from error
    except RecursionError as error:
        raise InputError("is not YAML: nested too deeply", file=path) from error


def parse(model: type[Model], content: Any, file: object) -> Model:
    """Content as a model; InputError names the first offending key and the rule it breaks."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        more = f"and {error.error_count() - 1} more" if error.error_count() > 1 else None
        raise InputError(first["msg"], file=file, field=field, hint=more) from error
