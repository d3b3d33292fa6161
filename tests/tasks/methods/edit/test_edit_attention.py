"""Query heads that share keys and values: read together they say what the library says."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rubricflow.tasks.methods.edit.policy import shared_heads

LIBRARY = ALL_ATTENTION_FUNCTIONS["sdpa"]


@settings(max_examples=15)
@given(
    rows=st.integers(1, 3),
    shared=st.integers(1, 3),
    groups=st.integers(1, 4),
    tokens=st.integers(1, 3),
    kept=st.integers(3, 9),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_the_librarys_attention(
    rows: int, shared: int, groups: int, tokens: int, kept: int, masked: bool, seed: int
) -> None:
    drawn = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, shared * groups, tokens, 8, generator=drawn)
    key, value = (torch.randn(rows, shared, kept, 8, generator=drawn) for _ in range(2))
    mask = torch.rand(rows, 1, tokens, kept, generator=drawn) > 0.4
    mask[..., 0] = True
    module = SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)
    given_ = (module, query, key, value, mask if masked or tokens > 1 else None)
    wanted, _ = LIBRARY(*given_, scaling=0.3)
    with shared_heads():
        found, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](*given_, scaling=0.3)
    torch.testing.assert_close(found, wanted)


def test_the_librarys_own_comes_back() -> None:
    with shared_heads():
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not LIBRARY
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is LIBRARY
