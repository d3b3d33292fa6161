"""The study file: what to grade, with which rubrics, by which judge, calibrated and compared with whom.

Paths are relative to the study file. An unknown key is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.bundle import CriterionKind, EvidenceType, Scale
from rubricflow.tasks.core.contracts.schema import AboveZero, Frozen, Natural, NonNegative, left_out
from rubricflow.tasks.core.contracts.settings.data import Data, Split
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.contracts.settings.judge import Annotation, Judge
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck, Edit
from rubricflow.tasks.core.contracts.settings.reward import Graphs, Reward
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod


class Derived(Frozen):
    """Rubrics made from what the items carry, for items that no authored rubric names."""

    origin: Literal["reference_answer", "key_elements", "criteria"]
    """What the reference answer says, or the listed elements, become gold points (of several reference answers one
    point: that the response says what any of them says); or the item lists its criteria itself. A reference answer's
    lists, its points in brackets and how many the question asks for are kept to (docs/rubrics.md)."""
    scale: Scale | None = None
    """The score scale of these items; where not given, each item's own: 0 to the marks that its criteria or weighted
    elements add up to."""
    step: AboveZero = 1.0
    """Distance between neighbouring scores where each item has a scale of its own: 0.5 where half marks are given."""
    kind: CriterionKind = "gold_point"
    """Kind of the criteria made."""
    evidence: EvidenceType = "local_quote"
    """Their evidence type."""
    levels: tuple[str, ...] = ("not said", "said in part: some of it is missing or wrong", "said, in whatever words")
    """Their levels, where the item says none; of what one of several suffices for, the lowest and the highest."""
    earns: tuple[float, ...] = left_out(())
    """The share of its point that each of these levels earns, from 0 to 1: `[0, 0.75, 1]`; equally spaced where not
    given."""

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
    temperature: NonNegative = 0.7
    """Above 0, so that another seed can bring another reply."""


class RubricSettings(Frozen):
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
    def _at_least_one(self) -> RubricSettings:
        if not (self.file or self.derive):
            raise ValueError("give a file of rubrics, or say how to derive them")
        if self.induce and not self.file:
            raise ValueError("to induce criteria needs a file of rubrics with their prose")
        return self


Feature = Literal["judge", "characters", "embedding", "hidden"]
FEATURES: Meanings = {
    "judge": "what the protocol's signals give",
    "characters": "n-grams of characters of the response",
    "embedding": "the response as a sentence encoder sees it, and how it meets the reference answer",
    "hidden": "the states of a language model that has read question, rubric and response",
}


class Calibration(Frozen):
    """How raw scores become human-scale scores."""

    method: Literal["choose"] | CalibrationMethod = "choose"
    """A method by name (ridge: rulers without its map of distributions), or by what the labels show inside folds of the
    calibration split: `stacked`, or another that is better by more than one standard error (of several items pooled the
    best), as far as it agrees with people better than the raw score does, beyond noise where items are pooled. Few
    labels, and a judge that agrees anyway, leave the raw score."""
    features: tuple[Annotated[Feature, FEATURES], ...] = ("judge", "characters", "embedding")
    """What `stacked` may go by, the judge always among it. The text moves the number, never the evidence."""
    language_model: str | None = None
    """Folder of the model whose states `hidden` takes."""
    choose_by: Literal["qwk", "rmse"] = "qwk"
    """What it has to do best in: agreement of the rounded scores, which keeps their spread, or error, which shrinks
    it."""
    minimum: int = Field(default=50, ge=2)
    """Labels an item needs for a mapping of its own; otherwise items are pooled."""
    alpha: AboveZero = 2.5
    """Strength of the ridge of `rulers`."""

    @model_validator(mode="after")
    def _features_fit(self) -> Calibration:
        if "judge" not in self.features:
            raise ValueError("the judge belongs to calibration.features; a score without it is method: text_only")
        if ("hidden" in self.features) != (self.language_model is not None):
            raise ValueError("calibration.features: hidden and calibration.language_model belong together")
        return self

    @property
    def texts(self) -> tuple[Feature, ...]:
        """What of the text the mappings may take; nothing where the method named takes none."""
        if self.method not in ("choose", "stacked", "text_only"):
            return ()
        return tuple(name for name in self.features if name != "judge")


class Release(Frozen):
    """Which scores go out without a person looking first."""

    tolerance: NonNegative = 1.0
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
    """The human score that counts: a rater id, 'mean' for the mean of the available persons, or 'fair' for what an
    average rater would have given, by a model of who is how severe."""
    random_assignment: bool = False
    """Responses were given to persons by chance, so that severities also compare where two share no response."""
    draws: Natural = 2000
    """Bootstrap draws."""
    seed: int = 0
    """Seed of the bootstrap."""
    beside: tuple[str, ...] = ()
    """Study files, relative to this one, that score the same responses: baselines. They are graded first, and their
    agreement stands next to this one's."""
    judge: Judge | None = left_out(None)
    """Of rewards: a further judge, who scores the rollouts that the study's judge rewards and pays for nothing. Without
    one the scores of `target` in the data are held against the rewards, over the steps of the training."""


class Money(Frozen):
    """By what its report measures what models cost."""

    minutes: AboveZero | None = None
    """That a person takes to score one response; null where nobody says, and then no time is saved by the report."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """In which costs are shown."""
    usd: AboveZero = 1.0
    """US dollars for one unit of it."""


class LoggedJudge(Frozen):
    """What the log of another tool tells of the judge whose verdicts it holds, as `rubricflow calibrate` writes it."""

    tool: str
    """Whose form the log has."""
    version: str | None = None
    """Of the tool."""
    files: tuple[str, ...]
    """The log's files by name."""
    told: dict[str, str]
    """Model, prompt, rubric and settings of the judge, as far as they are told."""
    digest: str
    """SHA-256 of what is told: a calibration holds for this judge and for no other."""
    remarks: tuple[str, ...] = ()
    """What a reader of the figures should know of the log."""


class Study(Frozen):
    """A study file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    """Short name; the run's id begins with it."""
    data: Data
    rubrics: RubricSettings
    split: Split = Split()
    judge: Judge = Judge()
    graph: Graphs = Graphs()
    reward: Reward | None = None
    annotation: Annotation | None = None
    bottleneck: Bottleneck | None = None
    edit: Edit | None = None
    calibration: Calibration = Calibration()
    release: Release = Release()
    marks: Literal["grade", "calibrate"] = "grade"
    """What scores that people gave in the data are. grade: decisions, which stand as the answers' scores and are not
    asked for again; where several people marked an answer, its score is what `evaluation.target` says. calibrate: they
    fit and test the machine's scores, and each answer goes by its machine score or to a person, as if unmarked."""
    evaluation: Evaluation = Evaluation()
    log: LoggedJudge | None = left_out(None)
    """Where the verdicts of another tool's judge are calibrated: what its log tells of it."""
    money: Money = Field(default=Money(), exclude=True)
    """By what costs are shown. Like `run`, and the prices of engines, it is no part of the run's identity."""
    run: Placement = Field(default=Placement(), exclude=True)
    """Where it is worked. It is left out wherever the study is written down, and so of the run's identity."""

    @model_validator(mode="after")
    def _cascade_is_calibrated(self) -> Study:
        if self.judge.escalate and self.reward:
            raise ValueError("judge.escalate: a cascade goes by calibrated risks, and rewards are paid without them")
        return self

    @model_validator(mode="after")
    def _is_judged_by_another(self) -> Study:
        other = self.evaluation.judge
        if other and not self.reward:
            raise ValueError("evaluation.judge scores what a section `reward` rewards; graders are compared by beside")
        if other and other.escalate:
            raise ValueError("evaluation.judge: a cascade goes by calibrated risks, and here nothing is calibrated")
        if other and self.reward and self.reward.rater is None and other == self.judge:
            raise ValueError("evaluation.judge is the study's judge itself, who would agree with every reward")
        return self

    @property
    def releases(self) -> bool:
        """Whether its scores are to be released: it says how, or is for nothing but grading."""
        others = (self.reward, self.annotation, self.bottleneck, self.edit)
        return "release" in self.model_fields_set or not any(others)


def load_study(path: Path) -> Study:
    """Read a study file; InputError names the file, the key and the rule."""
    return parse(Study, read_yaml(path), path)
