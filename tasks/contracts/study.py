"""The study file: what to grade, with which rubrics, by which judge, calibrated and compared with whom.

Paths are relative to the study file. An unknown key is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from tasks.contracts.bundle import CriterionKind, EvidenceType, Protocol, ProtocolName, Scale, Signal
from tasks.contracts.errors import InputError
from tasks.contracts.table import Frozen

Model = TypeVar("Model", bound=Frozen)
Column = str | dict[Literal["const"], Any]
"""A column of the source by name, or `{const: value}` for every row."""


class ScoreColumns(Frozen):
    """The columns of one human rater's grading."""

    rater: str
    """Rater id."""
    kind: Literal["human", "adjudication"] = "human"
    """A person, or a score resolved from those of persons, which is no second opinion beside them."""
    score: str | None = None
    """Column of the score; empty cells are no grading. A rater may have marked traits only."""
    traits: dict[str, str] = {}
    """Trait → column."""


class Source(Frozen):
    """One file and how its columns map to the canonical tables. One file may feed several tables."""

    file: str
    """CSV, TSV, JSONL or Parquet, by its ending."""
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
    marks: dict[str, Column] = {}
    """Human decisions per criterion: response_id, rater_id, criterion_id, level → column."""

    @model_validator(mode="after")
    def _raters_once(self) -> Source:
        raters = [columns.rater for columns in self.scores]
        if len(set(raters)) < len(raters):
            raise ValueError(f"a rater is given twice: {', '.join(raters)}")
        return self


class Data(Frozen):
    """Where the data is."""

    layout: str | None = None
    """A layout shipped in tasks/ingest/layouts, instead of `sources`."""
    folder: str = "."
    """The folder that the sources' files are in."""
    sources: tuple[Source, ...] = ()
    """The files."""

    @model_validator(mode="after")
    def _one_of(self) -> Data:
        if bool(self.layout) == bool(self.sources):
            raise ValueError("give either a layout or sources")
        return self


class Derived(Frozen):
    """Rubrics made from what the items carry, for items that no authored rubric names."""

    origin: Literal["reference_answer", "key_elements"]
    """The sentences of the reference answer, or the listed elements, become gold points."""
    scale: Scale
    """The score scale of these items."""
    kind: CriterionKind = "gold_point"
    """Kind of the criteria made."""
    evidence: EvidenceType = "local_quote"
    """Their evidence type."""
    levels: tuple[str, ...] = ("absent", "in part", "present")
    """Their levels."""


class Rubrics(Frozen):
    """Where the rubrics come from."""

    file: str | None = None
    """YAML file with authored rubrics under `rubrics:`."""
    derive: Derived | None = None
    """How to make the others."""

    @model_validator(mode="after")
    def _at_least_one(self) -> Rubrics:
        if not (self.file or self.derive):
            raise ValueError("give a file of rubrics, or say how to derive them")
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
    """How to read the score in a foreign raw reply: the sum of JSON keys, or group 1 of a pattern."""

    json_keys: tuple[str, ...] = ()
    """JSON keys whose numbers are added."""
    pattern: str | None = None
    """A regular expression."""
    take: Literal["first", "last"] = "first"
    """Which match counts."""

    @model_validator(mode="after")
    def _one_of(self) -> Reader:
        if bool(self.json_keys) == bool(self.pattern):
            raise ValueError("give either json_keys or a pattern")
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
    response_id: str
    """Column of the response."""
    reply: str
    """Column of the raw reply."""
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


class Judge(Frozen):
    """Who judges and how."""

    protocol: ProtocolName = "rulers"
    """rulers, pointwise or dhs."""
    backend: Literal["embedded", "replay"] = "embedded"
    """embedded: the small sentence encoder; replay: recorded replies."""
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

    @model_validator(mode="after")
    def _foreign_scores(self) -> Judge:
        if self.foreign and (self.backend != "replay" or self.protocol != "dhs"):
            raise ValueError("a foreign table of replies needs backend: replay and protocol: dhs")
        return self

    def as_protocol(self) -> Protocol:
        """The protocol as the bundle carries it."""
        default: dict[ProtocolName, tuple[Any, tuple[Signal, ...]]] = {
            "rulers": ("trait_mean", ("trait_scores", "length", "confidence", "uncertainty", "tie")),
            "pointwise": ("weighted_points", ("criteria", "trait_means", "length", "confidence")),
            "dhs": ("judged", ("score", "length")),
        }
        formula, signals = default[self.protocol]
        return Protocol(
            name=self.protocol,
            final_score=self.final_score or formula,
            failed_quote=self.failed_quote,
            unscored=self.unscored,
            signals=self.signals or signals,
        )


class Calibration(Frozen):
    """How raw scores become human-scale scores."""

    method: Literal["choose", "rulers", "linear", "isotonic", "linking", "identity"] = "choose"
    """A method by name, or the one that does best inside folds of the calibration split."""
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
