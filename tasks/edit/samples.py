"""What a study gives the arms to learn from and to be measured on: its tables as samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.tables.edit import Part
from tasks.edit.rollout import Sample
from tasks.edit.scheme import printed, top_mark


class GradingSamples(NamedTuple):
    """The samples of a study in the order of their ids."""

    train: tuple[Sample, ...]
    """The train split, as far as it has gold marks."""
    test: tuple[Sample, ...]
    """The test split."""
    part: Mapping[str, Part]
    """Response → train, or whether its item is seen in training."""
    unlabelled: int
    """Training responses left out because they have no gold mark."""
    bundles: Mapping[str, Bundle]
    """Item → its locked rubric."""


def grading_samples(
    responses: Sequence[Mapping[str, Any]],
    items: Sequence[Mapping[str, Any]],
    bundles: Mapping[str, Bundle],
    gold: Mapping[str, float],
) -> GradingSamples:
    """Rows of `responses` and `items`, bundles by rubric and target scores by response as samples.

    InputError for a target score that is no whole mark from 0 to the highest, a scale of another form, no training
    response with a target score, or no test response.
    """
    item_rows = {item["item_id"]: item for item in items}
    bundle_of = {item_id: bundles[item["rubric_id"]] for item_id, item in item_rows.items()}
    tops = {item_id: top_mark(bundle) for item_id, bundle in bundle_of.items()}
    schemes = {item_id: printed(bundle) for item_id, bundle in bundle_of.items()}

    def sample(row: Mapping[str, Any]) -> Sample:
        item_id = row["item_id"]
        item = item_rows[item_id]
        return Sample(
            response_id=row["response_id"],
            item_id=item_id,
            question="\n\n".join(filter(None, (item["question"], item["context"]))),
            scheme=schemes[item_id],
            answer=row["text"],
            top=tops[item_id],
            gold=_mark(row["response_id"], gold.get(row["response_id"]), tops[item_id]),
        )

    ordered = sorted(responses, key=lambda row: str(row["response_id"]))
    train_split = [sample(row) for row in ordered if row["split"] == "train"]
    train = tuple(sample for sample in train_split if sample.gold is not None)
    test = tuple(sample(row) for row in ordered if row["split"] == "test")
    if not train:
        rule = "there is no response to train on"
        if train_split:
            rule = "none of the responses to train on has a target score"
        raise InputError(rule, field="split", hint="split: {shares: [0.8, 0, 0.2]} makes four fifths the train split")
    if not test:
        raise InputError("there is no response in the test split, so no arm could be measured", field="split")
    train_items = {sample.item_id for sample in train}
    part: dict[str, Part] = {}
    for tested in test:
        part[tested.response_id] = "seen" if tested.item_id in train_items else "unseen"
    part |= {sample.response_id: "train" for sample in train}
    return GradingSamples(train, test, part, len(train_split) - len(train), bundle_of)


def _mark(response_id: str, score: float | None, top: int) -> int | None:
    if score is None:
        return None
    if not (float(score).is_integer() and 0 <= score <= top):
        rule = f"response '{response_id}' has the target score {score:g}; a mark is a whole number from 0 to {top}"
        raise InputError(rule, field="score", hint="evaluation: {target: …} names one rater in place of the mean")
    return int(score)
