"""The tables of trained arms of Edit: policies, how they learned, what they are worth."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge

from rubricflow.tasks.core.contracts.schema import VOLATILE, Row, Share
from rubricflow.tasks.core.contracts.settings.edit import ARMS, Arm
from rubricflow.tasks.core.contracts.tables.edit import PARTS, TESTED, Part, Tested


class Policies(Row):
    """A trained arm."""

    table: ClassVar[str] = "policies"
    key: ClassVar[tuple[str, ...]] = ("arm", "seed")

    arm: Annotated[Arm, ARMS]
    """The arm."""
    seed: int
    """Its seed."""
    start: Annotated[Arm | None, ARMS]
    """The arm that it was initialised from; null for base, which is no one's."""
    path: str | None
    """Folder of its adapter, relative to the warehouse; it goes on top of its start. Null for base and where nothing
    was trained."""
    digest: str | None
    """SHA-256 of its weights."""
    parameters: Annotated[int, Ge(0)]
    """Numbers trained; 0 where nothing was."""
    updates: Annotated[int, Ge(0)]
    """Optimiser steps."""
    demonstrations: Annotated[int, Ge(0)]
    """Texts in its pool; 0 where it learns by reward."""
    note: str | None
    """Why it was not trained, or what to know about it."""
    seconds: Annotated[float, Ge(0), VOLATILE]
    """Wall time of training, over all sessions of it."""


class Learning(Row):
    """One point of a learning curve."""

    table: ClassVar[str] = "learning"
    key: ClassVar[tuple[str, ...]] = ("arm", "seed", "part", "metric", "step")

    arm: Annotated[Arm, ARMS]
    """The arm."""
    seed: int
    """Its seed."""
    part: Annotated[Part, PARTS]
    """train for what training logs; seen and unseen for looks at the test split, by which nothing is chosen."""
    metric: str
    """reward, outcome, shaping, kl, entropy, unmarked, length, loss and others, as tasks/methods/edit/rl.py and
    sft.py name them; on the test split qwk and others, as in `arm_metrics`."""
    step: Annotated[int, Ge(0)]
    """Updates made until then."""
    value: float | None
    """The number; null where it is undefined."""


class ArmMetrics(Row):
    """One number of one arm."""

    table: ClassVar[str] = "arm_metrics"
    key: ClassVar[tuple[str, ...]] = ("arm", "seed", "part", "metric")

    arm: Annotated[Arm, ARMS]
    """The arm."""
    seed: int
    """Its seed; base, decoded greedily, is the same for all seeds and stands under the first."""
    part: Annotated[Tested, TESTED]
    """Responses to items seen in training, or not."""
    metric: str
    """qwk (macro over items), accuracy, within_1, mae, unmarked; of RL on an SFT arm also probe_kl, probe_jsd,
    probe_jsd_early, probe_jsd_mid and probe_jsd_late against its start (appendix C)."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    n: Annotated[int, Ge(0)]
    """Responses that it rests on."""
    note: str | None
    """Why the value is null, or what to know about it."""


class ArmDifferences(Row):
    """Two arms of one seed on the same responses; base is the same for all seeds."""

    table: ClassVar[str] = "arm_differences"
    key: ClassVar[tuple[str, ...]] = ("arm", "against", "seed", "part", "metric")

    arm: Annotated[Arm, ARMS]
    """The arm."""
    against: Annotated[Arm, ARMS]
    """The arm that is taken from it."""
    seed: int
    """The seed of both."""
    part: Annotated[Tested, TESTED]
    """Responses to items seen in training, or not."""
    metric: str
    """qwk, accuracy, within_1, mae or unmarked."""
    value: float | None
    """arm less against; null with a note."""
    low: float | None
    """Lower end of the 95% interval, paired over responses."""
    high: float | None
    """Upper end."""
    p: Share | None
    """Two-sided bootstrap p-value of no difference."""
    n: Annotated[int, Ge(0)]
    """Responses that both graded."""
    note: str | None
    """Why the value is null, or what to know about it."""
