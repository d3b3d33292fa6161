"""One grader of a comparison: trained, measured on the held-out splits, and steered. Pure but for the encoder.

Temperature scaling of the grade: one number that makes its probabilities right on the calibration split.

Logits are divided by it, so that no grade given changes (Guo et al. 2017, On calibration of modern neural networks).

How concepts hang together: in the labels, and in the latent concepts of a grader (REC-CBM, section 5.6 and E.6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.bottleneck import ABLATIONS, Bottleneck, Method, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ORDERS, ConceptLinks, Interventions, Models, Trials
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.cb_llm import cb_llm
from rubricflow.tasks.methods.bottleneck.ct_cbm import ct_cbm
from rubricflow.tasks.methods.bottleneck.data import MISSING, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import Trained, rec_cbm
from rubricflow.tasks.methods.bottleneck.intervene import intervention_rows
from rubricflow.tasks.methods.bottleneck.leakage import leakage_rows
from rubricflow.tasks.methods.bottleneck.measures import trial_rows
from rubricflow.tasks.methods.bottleneck.plm import plm
from rubricflow.tasks.methods.bottleneck.policies import order_of, saving_rows, savings
from rubricflow.tasks.methods.bottleneck.states import Say, StateEncoder, quiet
from rubricflow.tasks.methods.bottleneck.trace import Head
from rubricflow.tasks.methods.bottleneck.vanilla import c3m, vanilla_cbm

HELD_OUT = ("calibration", "test")
Embed = Callable[[Sequence[str]], np.ndarray]
RowsByTable = dict[type[Row], list[dict[str, Any]]]


@dataclass(frozen=True)
class Arm:
    """What is trained."""

    method: Method
    seed: int
    setting: str
    """What differs from the study's settings, as 'field=value'; '' for nothing."""
    training: Training

    @property
    def name(self) -> str:
        """Of its shard."""
        suffix = hashlib.sha256(self.setting.encode()).hexdigest()[:8] if self.setting else "as-set"
        return f"{self.method}-{self.seed}-{suffix}"


@dataclass(frozen=True)
class SharedGround:
    """What all arms of a comparison share."""

    data: LabelledData
    encoder: Callable[[], StateEncoder]
    """A fresh one for each arm: a tuned encoder begins with the weights that it was loaded with."""
    texts: Sequence[str]
    """The responses, in the order of the data's rows."""
    embed: Embed
    """The sentence encoder."""
    backbone: str
    """Name of the text encoder, with a digest of its weights."""
    plan: Bottleneck


@dataclass(frozen=True)
class TrainedArm:
    """A trained arm and its rows."""

    trained: Trained
    encoder: StateEncoder
    estimates: Estimates
    """Of all responses."""
    head: Head | None
    """With the temperature that its calibration split asks for."""
    tables: RowsByTable


def arms(plan: Bottleneck) -> list[Arm]:
    """Every method with every seed, then the first method with every setting of the sweep; the first is exported."""
    planned = [Arm(method, seed, "", plan.training) for seed, method in product(plan.seeds, plan.methods)]
    for setting, training in sweep(plan.training, plan.sweep):
        planned += [Arm(plan.methods[0], seed, setting, training) for seed in plan.seeds]
    return planned


def run(arm: Arm, ground: SharedGround, say: Say = quiet) -> TrainedArm:
    """Trains an arm and measures it; InputError where the labels do not suffice."""
    data, encoder = ground.data, ground.encoder()
    trained = train(
        arm.method,
        data,
        encoder,
        arm.training,
        arm.seed,
        texts=ground.texts,
        embed=ground.embed,
        setting=arm.setting,
        say=say,
    )
    estimates = trained.predict(encoder, np.arange(len(data.response_ids)))
    head, calibrated, fitted = _calibrated(trained, estimates, data)
    trials: list[dict[str, Any]] = []
    for split in HELD_OUT:
        trials += _trials(arm, estimates, calibrated, data, split)
    tables: RowsByTable = {
        Models: [_model_row(arm, ground, trained, fitted)],
        Trials: trials,
        Interventions: [],
        ConceptLinks: [],
    }
    test = data.rows("test")
    steered = _estimates_of(estimates, test)
    if head is not None and steered.levels is not None and not arm.setting:
        if arm.seed == ground.plan.seeds[0]:  # hundreds of fits for one number
            # Leakage on all that was held out: a test split alone is seldom enough to cross-fit on.
            rows = np.concatenate([data.rows(split) for split in HELD_OUT])
            shares = estimates.shares(data.concepts.tops)[rows]
            leaks = leakage_rows(shares, data, rows, "test", arm.method, arm.seed)
            leakage = [row | {"note": row["note"] or "calibration and test together"} for row in leaks]
            trials += leakage
        trials += saving_rows(savings(steered.levels, head, data, test, arm.seed), arm.method, arm.seed, "test")
        tables[Interventions] += _interventions(arm, steered, head, data)
        if head.precision is not None:
            tables[ConceptLinks] += link_rows(data, head, arm.method, arm.seed)
    return TrainedArm(trained, encoder, estimates, head, tables)


def _calibrated(trained: Trained, estimates: Estimates, data: LabelledData) -> tuple[Head | None, Floats, float]:
    """(the head with its temperature, calibrated probabilities of all grades, the temperature)."""
    logits = np.log(np.maximum(estimates.grades, 1e-12))
    rows = data.rows("calibration")
    fitted = fit(logits[rows], data.grades[rows]).temperature
    likely = np.exp(logits / fitted - (logits / fitted).max(axis=1, keepdims=True))
    head = None if trained.head is None else replace(trained.head, temperature=fitted)
    return head, likely / likely.sum(axis=1, keepdims=True), fitted


def _trials(arm: Arm, estimates: Estimates, calibrated: Floats, data: LabelledData, split: str) -> list[dict[str, Any]]:
    rows = data.rows(split)
    return trial_rows(
        _estimates_of(estimates, rows), data, split, arm.method, arm.seed, arm.setting, calibrated=calibrated[rows]
    )


def _interventions(arm: Arm, estimates: Estimates, head: Head, data: LabelledData) -> list[dict[str, Any]]:
    """Every order of asking; `estimates` are of the test split."""
    rows = data.rows("test")
    shares, levels = estimates.shares(data.concepts.tops), estimates.levels
    assert levels is not None  # a grader with a head over shares has concepts
    steps = []
    for first in ORDERS:
        order = order_of(first, levels, head, data.concepts.tops, arm.seed)
        steps += intervention_rows(shares, head, data, rows, order, first=first, method=arm.method, seed=arm.seed)
    return steps


def _estimates_of(estimates: Estimates, rows: np.ndarray) -> Estimates:
    levels = None if estimates.levels is None else estimates.levels[rows]
    return Estimates(levels, estimates.grades[rows])


def _model_row(arm: Arm, ground: SharedGround, trained: Trained, fitted: float) -> dict[str, Any]:
    return {
        "method": arm.method,
        "seed": arm.seed,
        "setting": arm.setting,
        "backbone": ground.backbone,
        "encoder": ground.plan.encoder,
        "parameters": trained.parameters,
        "epochs_1": trained.epochs[0],
        "epochs_2": trained.epochs[1],
        "validation": trained.validation,
        "grade_temperature": fitted,
        "seconds": trained.seconds,
    }


BOUND = 10.0
"""The temperature lies within [1/BOUND, BOUND]: where all grades are right, likelihood alone would take it to 0."""


class Fitted(NamedTuple):
    """A temperature and what is to be known about it."""

    temperature: float
    note: str | None = None
    """Why it was not fitted, or that it lies at its bound; None where there is nothing to say."""


def fit(logits: Floats, grades: Ints) -> Fitted:
    """The temperature with the largest likelihood of the grades.

    logits: (n, S + 1); grades: (n,) classes 0…S, MISSING where there is none. It is 1 where nothing is labelled, where
    all labels are one grade, which tells nothing of the others, and where 1 is no worse than the best one found.
    """
    labelled = grades != MISSING
    if len(np.unique(grades[labelled])) < 2:
        reason = "all labels are one grade" if labelled.any() else "there are no labels"
        return Fitted(1.0, f"not fitted: {reason}")

    def loss_at(log_temperature: float) -> float:
        return loss(logits[labelled], grades[labelled], np.exp(log_temperature))

    # Convex in 1/T and so with one minimum in log T.
    best = minimize_scalar(loss_at, bounds=(-np.log(BOUND), np.log(BOUND)), method="bounded")
    if best.fun >= loss_at(0.0):
        return Fitted(1.0)
    at_bound = abs(best.x) > np.log(BOUND) - 1e-3
    return Fitted(float(np.exp(best.x)), "at its bound" if at_bound else None)


def loss(logits: Floats, grades: Ints, temperature: float) -> float:
    """Mean negative log-likelihood of the grades, in nats; logits (n, S + 1), grades (n,) without MISSING."""
    likely = log_softmax(logits / temperature, axis=1)
    return float(-likely[np.arange(len(grades)), grades].mean())


def link_rows(data: LabelledData, head: Head, method: str, seed: int) -> list[dict[str, Any]]:
    """Rows of table `concept_links`, one for each two concepts, labels from the train split.

    Empty for a head without error correction, which has learned no links. A head of the first concepts alone has the
    links of those.
    """
    if head.precision is None:
        return []
    partial = partial_correlations(head.precision)
    labels, n = label_correlations(data.levels[data.rows("train")])
    rows = []
    for a, b in combinations(range(len(partial)), 2):
        label_correlation = None if np.isnan(labels[a, b]) else float(labels[a, b])
        rows.append(
            {
                "method": method,
                "seed": seed,
                "a": data.concepts.ids[a],
                "b": data.concepts.ids[b],
                "label_correlation": label_correlation,
                "partial_correlation": float(partial[a, b]),
                "n": int(n[a, b]),
            }
        )
    return rows


def label_correlations(levels: Ints) -> tuple[Floats, Ints]:
    """(r, n), each (K, K): Pearson correlations of labels over the responses that have both, and their number.

    levels: (n, K), MISSING where there is none. NaN where a concept does not vary on the common responses.
    """
    present = (levels != MISSING).astype(np.float64)
    x = np.where(levels == MISSING, 0, levels).astype(np.float64)
    # Sums over common responses; of whole numbers, so that a constant column leaves an exact zero.
    n, sums, squares, products = present.T @ present, x.T @ present, (x * x).T @ present, x.T @ x
    spread = n * squares - sums**2
    scale = np.sqrt(spread * spread.T)
    r = np.divide(n * products - sums * sums.T, scale, out=np.full_like(scale, np.nan), where=scale > 0)
    return np.clip(r, -1.0, 1.0), n.astype(np.int64)


def partial_correlations(precision: Floats) -> Floats:
    """(K, K) r_ij = −Ω_ij/√(Ω_ii·Ω_jj), the correlation of two latent concepts given all others; 1 on the diagonal.

    precision: Ω, (K, K), positive definite.
    """
    scale = np.sqrt(np.diag(precision))
    partial: Floats = -precision / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return partial


# Every method by its name, and the settings of a sweep.


def train(
    method: Method,
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    texts: Sequence[str],
    embed: Embed,
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains a method. texts: (n,) responses, in the rows of `data`; embed: texts to unit vectors (n, width)."""
    fit = methods(texts, embed)[method]
    return fit(data, encoder, plan, seed, method=method, setting=setting, say=say)


def methods(texts: Sequence[str], embed: Embed) -> Mapping[Method, Callable[..., Trained]]:
    """Method → what trains it."""
    return {
        "rec_cbm": rec_cbm,
        **{name: _ablated(name) for name in ABLATIONS},
        "plm": plm,
        "vanilla_cbm": vanilla_cbm,
        "c3m": c3m,
        "ct_cbm": partial(ct_cbm, texts=texts),
        "cb_llm": partial(cb_llm, texts=texts, embed=embed),
    }


def sweep(plan: Training, values: Mapping[str, Sequence[float]]) -> list[tuple[str, Training]]:
    """('field=value', the settings with it) for every value of every field, one changed at a time.

    InputError for a field that settings do not have, or a value that it cannot take.
    """
    settings_by_name = []
    for field, of_field in values.items():
        if field not in Training.model_fields:
            settings = ", ".join(Training.model_fields)
            raise InputError(f"'{field}' is no training setting", field="sweep", hint=f"one of {settings}")
        for value in of_field:
            try:
                changed = Training.model_validate(plan.model_dump() | {field: value})
            except ValidationError as error:
                raise InputError(f"{field}={value:g}: {error.errors()[0]['msg']}", field="sweep") from error
            settings_by_name.append((f"{field}={value:g}", changed))
    return settings_by_name


def _ablated(name: Method) -> Callable[..., Trained]:
    """REC-CBM without the parts that the name lists."""
    return partial(rec_cbm, race="race" not in name, opcc="opcc" not in name, lcec="lcec" not in name)
