"""What the text itself tells of a response, as blocks of columns: a mapping may take them besides the judge's features.

No label enters a block, so that none can leak through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

from rubricflow.tasks.core.contracts.settings.study import Feature
from rubricflow.tasks.core.llm.encoder import Encoder
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

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
