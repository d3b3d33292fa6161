"""A small causal language model that the tests make themselves."""

from __future__ import annotations

from pathlib import Path


def byte_model(folder: Path) -> Path:
    """A random model of four layers that reads bytes, in a folder as its authors would give it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(letters), **shape)).save_pretrained(folder)
    return folder
