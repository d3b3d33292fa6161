"""The tables of what is scored: questions, responses and their units."""

from __future__ import annotations

from typing import Annotated, Literal

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import (
    Frozen,
    ItemId,
    Natural,
    Positive,
    ResponseId,
    Row,
    Usually,
)

Split = Literal["train", "calibration", "test", "crossed", "chosen"]
SPLITS: Meanings = {
    "train": "what graders and calibrations may learn from",
    "calibration": "what scores are fitted to the human scale on",
    "test": "held out, to measure on",
    "crossed": "fitted to and measured on: its own score comes from fits without its author",
    "chosen": "labelled because it teaches a mapping most: nothing is measured or promised on it",
}
CALIBRATES = ("calibration", "crossed")
"""The splits whose labels promises rest on."""
MEASURED = ("test", "crossed")
"""The splits whose labels scores are held against."""


UNREAD: Meanings = {
    "file_without_text": "what a file handed in holds, or a part of it, is no text (a scan, pictures, formulas)",
    "file_empty": "a file handed in is empty",
    "file_type": "a file handed in is of a kind that is not read",
    "file_locked": "a file handed in asks for a password",
    "file_damaged": "a file handed in is damaged",
    "file_too_large": "a file handed in is too large, or takes too long to read",
}
"""Why an answer waits for a person without having been judged."""
MADE_FROM: Meanings = {
    "html": "HTML: the text is what a browser shows of it",
    "trace": "a conversation or an agent's trajectory: the text is its turns and steps, each under its heading",
    "file": "documents: the text is what a reader sees of them",
    **UNREAD,
}
RaterKind = Literal["human", "llm", "encoder", "replayed", "simulated", "trained", "jury", "cascade", "adjudication"]
RATER_KINDS: Meanings = {
    "human": "a person",
    "llm": "a language model",
    "encoder": "a sentence encoder",
    "replayed": "a machine whose work was recorded elsewhere",
    "simulated": "a made-up rater, for studies of methods",
    "trained": "a trained grader",
    "jury": "several machines that judge together",
    "cascade": "several machines, each asked where those before it are unsure",
    "adjudication": "what people settled on",
}
UNSCORED_REASONS: Meanings = {
    "no_reply": "the model gave no reply",
    "unreadable_reply": "the reply could not be read",
    "ambiguous_reply": "the reply holds several verdicts that differ",
    "quoted_verdict": "the verdict in the reply stands in the response",
    "truncated": "the reply was cut off before it",
    "invalid_reply": "the reply breaks the contract",
    "off_scale": "a score outside the judge's scale",
    "criterion_missing": "no verdict on a criterion",
    "doubtful_support": "credited, and the passage quoted may not say it",
    "jurors_missing": "fewer than half of the jurors gave a score",
    "criterion_unscored": "a criterion that the score needs could not be judged",
    "trait_unscored": "a part of the score (a trait) could not be judged",
    "traits_only": "only traits were scored",
    "not_compared": "no chain of comparisons joins it with most of the other answers to its question",
    **UNREAD,
}
"""Why there is no number."""


class Listed(Frozen):
    """A criterion that a source lists with its item."""

    id: str
    """Its id, unique in the item."""
    text: str
    """What is looked for."""
    weight: float
    """Signed."""
    levels: list[str]
    """Ordered anchors, worst first for credit; empty where the study says them."""
    parent: str | None
    """The criterion that it is a sub-point of."""


class Items(Row, table="items", key=("item_id",)):
    """A question or prompt."""

    item_id: str
    """Stable id of the item."""
    question: str
    """The question as the author of the response saw it."""
    context: str | None
    """Source text, data table or passage that belongs to the question."""
    reference_answer: str | None
    """A model answer; several as one text, each but the first after 'or:'."""
    key_elements: list[str]
    """Ideas that a full answer names, where the source lists them; empty otherwise."""
    type: str
    """Kind of item, for slices of the evaluation; 'item' where the source has none."""
    rubric_id: str
    """The rubric it is scored with."""
    key_weights: list[float] | None
    """Weights of the key elements in their order, where the source gives them."""
    misconceptions: list[str] | None
    """Mistakes that cost marks, where the source lists them."""
    criteria: list[Listed] | None
    """Criteria of the rubric, where the source lists them with the item."""
    reference_answers: list[str] | None
    """The model answers one by one, each as good as the others, where the source gives several."""
    rubric_text: str | None
    """The scoring guide that people had, where the source carries it: the prose of the item's rubric."""


INPUT_WARNINGS: Meanings = {
    "unread": "what was handed in cannot be read, whole or in part: no judge is asked, a person has to look at it",
    "joined": "several files of one student are joined to one answer",
    "replaced": "files are left out which a later attempt replaced",
    "same_student": "a student answers the same question more than once",
    "same_text": "different students hand in the same text",
    "long": "an answer is at least ten times as long as usual for its question",
    "markup": "HTML is left in the text (`html: true` in the source takes it out)",
    "garbled": "letters look as if the file was read in a wrong encoding",
    "cut": "the text ends where a spreadsheet's cell is full, at 32,767 characters",
    "empty": "there is no text",
}


class InputWarnings(Row, table="input_warnings", key=("kind",)):
    """Something about the responses that a person should look at; it stops nothing."""

    kind: Annotated[str, INPUT_WARNINGS]
    """What it is."""
    responses: Positive
    """How many responses it is about."""
    examples: list[str]
    """The first of them, by their ids; two that belong together as 'x1 and x7'."""


class Responses(Row, table="responses", key=("response_id",)):
    """One text to score."""

    response_id: str
    """Stable id of the response."""
    item_id: ItemId
    """The item it answers."""
    author_id: Annotated[str | None, Usually(0.9, "mostly_not_null")]
    """Who wrote it; the cluster of the bootstrap where known."""
    text: Annotated[str, Usually(0.95, "mostly_filled")]
    """The response as stored; all spans count its characters."""
    split: Annotated[str, SPLITS]
    """The part of the data it belongs to."""
    groups: dict[str, str]
    """Subgroup memberships: group variable → group."""
    author_name: str | None
    """What its author is called in a gradebook; it is shown to no judge."""
    made_from: Annotated[str | None, MADE_FROM]
    """What the text was made from, where the source held no plain text; or why it lacks, whole or in part, so that no
    judge is asked and a person has to look at what was handed in."""


class StepResponses(Responses, table="step_responses", key=("response_id", "step")):
    """A text that a step of a cascade is asked about in addition to the first, which is asked about all."""

    author_id: str | None
    """Who wrote it."""
    step: Natural
    """Which step, from 2; 0 for the labelled texts, about which all are asked."""


TURN_KINDS: Meanings = {
    "system": "told to the assistant before it begins",
    "user": "said by the user",
    "assistant": "said by the assistant",
    "thought": "thought by the assistant, told to nobody",
    "call": "done by a tool: its call",
    "result": "a tool's result",
}
"""Kinds of a trace's turns and of its steps, which are the last two."""


class Units(Row, table="units", key=("response_id", "unit_id")):
    """A sentence or paragraph of a response, or a turn or step of a trace."""

    response_id: ResponseId
    """The response."""
    unit_id: str
    """s1, s2, … for sentences; p1, p2, … for paragraphs. Of a trace, numbered together: t1, t3, … for turns; a2, … for
    steps."""
    kind: Annotated[str, {"sentence": "a sentence", "paragraph": "a paragraph", **TURN_KINDS}]
    """What it is."""
    start: Natural
    """First character (code point) in the response's text."""
    end: Natural
    """One past the last character."""
