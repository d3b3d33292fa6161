"""A BERT encoder as a computation of OpenVINO, made of its weights: reading takes neither PyTorch nor a converted file.

What it gives is what `transformers.BertModel` gives (`last_hidden_state`), but for the rounding of the precision that
OpenVINO takes on this processor: bfloat16 where that has units for it, else float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as op

SPELLINGS = "embeddings.word_embeddings.weight"


def compiled(weights: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> openvino.CompiledModel:
    """Token ids, int32 (texts, tokens), to what each token is in its text, float32 (texts, tokens, width).

    weights, config: as `model.safetensors` and `config.json` of a Hugging Face folder hold them. The texts of a batch
    have one length: then none is padded, and a text's numbers do not depend on the others.
    """
    model = openvino.Model([_states(weights, config, ids := op.parameter([-1, -1], np.int32))], [ids], "bert")
    # Several batches side by side, each on one core: cores that share a batch wait for one another.
    return openvino.Core().compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", "ENABLE_CPU_PINNING": False})


def precision(model: openvino.CompiledModel) -> str:
    """The numbers that it multiplies, such as 'bfloat16'."""
    return str(model.get_property("INFERENCE_PRECISION_HINT").to_string())


def _states(weights: Mapping[str, np.ndarray], config: Mapping[str, Any], ids: openvino.Node) -> openvino.Node:
    """The hidden states after the last layer."""
    width, heads = config["hidden_size"], config["num_attention_heads"]

    def linear(states: openvino.Node, *names: str) -> openvino.Node:
        weight, bias = (np.concatenate([weights[f"{name}.{part}"] for name in names]) for part in ("weight", "bias"))
        # A bare array would be made a Python list before it is made a constant.
        return op.add(op.matmul(states, op.constant(weight), False, True), bias)

    def norm(states: openvino.Node, name: str) -> openvino.Node:
        standard = op.mvn(states, np.array([-1]), True, config["layer_norm_eps"], "INSIDE_SQRT")
        return op.add(op.multiply(standard, weights[f"{name}.weight"]), weights[f"{name}.bias"])

    # All tokens are of the first of the two kinds that BERT knows.
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    tokens = op.gather(op.shape_of(ids, output_type="i32"), np.int32(1), np.int32(0))
    place = op.gather(op.constant(places), op.range(np.int32(0), tokens, np.int32(1), output_type="i32"), np.int32(0))
    states = norm(op.add(op.gather(op.constant(weights[SPELLINGS]), ids, np.int32(0)), place), "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        mixed = linear(states, *(f"{name}.attention.self.{part}" for part in ("query", "key", "value")))
        by_head = op.reshape(mixed, np.array([0, 0, 3, heads, width // heads]), True)
        parts = op.split(op.transpose(by_head, np.array([2, 0, 3, 1, 4])), np.int32(0), 3).outputs()
        heard = op.scaled_dot_product_attention(*(op.squeeze(part, np.array([0])) for part in parts))
        joined = op.reshape(op.transpose(heard, np.array([0, 2, 1, 3])), np.array([0, 0, width]), True)
        attended = op.add(states, linear(joined, f"{name}.attention.output.dense"))
        states = norm(attended, f"{name}.attention.output.LayerNorm")
        inner = op.gelu(linear(states, f"{name}.intermediate.dense"), "erf")
        states = norm(op.add(states, linear(inner, f"{name}.output.dense")), f"{name}.output.LayerNorm")
    return states
