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


def cases(
    responses: Sequence[Mapping[str, Any]],
    items: Sequence[Mapping[str, Any]],
    bundles: Mapping[str, Bundle],
    gold: Mapping[str, float],
) -> GradingSamples:
    """Rows of `responses` and `items`, bundles by rubric and target scores by response as samples.

    InputError for a target score that is no whole mark from 0 to the highest, a scale of another form, no training
    response with a target score, or no test response.
    """
    sheets = {item["item_id"]: item for item in items}
    bundle_of = {name: bundles[sheet["rubric_id"]] for name, sheet in sheets.items()}
    tops = {name: top_mark(bundle) for name, bundle in bundle_of.items()}
    schemes = {name: printed(bundle) for name, bundle in bundle_of.items()}

    def sample(row: Mapping[str, Any]) -> Sample:
        name = row["item_id"]
        asked = "\n\n".join(filter(None, (sheets[name]["question"], sheets[name]["context"])))
        mark = _mark(row["response_id"], gold.get(row["response_id"]), tops[name])
        return Sample(row["response_id"], name, asked, schemes[name], row["text"], tops[name], mark)

    ordered = sorted(responses, key=lambda row: str(row["response_id"]))
    given = [sample(row) for row in ordered if row["split"] == "train"]
    train = tuple(one for one in given if one.gold is not None)
    test = tuple(sample(row) for row in ordered if row["split"] == "test")
    if not train:
        what = "none of the responses to train on has a target score" if given else "there is no response to train on"
        raise InputError(what, field="split", hint="split: {shares: [0.8, 0, 0.2]} makes four fifths the train split")
    if not test:
        raise InputError("there is no response in the test split, so no arm could be measured", field="split")
    seen = {one.item_id for one in train}
    part: dict[str, Part] = {one.response_id: "seen" if one.item_id in seen else "unseen" for one in test}
    part |= {one.response_id: "train" for one in train}
    return GradingSamples(train, test, part, len(given) - len(train), bundle_of)


def _mark(response_id: str, score: float | None, top: int) -> int | None:
    if score is None:
        return None
    if not (float(score).is_integer() and 0 <= score <= top):
        rule = f"response '{response_id}' has the target score {score:g}; a mark is a whole number from 0 to {top}"
        raise InputError(rule, field="score", hint="evaluation: {target: …} names one rater in place of the mean")
    return int(score)
