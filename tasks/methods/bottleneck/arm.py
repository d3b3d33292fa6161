"""One grader of a comparison: trained, measured on the held-out splits, and steered. Pure but for the encoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pandas as pd
from pydantic import ValidationError
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.methods import ABLATIONS, Bottleneck, Method, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ORDERS, ConceptLinks, Interventions, Models, Trials
from rubricflow.tasks.core.stats.arrays import Floats, Ints, defined
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.methods.bottleneck.baselines import c3m, plm, vanilla_cbm
from rubricflow.tasks.methods.bottleneck.data import MISSING, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import Trained, rec_cbm
from rubricflow.tasks.methods.bottleneck.intervene import intervention_rows, order_of, saving_rows
from rubricflow.tasks.methods.bottleneck.measures import leakage_rows, trial_rows
from rubricflow.tasks.methods.bottleneck.model import Head
from rubricflow.tasks.methods.bottleneck.states import StateEncoder
from rubricflow.tasks.methods.bottleneck.text_bottlenecks import Embed, cb_llm, ct_cbm

HELD_OUT = ("calibration", "test")
BOUND = 10.0
"""The temperature lies within [1/BOUND, BOUND]: where all grades are right, likelihood alone would take it to 0."""
RowsByTable = dict[type[Row], list[Record]]


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
        suffix = text_digest(self.setting)[:8] if self.setting else "as-set"
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
    seconds: float
    """That training took."""
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


def methods(texts: Sequence[str], embed: Embed) -> Mapping[Method, Callable[..., Trained]]:
    """Method → what trains it, of data, encoder, settings and seed. texts: (n,) responses, in the rows of the data;
    embed: texts to unit vectors (n, width)."""
    ablated = {
        name: partial(rec_cbm, race="race" not in name, opcc="opcc" not in name, lcec="lcec" not in name)
        for name in ABLATIONS
    }
    return {
        "rec_cbm": rec_cbm,
        **ablated,
        "plm": plm,
        "vanilla_cbm": vanilla_cbm,
        "c3m": c3m,
        "ct_cbm": partial(ct_cbm, texts=texts),
        "cb_llm": partial(cb_llm, texts=texts, embed=embed),
    }


def run(arm: Arm, ground: SharedGround) -> TrainedArm:
    """Trains an arm and measures it; InputError where the labels do not suffice."""
    data = ground.data
    encoder = ground.encoder()
    began = time.perf_counter()
    trained = methods(ground.texts, ground.embed)[arm.method](data, encoder, arm.training, arm.seed)
    seconds = time.perf_counter() - began
    estimates = trained.predict(encoder, np.arange(len(data.response_ids)))
    logits = np.log(np.maximum(estimates.grades, 1e-12))
    rows = data.rows("calibration")
    fitted = temperature(logits[rows], data.grades[rows])
    likely = np.exp(logits / fitted - (logits / fitted).max(axis=1, keepdims=True))
    calibrated = likely / likely.sum(axis=1, keepdims=True)
    head = None if trained.head is None else replace(trained.head, temperature=fitted)
    own = {"method": arm.method, "seed": arm.seed, "setting": arm.setting}
    model = own | {
        "backbone": ground.backbone,
        "encoder": ground.plan.encoder,
        "parameters": trained.parameters,
        "epochs_1": trained.epochs[0],
        "epochs_2": trained.epochs[1],
        "validation": trained.validation,
        "grade_temperature": fitted,
        "seconds": seconds,
    }
    tables: RowsByTable = {Models: [model], Trials: [], Interventions: [], ConceptLinks: []}
    for split in HELD_OUT:
        rows = data.rows(split)
        trials = trial_rows(estimates.of(rows), data, rows, calibrated[rows])
        tables[Trials] += [own | {"split": split} | row for row in trials]
    if head is not None and estimates.levels is not None and not arm.setting:
        _steer(arm, ground, head, estimates, tables)
    return TrainedArm(trained, encoder, seconds, estimates, head, tables)


def _steer(arm: Arm, ground: SharedGround, head: Head, estimates: Estimates, tables: RowsByTable) -> None:
    """Adds the rows of a grader whose grade follows from the shares of its concepts alone: leakage, what questions
    save, interventions in every order of asking, and how concepts hang together."""
    data = ground.data
    tops = ground.data.concepts.tops
    seed = arm.seed
    shares = estimates.shares(tops)
    test = data.rows("test")
    assert estimates.levels is not None  # a grader with a head over shares has concepts
    levels, trials = estimates.levels[test], []
    if seed == ground.plan.seeds[0]:  # hundreds of fits for one number
        # Leakage on all that was held out: a test split alone is seldom enough to cross-fit on.
        rows = np.concatenate([data.rows(split) for split in HELD_OUT])
        for row in leakage_rows(shares[rows], data, rows, seed):
            trials.append(row | {"note": row["note"] or "calibration and test together"})
    trials += saving_rows(levels, head, data, test, seed)
    own = {"method": arm.method, "seed": seed}
    tables[Trials] += [own | {"setting": "", "split": "test"} | row for row in trials]
    for first in ORDERS:
        order = order_of(first, levels, head, tops, seed)
        interventions = intervention_rows(shares[test], head, data, test, order, seed)
        tables[Interventions] += [own | {"order": first} | row for row in interventions]
    tables[ConceptLinks] += [own | row for row in link_rows(data, head)]


def temperature(logits: Floats, grades: Ints) -> float:
    """The temperature with the largest likelihood of the grades: one number that logits are divided by, so that
    probabilities become right and no grade changes (Guo et al. 2017, On calibration of modern neural networks).

    logits: (n, S + 1); grades: (n,) classes 0…S, MISSING where there is none. It is 1 where nothing is labelled, where
    all labels are one grade, which tells nothing of the others, and where 1 is no worse than the best one found.
    """
    labelled = grades != MISSING
    if len(np.unique(grades[labelled])) < 2:
        return 1.0

    def loss_at(log_temperature: float) -> float:
        return loss(logits[labelled], grades[labelled], np.exp(log_temperature))

    # Convex in 1/T and so with one minimum in log T
    best = minimize_scalar(loss_at, bounds=(-np.log(BOUND), np.log(BOUND)), method="bounded")
    return 1.0 if best.fun >= loss_at(0.0) else float(np.exp(best.x))


def loss(logits: Floats, grades: Ints, temperature: float) -> float:
    """Mean negative log-likelihood of the grades, in nats; logits (n, S + 1), grades (n,) without MISSING."""
    likely = log_softmax(logits / temperature, axis=1)
    return float(-likely[np.arange(len(grades)), grades].mean())


def link_rows(data: LabelledData, head: Head) -> list[Record]:
    """Rows of table `concept_links` without the grader, one for each two concepts: how they hang together in the labels
    of the train split, and in the latent concepts of a grader (REC-CBM, section 5.6 and E.6).

    Empty for a head without error correction, which has learned no links. A head of the first concepts alone has the
    links of those.
    """
    if head.precision is None:
        return []
    partial = partial_correlations(head.precision)
    labels, n = label_correlations(data.levels[data.rows("train")])
    rows = []
    for a, b in combinations(range(len(partial)), 2):
        pair = {"a": data.concepts.ids[a], "b": data.concepts.ids[b]}
        correlations = {"label_correlation": defined(labels[a, b]), "partial_correlation": float(partial[a, b])}
        rows.append({**pair, **correlations, "n": int(n[a, b])})
    return rows


def label_correlations(levels: Ints) -> tuple[Floats, Ints]:
    """(r, n), each (K, K): Pearson correlations of labels over the responses that have both, and their number.

    levels: (n, K), MISSING where there is none. NaN where a concept does not vary on the common responses.
    """
    labels = pd.DataFrame(levels).where(levels != MISSING)
    present = labels.notna().to_numpy(np.int64)
    return labels.corr().to_numpy(), present.T @ present


def partial_correlations(precision: Floats) -> Floats:
    """(K, K) r_ij = −Ω_ij/√(Ω_ii·Ω_jj), the correlation of two latent concepts given all others; 1 on the diagonal.

    precision: Ω, (K, K), positive definite.
    """
    scale = np.sqrt(np.diag(precision))
    partial: Floats = -precision / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return partial
