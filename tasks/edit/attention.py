"""Attention of one new token over what is kept, for models whose query heads share keys and values.

The library copies keys and values for every query head where there is a mask: seven times the whole memory at every
token of a Qwen2.5 0.5B. Query heads that share them are instead read as if they were several tokens of one head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def shared_heads() -> Iterator[None]:
    """Reads so within; texts of several tokens are left to the library."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    library = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> tuple[torch.Tensor, None]:
        rows, heads, tokens, width = query.shape
        if tokens > 1 or heads == key.shape[1] or options.get("dropout"):
            output: tuple[torch.Tensor, None] = library(module, query, key, value, mask, **options)
            return output
        grouped = query.reshape(rows, key.shape[1], -1, width)
        key_mask = None if mask is None else mask[..., : key.shape[2]]
        read = torch.nn.functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=key_mask, scale=options.get("scaling")
        )
        return read.reshape(rows, 1, heads, width), None

    ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]  # type: ignore[no-untyped-call]
