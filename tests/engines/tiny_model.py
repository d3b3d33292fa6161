"""A small random model with a tokenizer and a chat template, made in seconds: for plumbing, not for grading.

Its weights are drawn with a larger spread than usual: with the usual one its replies hardly depend on the prompt, and
comparisons between two ways of asking it prove nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HOUSE = Path(__file__).resolve().parents[2]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
ADDED = ["<think>", "[TOOL]"]
CONTEXT = 16384
STRUCTURED = {"backend": "guidance", "disable_any_whitespace": True}
OPTIONS = {"dtype": "float32", "enforce_eager": True, "max_model_len": CONTEXT}


def make(folder: Path, seed: int = 0) -> Path:
    """Write the model into a folder: Llama-like, two layers, 128 wide, 1,024 tokens; returns the folder."""
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 2:
                weights.normal_(0, 1.0 if "embed" in name else 2.5 / weights.shape[1] ** 0.5)
        _end_strings_soon(model, [i for token, i in tokenizer.get_vocab().items() if '"' in token])
    model.save_pretrained(folder)
    return folder


def _end_strings_soon(model: LlamaForCausalLM, quotes: list[int]) -> None:
    """Makes a quotation mark likelier than the rest, so that a reply is some hundred tokens and not thousands: one
    dimension is the same for all tokens, and the head reads it for those alone."""
    model.model.embed_tokens.weight[:, 0] = 8.0
    model.lm_head.weight[:, 0] = 0.0
    model.lm_head.weight[quotes, 0] = 1.2


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level pairs learnt from the demo and the prompts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [HOUSE / "data/demo/responses.csv", *sorted((HOUSE / "tasks/grading/judge/prompts").glob("*.txt"))]
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((path.read_text(encoding="utf-8") for path in texts), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.add_tokens(ADDED)
    fast.chat_template = TEMPLATE
    return fast


def server_arguments(folder: Path, name: str, port: int) -> list[str]:
    """Arguments of vLLM's server for this model, the same settings as in process."""
    return [
        *("-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", name),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(CONTEXT), "--structured-outputs-config", json.dumps(STRUCTURED)),
        *("--enable-prompt-tokens-details", "--generation-config", "vllm", "--disable-uvicorn-access-log"),
        "--no-enable-chunked-prefill",
    ]
