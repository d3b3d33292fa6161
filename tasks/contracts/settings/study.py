"""The study file: what to grade, with which rubrics, by which judge, calibrated and compared with whom.

Paths are relative to the study file. An unknown key is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from tasks.contracts.bundle import CriterionKind, EvidenceType, Scale
from tasks.contracts.errors import InputError
from tasks.contracts.schema import Frozen, Share
from tasks.contracts.settings.annotation import Annotation
from tasks.contracts.settings.bottleneck import Bottleneck
from tasks.contracts.settings.edit import Edit
from tasks.contracts.settings.graph import Graphs
from tasks.contracts.settings.judge import Judge
from tasks.contracts.settings.reward import Reward

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
    averaged: bool = False
    """Whether the score is a mean of several persons', and so may lie between the steps of the scale."""
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
    scale: Scale | None = None
    """The score scale of these items; where not given, each item's own: 0 to the marks that its criteria or weighted
    elements add up to."""
    step: float = Field(default=1.0, gt=0)
    """Distance between neighbouring scores where each item has a scale of its own: 0.5 where half marks are given."""
    kind: CriterionKind = "gold_point"
    """Kind of the criteria made."""
    evidence: EvidenceType = "local_quote"
    """Their evidence type."""
    levels: tuple[str, ...] = ("absent", "in part", "present")
    """Their levels, where the item says none."""

    @model_validator(mode="after")
    def _bears_marks(self) -> Derived:
        if self.scale is None and self.origin == "reference_answer":
            raise ValueError("the sentences of a reference answer bear no marks; give the scale")
        return self


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
    shares: tuple[Share, Share, Share] | None = None
    """In place of `calibration`: shares of the whole set, labelled or not, for train, calibration and test, such as
    [0.7, 0.2, 0.1]; they add up to 1."""
    seed: int = 0
    """Another seed is another split."""

    @model_validator(mode="after")
    def _add_up(self) -> Split:
        if self.shares and abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError(f"the shares add up to {sum(self.shares):g}, not to 1")
        return self


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
    annotation: Annotation | None = None
    bottleneck: Bottleneck | None = None
    edit: Edit | None = None
    calibration: Calibration = Calibration()
    release: Release = Release()
    evaluation: Evaluation = Evaluation()

    @property
    def releases(self) -> bool:
        """Whether its scores are to be released: it says how, or is for nothing but grading."""
        others = (self.reward, self.annotation, self.bottleneck, self.edit)
        return "release" in self.model_fields_set or not any(others)


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
