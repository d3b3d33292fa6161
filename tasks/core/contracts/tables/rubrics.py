"""The tables of rubrics, as authored and as locked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from rubricflow.tasks.core.contracts.schema import References, Row
from rubricflow.tasks.core.contracts.settings.engine import Call

Origin = Literal["authored", "reference_answer", "key_elements", "criteria", "induced"]
ORIGINS: Mapping[str, str] = {
    "authored": "a person wrote its criteria",
    "reference_answer": "made of the sentences of a reference answer",
    "key_elements": "made of a list of key elements",
    "criteria": "made of the criteria that come with the item",
    "induced": "made by a model of its prose",
}


class Rubrics(Row):
    """An authored rubric."""

    table: ClassVar[str] = "rubrics"
    key: ClassVar[tuple[str, ...]] = ("rubric_id",)

    rubric_id: str
    """The name that items point to."""
    title: str
    """Title for people."""
    origin: Annotated[Origin, ORIGINS]
    """Where its criteria come from."""
    content: str
    """The rubric as JSON, as it was locked: induced and reworded where the study says so."""
    lint: list[str]
    """What the linter has to say about it; empty is good."""
    calls: list[Call]
    """The model calls that made or reworded it, in order; empty where a person or code alone did."""


class Bundles(Row):
    """A locked rubric."""

    table: ClassVar[str] = "bundles"
    key: ClassVar[tuple[str, ...]] = ("rubric_id",)

    rubric_id: Annotated[str, References("rubrics", "rubric_id")]
    """The rubric it locks."""
    bundle_id: str
    """SHA-256 of the content."""
    content: str
    """The bundle's canonical JSON."""
