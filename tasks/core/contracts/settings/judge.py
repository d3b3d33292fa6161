"""The judge of a study: who judges, under which protocol, and how recorded replies are read."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, model_validator

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.backends import (
    BACKENDS,
    Choice,
    PromptedModel,
    Purpose,
    backends_serving,
    missing_setting,
    serves,
)
from rubricflow.tasks.core.contracts.bundle import JudgingRules, Protocol, Scale
from rubricflow.tasks.core.contracts.protocols import (
    PROTOCOLS,
    Combine,
    FinalScore,
    Option,
    ProtocolName,
    Signal,
    WorkedExamples,
    protocols_where,
)
from rubricflow.tasks.core.contracts.schema import AboveZero, Frozen, Natural, NonNegative, Positive, Share, left_out
from rubricflow.tasks.core.contracts.settings.data import Where
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling


class Reader(Frozen):
    """How to read the score in a foreign raw reply: the sum of JSON keys, or of the groups of a pattern."""

    json_keys: tuple[str | tuple[str, ...], ...] = ()
    """JSON keys whose numbers are added. In place of a key, a list of alternatives, of which the first that is there
    counts, as in [[score, total_score, Total]]. 'a.b' is a key of that name, or else b in the object under a."""
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
        if not all(key and all(key) for key in self.json_keys):
            raise ValueError("json_keys holds an empty key, or a list without one")
        return self


class ForeignItem(Frozen):
    """How one item's foreign replies are read."""

    reader: Reader | None = None
    """In place of the general reader."""
    scale: Scale | None = None
    """In place of the general scale."""


class ForeignOrder(Frozen):
    """In which order the two answers of a pair were shown."""

    column: str
    """Column that says so."""
    first: dict[str, Literal["a", "b"]]
    """Its words → the answer of the pair that was shown first, as in {AB: a, BA: b}."""
    names: Literal["shown", "pair"] = "shown"
    """What replies call the first one: that which was shown first, or the pair's answer a whatever was shown."""


class Foreign(Frozen):
    """A table of raw replies that another system recorded."""

    file: str
    """Parquet, CSV, TSV or JSONL."""
    response_id: str | tuple[str, ...]
    """Column of the response's id, or several whose values make it, joined by colons."""
    reply: str | tuple[str, ...]
    """Column of the raw reply, or several whose values are taken as a JSON object under their names."""
    sample: str | tuple[str, ...] | None = None
    """Column that tells repeated replies about a response apart, in its order; `samples` of them are taken. Of pairs it
    may be several columns, and the same value, such as a prompt's name, is the same sample of every pair."""
    recorded: str | None = None
    """Column of the score that the other system read from it, to compare with ours; of repeated replies their mean."""
    explanation: str | None = left_out(None)
    """Column of what the judge said for its score: the words in it that stand in quotation marks are looked for in the
    response. Left out of what names a run where there is none."""
    where: Where = {}
    """Only rows in which each of these columns has this value, or one of these."""
    reader: Reader
    """How the score is read."""
    order: ForeignOrder | None = None
    """Where the replies compare the two answers of a pair: 1 is read for the first, 2 for the second, 0 for a tie.
    `response_id` is then the pair's, see `Source.pairs`."""
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
    noise: NonNegative = 0.1
    """Standard deviation of its opinion, in shares of the scale."""
    anchoring: Share = 0.5
    """How far it moves towards the exemplars it is shown."""
    invented: Share = 0.05
    """Share of its quotes that stand nowhere in the response."""
    broken: Share = 0.01
    """Share of its replies that break the contract."""
    seed: int = 0
    """Another seed is another rater."""


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Judge(JudgingRules, Choice):
    """Who judges and how; or, with `jury`, who judge together; with `escalate`, who judges where this one is unsure.
    Levels that are likeliest or expected need `engine.logprobs`."""

    backend: Annotated[str, serves("judge")] = "embedded"
    """embedded: the small sentence encoder; replay: recorded replies; vllm: a language model in this process; openai:
    one behind an OpenAI-compatible server; hosted: one of a provider; simulated: a made-up rater that knows the truth;
    trained: a bottleneck grader; jury: the judges that `jury` names, which alone says so, too."""
    jury: dict[Name, Judge] = {}
    """Jurors by name, two or more: each a judge as any other, with its own replies and costs. What they say is combined
    into one more rater's decisions and scores, under the first juror's protocol."""
    combine: Combine = "choose"
    """How jurors' decisions and scores become one, see `COMBINE`."""
    escalate: tuple[Judge, ...] = ()
    """The further steps of a cascade, each a judge or a jury: one is asked only about answers of which those before it
    are unsure, and people last. Every step judges the marked answers, by which `release` decides who is sure enough."""
    cost_limit: AboveZero | None = None
    """With escalate: the most that judging may cost an answer in the mean, in US dollars, so that the price of every
    step has to be known; null for what costs least with people's work."""
    protocol: ProtocolName = Field(default_factory=lambda others: _usual_protocol(others))
    """See `Protocol.name`. Where not given: checked_score for judges that read prose, rulers for the others."""
    repair_engine: Engine | None = None
    """With vllm or openai: the model that mends replies; the same one where not given."""
    support_by: PromptedModel | None = None
    """With `support`: the further judge that is asked about doubtful credits; null for what needs no call."""
    truth: Truth | None = None
    """With simulated: what it knows and how it errs."""
    grader: str | None = None
    """With trained: the file that `rubricflow train` wrote, relative to the study file."""
    sampling: Sampling = Sampling()
    """How replies are drawn."""
    samples: Positive = 1
    """How often everything is asked: repetition s with the seed + s. Calibration uses the mean of the repetitions."""
    foreign: Foreign | None = None
    """With replay: a foreign table of raw replies."""
    signals: tuple[Signal, ...] | None = None
    """In place of the protocol's own list."""
    final_score: FinalScore | None = None
    """In place of the protocol's own formula."""
    min_tokens: Natural | None = None
    """In place of the protocol's own gate for short responses."""
    evidence: Literal["typed", "off"] = "typed"
    """off: no criterion demands evidence (rulers without phase II)."""
    echo: Literal["refused", "allowed"] | None = None
    """See `Protocol.echo`; where not given, allowed for rubrics made of a model answer and refused for the others."""
    examples: WorkedExamples | None = None
    """See `WorkedExamples`; null for none."""
    criteria_per_call: Positive | None = None
    """How many criteria are asked for in one call; GEAR's reward judge takes at most 4. Where not given, pointwise asks
    for one, rulers and checked_score for all of them."""
    keep: str | None = None
    """An earlier run by the same judge: its decisions on criteria, questions and responses that have not changed since
    stand, and only the others are asked for."""

    @model_validator(mode="after")
    def _is_cascade(self) -> Judge:
        if self.cost_limit is not None and not self.escalate:
            raise ValueError("cost_limit belongs to escalate, whose steps it holds for together")
        for number, step in enumerate(self.steps, 1) if self.escalate else ():
            if step.escalate:
                raise ValueError(f"step {number} of the cascade is a cascade itself; name its steps here")
            for name, judge in step.jurors.items():
                whose = f"step {number} of the cascade{f', juror {name!r}' * bool(name)}"
                if judge.consistency_memory or judge.keep:
                    rule = "a step judges only what reaches it, so that consistency_memory and keep have no place there"
                    raise ValueError(f"{whose}: {rule}")
                if number > 1 and PROTOCOLS[judge.protocol].compares:
                    rule = (
                        "scores by comparison are worth the same among the same answers alone, and few reach this step"
                    )
                    raise ValueError(f"{whose}: {rule}")
        if self.escalate and len(set(map(Judge.model_dump_json, self.jurors.values()))) < len(self.jurors):
            raise ValueError("one and the same judge is asked at two places of the cascade; a step is of other judges")
        return self

    @model_validator(mode="before")
    @classmethod
    def _names_its_backend(cls, given: Any) -> Any:
        """Jurors alone say that it is a jury."""
        is_jury = isinstance(given, dict) and given.get("jury") and "backend" not in given
        return {**given, "backend": "jury"} if is_jury else given

    @model_validator(mode="after")
    def _is_jury(self) -> Judge:
        if self.backend != "jury":
            if self.jury or self.combine != "choose":
                raise ValueError("'jury' and 'combine' belong to backend: jury, which needs no other")
            return self
        if len(self.jury) < 2:
            raise ValueError("a jury has two jurors or more")
        said = self.model_fields_set - {"backend", "jury", "combine", "escalate", "cost_limit"}
        if idle := sorted(name for name in said if getattr(self, name) != self._usual(name)):
            raise ValueError(f"{', '.join(idle)}: say this of each juror; a jury judges by what its jurors say")
        for name, juror in self.jury.items():
            if juror.jury:
                raise ValueError(f"juror '{name}' is a jury itself; name its jurors here")
            if juror.judges_whole_items != self.lead.judges_whole_items:
                rule = "consistency_memory and protocols that compare answers judge whole questions"
                raise ValueError(f"{rule}: let every juror do so, or none")
        if len(set(map(Judge.model_dump_json, self.jury.values()))) < len(self.jury):
            raise ValueError("two jurors with the same settings are one and would agree with themselves")
        return self

    def can(self, purpose: Purpose) -> bool:
        """Whether it answers what is wanted for this. A cascade only judges: who goes on, calibrated risks decide."""
        return purpose in BACKENDS[self.backend].serves and (purpose == "judge" or not self.escalate)

    @property
    def judges_whole_items(self) -> bool:
        """Whether an item's responses bear on one another."""
        return bool(self.consistency_memory or PROTOCOLS[self.protocol].compares)

    def _usual(self, name: str) -> Any:
        """What a setting is where nobody says it."""
        return self.lead.protocol if name == "protocol" else type(self).model_fields[name].default

    @property
    def steps(self) -> tuple[Judge, ...]:
        """The judges or juries of the cascade in order; itself where there is none."""
        if not self.escalate:
            return (self,)
        return (self.model_copy(update={"escalate": (), "cost_limit": None}), *self.escalate)

    @property
    def jurors(self) -> dict[str, Judge]:
        """Who is asked: name → judge, those of a cascade by their steps; with the empty name where there is one judge
        alone."""
        if self.escalate:
            return {
                f"step {number}{f' {name}' * bool(name)}": judge
                for number, step in enumerate(self.steps, 1)
                for name, judge in step.jurors.items()
            }
        return self.jury or {"": self}

    @property
    def families(self) -> dict[str, str]:
        """Juror → its model family: the first word of its model's name, or of its own where nobody names the model."""
        models = {name: (one.engine and one.engine.model) or one.model or name for name, one in self.jurors.items()}
        words = {name: re.search(r"[^\W\d_]+", model.rpartition("/")[2].casefold()) for name, model in models.items()}
        return {name: word[0] if word else name for name, word in words.items()}

    @property
    def voices(self) -> list[float]:
        """The jurors' equal shares, of sum 1: each family has one voice, which its jurors share."""
        sizes = Counter(self.families.values())
        return [1 / sizes[family] / len(sizes) for family in self.families.values()]

    @property
    def lead(self) -> Judge:
        """Whose protocol the bundle carries: the first juror's, or its own."""
        return next(iter(self.jurors.values()))

    @model_validator(mode="after")
    def _is_complete(self) -> Judge:
        if self.jury:
            return self
        registered = PROTOCOLS[self.protocol]
        if self.support and registered.quotes is None:
            able = protocols_where(lambda protocol: protocol.quotes is not None)
            raise ValueError(f"support looks at the quotes of credits, protocol: {able}")
        if self.support and self.keep:
            raise ValueError("support looks at all credits together, so that 'keep' has no place with it")
        if self.support_by and not self.support:
            raise ValueError("support_by belongs to support, which says what it is asked about")
        if self.foreign and not (self.backend == "replay" and registered.reads_foreign):
            able = protocols_where(lambda protocol: protocol.reads_foreign)
            raise ValueError(f"a foreign table of replies needs backend: replay and protocol: {able}")
        if self.foreign and (self.foreign.order is not None) != (registered.compares == "pairs"):
            raise ValueError("foreign verdicts on pairs need foreign.order and protocol: pairwise")
        if self.foreign and self.foreign.order and (self.foreign.recorded or self.foreign.scale or self.foreign.items):
            raise ValueError("a verdict on a pair has no 'recorded' score, 'scale' or 'items'")
        if self.foreign and (self.foreign.sample is not None) != (self.samples > 1):
            raise ValueError(
                "repeated replies of a foreign table need their column, foreign.sample, and samples, how many"
            )
        if self.replies and (self.backend != "replay" or self.foreign):
            raise ValueError("a file of recorded replies needs backend: replay, and no foreign table")
        if len({self.backend == "trained", registered.is_trained, self.grader is not None}) > 1:
            able = protocols_where(lambda protocol: protocol.is_trained)
            raise ValueError(f"a trained grader needs backend: trained, protocol: {able} and the grader's file")
        if (problem := missing_setting(self)) and BACKENDS[
            self.backend
        ].needs != "model":  # a foreign table has its own name
            raise ValueError(problem)
        if self.samples > 1 and self.keep:
            raise ValueError("'samples' asks everything anew, so that 'keep' has no place with it")
        is_same = self.sampling.temperature == 0 and registered.compares != "groups"  # whose order is another each time
        if self.samples > 1 and BACKENDS[self.backend].needs == "engine" and is_same:
            raise ValueError("with temperature 0 every sample is the same reply; set judge.sampling.temperature")
        if self.level != "stated" and not (self.engine and self.engine.logprobs):
            raise ValueError(f"level: {self.level} needs the model's log-probabilities; set judge.engine.logprobs")
        if self.examples and (problem := self._idle_examples()):
            raise ValueError(problem)
        for option in sorted({*get_args(Option)} - {*registered.options}):
            # 1 stood in every study that was written down when one criterion a call was the default.
            if getattr(self, option) not in (type(self).model_fields[option].default, 1):
                taking = protocols_where(lambda protocol, option=option: option in protocol.options)  # type: ignore[misc]
                raise ValueError(f"{option} belongs to protocol: {taking}")
        return self

    def _idle_examples(self) -> str | None:
        """Why worked examples would be idle, or would tell a response its own label."""
        if not PROTOCOLS[self.protocol].teaches:
            return f"examples belong to protocol: {protocols_where(lambda protocol: bool(protocol.teaches))}"
        if self.foreign or not BACKENDS[self.backend].reads_prose:
            readers = ", ".join(name for name, backend in BACKENDS.items() if backend.reads_prose)
            return f"examples are for a judge that reads prose, backend: {readers}, without a foreign table"
        if self.consistency_memory:
            return "with examples, consistency_memory would show a response what others got who were shown its label"
        if self.keep:
            return "decisions that 'keep' lets stand were taken with other examples, or none"
        return None

    def as_protocol(self) -> Protocol:
        """The protocol as the bundle carries it; of a cascade that of its first step."""
        if self.escalate:
            return self.steps[0].as_protocol().model_copy(update={"steps": len(self.steps)})
        if self.jury:
            lead = self.lead.as_protocol()
            told: tuple[Signal, ...] = (*lead.signals, "disagreement")
            told += ("jurors",) if self.combine == "columns" else ()
            return lead.model_copy(update={"signals": told, "jurors": tuple(self.jury), "combine": self.combine})
        registered = PROTOCOLS[self.protocol]
        asks_whole = "criteria_per_call" in registered.options and registered.criteria_per_call is None
        kept = {name: getattr(self, name) for name in JudgingRules.model_fields}
        return Protocol(
            **kept,
            name=self.protocol,
            final_score=self.final_score or registered.final_score,
            signals=self.signals or registered.signals,
            min_tokens=registered.min_tokens if self.min_tokens is None else self.min_tokens,
            criteria_per_call=self.criteria_per_call or 1,
            in_parts=asks_whole and self.criteria_per_call is not None,
        )


def _usual_protocol(others: Fields) -> ProtocolName:
    """What a judge is asked by where a study names nothing. A sentence encoder has no use for a scoring guide."""
    if jury := others.get("jury"):
        first: Judge = next(iter(jury.values()))
        return first.protocol
    backend = others.get("backend", "")
    return "checked_score" if backend in BACKENDS and BACKENDS[backend].reads_prose else "rulers"


class Doubt(Frozen):
    """Which labels people are asked about, and in which order."""

    probability: Share = 0.6
    """Below this probability of its level an annotator's label is doubtful."""
    human_gap: float = Field(default=0.3, gt=0, le=1)
    """Where the annotators' mean share of the levels lies further than this from the human score's share of its scale,
    the response is doubtful."""
    audit: Share = 0.05
    """Share of the responses without any doubt that are asked about all the same: only they tell how often annotators
    err together."""
    most: Positive | None = None
    """Most cases in the queue; null for all that are doubtful."""
    seed: int = 0
    """Seed of the audit's draw."""


class Annotation(Frozen):
    """Two annotators, and what becomes of their doubts."""

    annotators: dict[Name, Judge]
    """Two annotators by name; each a judge of its own, of which the backend with its engine, sampling, truth, repair
    and recorded replies count. Neither sees what the other says."""
    doubt: Doubt = Doubt()
    """What is asked about."""

    @model_validator(mode="after")
    def _two(self) -> Annotation:
        if len(self.annotators) != 2:
            raise ValueError(f"there are two annotators, not {len(self.annotators)}")
        first, second = self.annotators.values()
        if first == second:
            raise ValueError("two annotators with the same settings are one and would agree with themselves")
        for name, judge in self.annotators.items():
            if not judge.can("annotate"):
                what = "a cascade" if judge.escalate else f"backend '{judge.backend}'"
                raise ValueError(f"annotator '{name}': {what} gives no labels; use {backends_serving('annotate')}")
            if judge.examples:
                raise ValueError(f"annotator '{name}': the examples that annotators see are those of the rubric")
        return self

    @property
    def asked(self) -> Judge:
        """The protocol that both annotators follow: their bundle is one."""
        first = next(iter(self.annotators.values()))
        said = {"repair": first.repair, "min_tokens": first.min_tokens, "top_is_rare": first.top_is_rare}
        return Judge(protocol="concepts", failed_quote="count", **said)

    def judge(self, name: str) -> Judge:
        """An annotator as a judge under that protocol."""
        return self.annotators[name].model_copy(update={"protocol": "concepts"})
