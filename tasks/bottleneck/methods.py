"""Every method by its name, and the settings of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from pydantic import ValidationError

from tasks.bottleneck.c3m import c3m
from tasks.bottleneck.cb_llm import cb_llm
from tasks.bottleneck.ct_cbm import ct_cbm
from tasks.bottleneck.data import LabelledData
from tasks.bottleneck.fit import Trained, rec_cbm
from tasks.bottleneck.plm import plm
from tasks.bottleneck.states import Say, StateEncoder, quiet
from tasks.bottleneck.vanilla import vanilla_cbm
from tasks.contracts.errors import InputError
from tasks.contracts.settings.bottleneck import ABLATIONS, Method, Training

Embed = Callable[[Sequence[str]], np.ndarray]


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
