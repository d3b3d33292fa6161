"""What a mapping is fitted to: machine gradings as a matrix of the signals that the bundle's protocol names, one column
each; and what the text itself tells of a response, as blocks of columns. No label enters a block, so that none can leak
through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale, Trait
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.settings.study import Feature
from rubricflow.tasks.core.llm.encoder import Encoder
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

COUNTS = frozenset({"invalid_evidence", "weak"})
LONE = frozenset({"length", "confidence", "uncertainty", "tie", "contradicted", "disagreement"}) | COUNTS
"""Signals besides the score; the others are the score, or what one is made of."""


@dataclass(frozen=True)
class Features:
    """Features of gradings.

    names: of the columns, in order; matrix: (n, d), NaN where a grading lacks one; usable: (n,), whether the grading
    has a score and every feature; left_out: signals or features that no grading gives or that cannot be pooled.
    """

    names: tuple[str, ...]
    matrix: Floats
    usable: Bools
    left_out: tuple[str, ...]


def features(parts: Sequence[tuple[pa.Table, Bundle]], pooled: bool) -> Features:
    """Features of the gradings of some items, stacked in their order; what no scored grading gives is left out.

    parts: one or more (gradings, bundle), see `matrix`; exactly one where not pooled.
    """
    names, left_out = feature_names([bundle for _, bundle in parts], pooled)
    full = np.concatenate([matrix(gradings, bundle, names, pooled) for gradings, bundle in parts])
    scored = np.concatenate([is_scored(gradings) for gradings, _ in parts])
    # Without any scored grading nothing is known to be missing.
    is_given = np.isfinite(full[scored]).any(axis=0) | (not scored.any())
    given_names = [name for name, there in zip(names, is_given, strict=True) if there]
    left_out += [name for name, there in zip(names, is_given, strict=True) if not there]
    given_columns = without_absent_counts(full[:, is_given], given_names)
    return Features(tuple(given_names), given_columns, scored & np.isfinite(given_columns).all(axis=1), tuple(left_out))


def feature_names(bundles: Sequence[Bundle], pooled: bool) -> tuple[list[str], list[str]]:
    """Names of the features that the bundles' protocol asks for, and the signals that cannot be pooled.

    Bundles of one study share their protocol. Pooled, traits have columns of their own where all bundles have the same
    trait ids, else their means `trait.mean` and `mean.mean`; criteria need one bundle for all.
    """
    first = bundles[0]
    ids = [{trait.id for trait in graded_traits(bundle)} for bundle in bundles]
    # A trait called 'mean' would be taken for the mean of the traits.
    share_traits = not pooled or (all(own == ids[0] for own in ids) and "mean" not in ids[0])
    traits = [trait.id for trait in graded_traits(first)] if share_traits else ["mean"]
    names = []
    unpooled: list[str] = []
    for signal in dict.fromkeys(first.protocol.signals):
        match signal:
            case "trait_scores":
                names += [f"trait.{trait}" for trait in traits]
            case "trait_means":
                names += [f"mean.{trait}" for trait in traits]
            case "criteria" if any(bundle != first for bundle in bundles):
                unpooled.append(signal)
            case "criteria":
                names += [f"criterion.{criterion.id}" for criterion in first.criteria]
            case "jurors":
                names += [f"juror.{juror}" for juror in first.protocol.jurors]
            case _:
                names.append(signal)
    return names, unpooled


def matrix(gradings: pa.Table, bundle: Bundle, names: Sequence[str], pooled: bool) -> Floats:
    """The named features of one item's gradings, shape (n, len(names)), NaN where a grading lacks one.

    gradings: columns `score`, `trait_scores` and `signals`. Scores and traits are in the bundle's units or, pooled,
    shares of their ranges, 0 .. 1. The other signals stay as they are: shares, flags, and length and counts, which
    have no upper end. ContractError for a trait or criterion that the bundle does not have.
    """
    graded = graded_traits(bundle)
    score = floats(gradings["score"])
    traits = map_columns(gradings["trait_scores"], [trait.id for trait in graded])
    means = map_columns(gradings["signals"], [f"mean.{trait.id}" for trait in graded])
    if pooled:
        score = shares(score, bundle.scale)
        for index, trait in enumerate(graded):
            traits[:, index] = shares(traits[:, index], trait)
    columns = {"score": score}
    for index, trait in enumerate(graded):
        columns |= {f"trait.{trait.id}": traits[:, index], f"mean.{trait.id}": means[:, index]}
    if pooled and graded:
        columns |= {"trait.mean": traits.mean(axis=1), "mean.mean": means.mean(axis=1)}
    signals = [name for name in names if name not in columns]
    allowed = LONE | {f"criterion.{criterion.id}" for criterion in bundle.criteria}
    allowed |= {f"juror.{juror}" for juror in bundle.protocol.jurors}
    if unknown := [name for name in signals if name not in allowed]:
        raise ContractError(f"bundle {bundle.bundle_id[:12]} gives no feature '{unknown[0]}'")
    columns |= dict(zip(signals, map_columns(gradings["signals"], signals).T, strict=True))
    return np.stack([columns[name] for name in names], axis=1) if names else np.empty((len(gradings), 0))


def without_absent_counts(values: Floats, names: Sequence[str]) -> Floats:
    """The matrix with 0 for an absent count: a response for which the judge quoted nothing has no invalid quote, and
    one without weak evidence no weak decision."""
    counts = np.array([name in COUNTS for name in names], dtype=np.bool_)
    return np.where(np.isnan(values) & counts, 0.0, values)


def is_scored(gradings: pa.Table) -> Bools:
    """Whether each grading was judged and has a score, shape (n,); a prechecked one was not judged."""
    scored = pc.and_(pc.equal(gradings["status"], "scored"), pc.is_valid(gradings["score"]))
    return np.asarray(scored.to_numpy(), dtype=np.bool_)


def is_weak(gradings: pa.Table) -> Bools:
    """Whether a decision of each grading stands that no quote grounds and none must (Rulers, Table 5), shape (n,)."""
    return map_columns(gradings["signals"], ["weak"])[:, 0] > 0


def floats(column: pa.ChunkedArray) -> Floats:
    """A numeric column, shape (n,), NaN where null."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def shares(scores: Floats, scale: Scale) -> Floats:
    """Scores as shares of their scale, 0 at its lowest and 1 at its highest."""
    return (scores - scale.min) / (scale.max - scale.min)


def map_columns(column: pa.ChunkedArray, names: Sequence[str]) -> Floats:
    """The values of some keys of a map column, shape (n, len(names)), NaN where a row lacks the key."""
    values = np.empty((len(column), len(names)))
    for place, name in enumerate(names):
        values[:, place] = pc.map_lookup(column, name, "first").to_numpy()
    return values


def graded_traits(bundle: Bundle) -> list[Trait]:
    """The traits that can get a score: judged ones and those that a criterion counts for."""
    return [trait for trait in bundle.traits if trait.source == "judged" or any(bundle.of_trait(trait.id))]


Matrix: TypeAlias = Floats | sp.csr_array
Blocks: TypeAlias = Mapping[str, Matrix]
"""Block → its columns, one row per response."""

BUCKETS = 2**18
"""Hashed n-grams: of the 40,000 to 60,000 that some thousand answers have, few share a bucket."""
GRAMS = (2, 5)
"""Shortest and longest n-gram of characters, within words."""
WINDOW = 150
"""A text of more words is encoded in windows of even size, whose mean it is: the encoder reads 256 tokens."""
LENGTH = "length"
"""The block that the baseline without the judge takes besides: the judge has length among its signals."""
PRODUCT = 9.8
"""Makes the products of two unit vectors of 384 dimensions about as large as their differences."""


class TextSource(NamedTuple):
    """The texts of one item's responses and what they answer.

    texts: of n responses; question, reference, rubric: of their item, '' where there is none.
    """

    texts: Sequence[str]
    question: str
    reference: str
    rubric: str


class Readers(NamedTuple):
    """What turns texts into vectors; None where the study asks for no such block.

    encode: a sentence encoder; hidden: the words before, and n texts, to the states of a language model, (n, h).
    """

    encode: Encoder | None = None
    hidden: Callable[[str, Sequence[str]], Floats] | None = None


def text_blocks(source: TextSource, features: Sequence[Feature], readers: Readers) -> dict[str, Matrix]:
    """The blocks of one item's responses, each with a row per response.

    characters: (n, BUCKETS) counts of hashed n-grams; embedding: (n, e) unit vectors or means of some; reference:
    (n, 2e), how the embedding meets that of the reference answer, in products and distances by dimension, 0 where the
    item has none; hidden: (n, h). With any of these length: (n, 1) log of the characters.
    """
    blocks = {}
    if "characters" in features:
        blocks["characters"] = sp.csr_array((0, BUCKETS))  # the vectorizer looks at a first text
        if source.texts:
            hashed = HashingVectorizer(
                analyzer="char_wb", ngram_range=GRAMS, n_features=BUCKETS, alternate_sign=False, norm=None
            )
            blocks["characters"] = sp.csr_array(hashed.transform(source.texts))
    if "embedding" in features and readers.encode:
        vectors = embed(source.texts, readers.encode)
        blocks["embedding"] = vectors
        blocks["reference"] = np.zeros((len(vectors), 2 * vectors.shape[1]))
        if source.reference.strip():
            model = embed([source.reference], readers.encode)
            blocks["reference"] = np.hstack([PRODUCT * vectors * model, np.abs(vectors - model)])
    if "hidden" in features and readers.hidden:
        parts = (("Question", source.question), ("Rubric", source.rubric), ("Model answer", source.reference))
        shown = [f"{title}: {words.strip()}" for title, words in parts if words.strip()]
        before = "\n\n".join([*shown, "Answer of a student: "])
        blocks["hidden"] = readers.hidden(before, source.texts)
    if blocks:
        blocks[LENGTH] = np.log1p([[len(text)] for text in source.texts]).reshape(-1, 1)
    return blocks


def embed(texts: Sequence[str], encode: Encoder) -> Floats:
    """Mean vector of the windows of each text, (n, e)."""
    windows = []
    for text in texts:
        words = text.split()
        count = max(1, -(-len(words) // WINDOW))
        size = max(1, -(-len(words) // count))
        windows.append([" ".join(words[start : start + size]) for start in range(0, max(1, len(words)), size)])
    vectors = encode(list(chain.from_iterable(windows)))
    sizes = np.array([len(part) for part in windows], dtype=np.int64)
    if not len(sizes):
        return np.zeros((0, vectors.shape[1]))
    sums = np.add.reduceat(vectors.astype(np.float64), np.cumsum(sizes) - sizes)
    return np.asarray(sums / sizes[:, None], dtype=np.float64)


def stacked_blocks(parts: Sequence[Blocks]) -> dict[str, Matrix]:
    """The blocks of several items, stacked in their order."""
    stacked = {}
    for name in parts[0] if parts else ():
        blocks = [part[name] for part in parts]
        is_sparse = any(sp.issparse(block) for block in blocks)
        stacked[name] = sp.csr_array(sp.vstack(blocks, format="csr")) if is_sparse else np.concatenate(blocks)
    return stacked


def taken(blocks: Blocks, rows: Bools | Ints | slice) -> dict[str, Matrix]:
    return {name: block[rows] for name, block in blocks.items()}
