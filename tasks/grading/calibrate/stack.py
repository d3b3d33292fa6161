"""The stacked mapping: the judge's features, what the text tells and the item side by side, under one ridge.

Each block of columns is brought to the same total variance, so that none outweighs another by its number of columns,
and the ridge is the same for all (kernel ridge over a sum of kernels). The latents are mapped onto the distribution of
the human scores as in Rulers (section 3.4, Eq. 5), but by latents of rows that the fit had not seen.

Predictors fitted block by block and stacked on top of one another were tried first and agree less: with 50 labels they
lost .05 to .11 QWK on short answers, with 200 .02 (a second layer costs more than it can learn).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler, normalize

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.grading.calibrate.alignment import TIE, Aligned, Refusal, knots, on_scale, second_order
from rubricflow.tasks.grading.calibrate.features import Blocks, Matrix, taken

STRENGTH = 0.5
"""Of the ridge, where all blocks together have variance 1; the agreement hardly differs between .3 and 1."""
MOST = 4_000
"""More labels than this are thinned: the fit takes their cube in time, and another thousand adds little."""
FLOAT, INTEGER = "<f4", "<i4"
PARTS = frozenset({"judge", "item"})
"""Blocks that are a part of the prediction by themselves; every other block is text."""


class StackedBlock(Frozen):
    name: str
    """judge, characters, embedding, reference, hidden or item."""
    coefficients: str
    """Of its columns; packed floats."""
    mean: float
    """What the block adds to a score on average; only what differs from it moves a score."""


class Stack(Frozen):
    """A fitted stacked mapping, as numbers."""

    low: float
    """Lowest score of the scale fitted on."""
    high: float
    """Its highest score."""
    judge: JudgeScaling | None
    """Null where the judge takes no part."""
    grams: GramScaling | None
    """Null where the n-grams of the text take no part."""
    hidden: str | None
    """Standard deviation of each hidden state, some of which are a hundred times larger than others; packed floats."""
    items: tuple[str, ...]
    """Items with a column of their own; another one counts as their average."""
    blocks: tuple[StackedBlock, ...]
    """The blocks, in order."""
    intercept: float
    """Score of a response that is average in every block."""
    latent_knots: tuple[float, ...]
    """Latent scores, strictly rising; the ends are the range that rows not seen had in calibration."""
    score_knots: tuple[float, ...]
    """Human score at each, never falling."""


class StackedRows(NamedTuple):
    """What a stack takes of n rows: features of the judge (n, d), the text's blocks and the item's id (n,)."""

    matrix: Floats
    blocks: Blocks
    item: npt.NDArray[np.str_]


class Points(NamedTuple):
    """What parts of a prediction add to the score of an average response, in score units, (n,) each; they and the
    intercept add up to the latent score."""

    judge: Floats
    text: Floats
    item: Floats


def fit_stack(
    rows: StackedRows,
    human: Floats,
    weight: Floats,
    fold: Ints,
    ends: tuple[float, float],
    items: Sequence[str],
    with_judge: bool,
) -> Stack:
    """Fit all blocks to human scores, (n,), on the scale `ends`; weight: ratings behind each, > 0.

    fold: (n,), whose rows are predicted without one another for the map of distributions; items: those with a column of
    their own. Refusal without a block that varies, and where all human scores, or all folds, are the same.
    """
    if np.ptp(human) == 0:
        raise Refusal("all human scores are the same")
    n = len(human)
    kept = np.arange(n) if n <= MOST else np.linspace(0, n - 1, MOST).astype(np.int64)
    rows = StackedRows(rows.matrix[kept], taken(rows.blocks, kept), rows.item[kept])
    matrix, texts, human, weight, fold = rows.matrix, rows.blocks, human[kept], weight[kept], fold[kept]
    if np.ptp(fold) == 0:
        raise Refusal("all labels are of one author, none is left to map the latents by")
    judge = judge_scaling(matrix) if with_judge and matrix.shape[1] else None
    grams = gram_scaling(texts["characters"]) if "characters" in texts else None
    hidden = None
    if "hidden" in texts:
        deviations = np.asarray(texts["hidden"].std(axis=0), dtype=np.float64)
        hidden = packed(np.where(deviations > TIE, deviations, 1.0), FLOAT)
    empty = Stack(
        low=ends[0],
        high=ends[1],
        judge=judge,
        grams=grams,
        hidden=hidden,
        items=tuple(items) if len(items) > 1 else (),
        blocks=(),
        intercept=0.0,
        latent_knots=(),
        score_knots=(),
    )
    every = _columns(empty, rows)
    kernels = {name: _kernel(block) for name, block in every.items()}
    sizes = {name: float(np.trace(kernel)) / len(kernel) for name, kernel in kernels.items()}
    used = [name for name, size in sizes.items() if size > TIE]
    if not used:
        raise Refusal("no feature varies")
    gram = np.sum([kernels[name] / (sizes[name] * len(used)) for name in used], axis=0)
    # Kernel ridge with an intercept that is not penalised; the noise is added to the diagonal.
    noise = STRENGTH * weight.mean() / weight
    inverse = np.linalg.inv(gram + np.diag(noise))
    ones = inverse.sum(axis=1)
    projection = inverse - np.outer(ones, ones) / ones.sum()
    dual = projection @ human  # weights of the rows, which sum to 0
    blocks = []
    for name in used:
        coefficients = every[name].T @ (dual / (sizes[name] * len(used)))
        mean = float((every[name] @ coefficients).mean())
        blocks.append(StackedBlock(name=name, coefficients=packed(coefficients, FLOAT), mean=mean))
    # Latents of the rows of each fold by the fit without that fold, in closed form: the residuals of a fold left out
    # are its dual weights times the inverse of its part of the projection.
    unseen = np.empty(len(human))
    for k in np.unique(fold):
        out = np.flatnonzero(fold == k)
        unseen[out] = human[out] - np.linalg.solve(projection[np.ix_(out, out)], dual[out])
    latents, scores = knots(unseen, human, TIE * (ends[1] - ends[0]))
    return empty.model_copy(
        update={
            "blocks": tuple(blocks),
            "intercept": float(np.mean(human - noise * dual)),
            "latent_knots": tuple(latents.tolist()),
            "score_knots": tuple(scores.tolist()),
        }
    )


def apply_stack(stack: Stack, rows: StackedRows, scale: tuple[float, float, float]) -> tuple[Aligned, Points]:
    """Aligned and final scores of new rows and what each part adds, in the units of `scale`.

    The range fitted on is stretched onto it. Equal rows get equal scores; embeddings are equal up to float rounding.
    """
    every = _columns(stack, rows)
    added = {part: np.zeros(len(rows.item)) for part in Points._fields}
    for block in stack.blocks:
        columns = every[block.name]
        coefficients = unpacked(block.coefficients)
        # Row by row: a product with BLAS may sum the same row in another order at another place.
        added_points = columns @ coefficients if sp.issparse(columns) else (columns * coefficients).sum(axis=1)
        points_of_block = np.asarray(added_points) - block.mean
        if block.name == "item":
            points_of_block = np.where(np.isin(rows.item, stack.items), points_of_block, 0.0)
        added[block.name if block.name in PARTS else "text"] += points_of_block
    latent = stack.intercept + added["judge"] + added["text"] + added["item"]
    mapped = np.interp(latent, stack.latent_knots, stack.score_knots)
    unit = (scale[1] - scale[0]) / (stack.high - stack.low)
    points = Points(*(values * unit for values in added.values()))
    return on_scale(latent, mapped, stack.latent_knots, (stack.low, stack.high), scale), points


def _columns(stack: Stack, rows: StackedRows) -> dict[str, Matrix]:
    """Block → its columns as the ridge takes them, a row per response."""
    columns: dict[str, Matrix] = {"judge": judge_columns(stack.judge, rows.matrix)} if stack.judge else {}
    columns |= rows.blocks
    if stack.grams:
        columns["characters"] = gram_columns(stack.grams, columns["characters"])
    if stack.hidden:
        columns["hidden"] = columns["hidden"] / unpacked(stack.hidden)
    if stack.items:
        columns["item"] = (rows.item[:, None] == np.array(stack.items)[None, :]).astype(np.float64)
    return columns


def _kernel(block: Matrix) -> Floats:
    """Products of all rows with all rows after the mean row is taken off, (n, n)."""
    products = block @ block.T
    plain: Floats = products.toarray() if isinstance(products, sp.csr_array) else products
    means = plain.mean(axis=1)
    centred: Floats = plain - means[:, None] - means[None, :] + means.mean()
    return centred


FAR = 4.0
"""Standard deviations beyond which a feature of the judge counts no further."""
SQUARES = 0.5
"""Share of the products of two features of the judge, next to the features themselves."""


class JudgeScaling(Frozen):
    """How the judge's features become a block."""

    means: tuple[float, ...]
    """Mean of each feature."""
    scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""
    product_means: tuple[float, ...]
    """Mean of each product of two features, squares included."""
    product_scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""


class GramScaling(Frozen):
    """How counts of n-grams become a block: term frequency by inverse document frequency, rows of length 1."""

    documents: int
    """Texts that were counted."""
    buckets: str
    """The buckets that any of them has; packed integers, rising."""
    frequencies: str
    """In how many texts each occurs; packed integers."""


def judge_scaling(matrix: Floats) -> JudgeScaling:
    """Of the features of n responses, (n, d)."""
    plain = StandardScaler().fit(matrix)
    z = np.clip(plain.transform(matrix), -FAR, FAR)
    products = StandardScaler().fit(second_order(z)[:, z.shape[1] :])
    return JudgeScaling(
        means=tuple(plain.mean_.tolist()),
        scales=tuple(plain.scale_.tolist()),
        product_means=tuple(products.mean_.tolist()),
        product_scales=tuple(products.scale_.tolist()),
    )


def judge_columns(scaling: JudgeScaling, matrix: Floats) -> Floats:
    """The standardised features and their standardised products, each kind by the root of its number (n, d + d²)."""
    z = np.clip((matrix - np.array(scaling.means)) / np.array(scaling.scales), -FAR, FAR)
    width = z.shape[1]
    products = (second_order(z)[:, width:] - np.array(scaling.product_means)) / np.array(scaling.product_scales)
    return np.hstack([z / np.sqrt(width), products * np.sqrt(SQUARES / products.shape[1])])


def gram_scaling(counts: sp.csr_array) -> GramScaling:
    """Of the counts of n texts, (n, buckets)."""
    frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
    buckets = np.flatnonzero(frequencies)
    return GramScaling(
        documents=counts.shape[0], buckets=packed(buckets, INTEGER), frequencies=packed(frequencies[buckets], INTEGER)
    )


def gram_columns(scaling: GramScaling, counts: sp.csr_array) -> sp.csr_array:
    """Rows of length 1 over all buckets; what no counted text had takes of that length and has no column."""
    buckets = unpacked(scaling.buckets, INTEGER)
    rarity = np.full(counts.shape[1], np.log(1.0 + scaling.documents))
    rarity[buckets] -= np.log(1.0 + unpacked(scaling.frequencies, INTEGER))
    weighted = counts.copy()
    weighted.data = (1.0 + np.log(counts.data)) * (1.0 + rarity[counts.indices])
    unit = normalize(weighted) if weighted.shape[0] else weighted  # which refuses no rows
    return sp.csr_array(unit[:, buckets])


def packed(values: Floats | Ints, kind: str) -> str:
    """Base64 of the values as little-endian numbers of 32 bits: FLOAT, of which seven digits are kept, or INTEGER."""
    return base64.b64encode(np.asarray(values, dtype=kind).tobytes()).decode("ascii")


def unpacked(text: str, kind: str = FLOAT) -> Any:
    """The values, (n,), in 64 bits."""
    return np.frombuffer(base64.b64decode(text), dtype=kind).astype(kind.replace("4", "8"))
