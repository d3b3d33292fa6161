"""A low-rank adapter (LoRA) on a language model."""

from __future__ import annotations

from pydantic import Field

from tasks.contracts.schema import Frozen


class Adapter(Frozen):
    """Its shape; the defaults are those of Edit's appendix B."""

    rank: int = Field(default=64, ge=1)
    """r."""
    alpha: int = Field(default=128, ge=1)
    """α."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Of the adapter's input."""
