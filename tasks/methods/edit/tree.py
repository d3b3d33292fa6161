"""Many continuations of shared beginnings in one forward pass: a token tree under an attention mask of its own.

A node of the tree is a run of tokens after its parent's. A token sees its ancestors and itself, at the position that it
has on its own path from the root, so that its log-probability is that of the path read alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.methods.edit.policy import copies, groups, looks_back_wholly, remembered, shared

ROOT = -1
"""The parent of a tree's first tokens."""

_BATCH_TOKENS = 16_384
"""Tokens of the trees read side by side, padding included."""
_BATCH_MASK = 2**25
"""Entries of their attention masks: 128 MiB in float32."""
_HEAD = 2**26
"""Logits held at once: 256 MiB in float32."""
_SCALED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings under which a model changes its logits after the head."""


class TokenRun(NamedTuple):
    """A run of tokens."""

    parent: int
    """Number of the node before it; ROOT for none."""
    ids: Sequence[int]
    """At least one token."""
    scored: bool
    """Whether the log-probabilities of its tokens are asked for."""


@dataclass
class Tree:
    """Nodes by number, each after its parent."""

    name: str
    """What it is about, for errors."""
    nodes: list[TokenRun] = field(default_factory=list)

    def add(self, ids: Sequence[int], parent: int = ROOT, *, scored: bool = False) -> int:
        """A new node's number; the parent's where there are no tokens."""
        if not ids:
            return parent
        self.nodes.append(TokenRun(parent, ids, scored))
        return len(self.nodes) - 1

    def branch(self, paths: Sequence[Sequence[int]], parent: int = ROOT, *, scored: bool = False) -> list[int]:
        """Paths below a node that share the tokens they begin with, those that most share first; for each the node that
        it ends in."""
        common = shared(paths)
        node = self.add(paths[0][:common], parent, scored=scored)
        ends = [node] * len(paths)
        forks: dict[int, list[int]] = {}
        longer = sorted((path[common], number) for number, path in enumerate(paths) if len(path) > common)
        for token, number in longer:
            forks.setdefault(token, []).append(number)
        for numbers in sorted(forks.values(), key=len, reverse=True):
            below = self.branch([paths[number][common:] for number in numbers], node, scored=scored)
            for number, end in zip(numbers, below, strict=True):
                ends[number] = end
        return ends


def score(model: Any, trees: Sequence[Tree]) -> list[Floats]:
    """For each tree the log-probability of every node, the sum over its tokens, shape (nodes,); 0 where it is not
    scored.

    model: a causal language model of Hugging Face with full attention. InputError for a path that is longer than the
    model's positions; BackendError for a model that cannot read trees.
    """
    # BackendError for a model whose attention or head is not what the mask and `_read` take it to be.
    config = model.config
    kind = config._attn_implementation
    takes = inspect.signature(model.get_decoder().forward).parameters
    reasons = {
        f"its attention is '{kind}', not sdpa or eager": kind not in ("sdpa", "eager"),
        "its attention has a sliding window, or not all its layers have full attention": not looks_back_wholly(model),
        "it takes no positions": "position_ids" not in takes,
        "it scales its logits": any(getattr(config, name, None) not in (None, 1.0) for name in _SCALED),
    }
    for reason, holds in reasons.items():
        if holds:
            raise BackendError(f"the policy '{config.name_or_path}' cannot read packed texts: {reason}")
    flats = [_flat(tree) for tree in trees]
    longest = getattr(model.config, "max_position_embeddings", None)
    for tree, flat in zip(trees, flats, strict=True):
        # InputError for a text of more tokens than the model has positions.
        if longest is not None and flat.depth > longest:
            size = f"{flat.depth} tokens, the policy reads at most {longest}"
            rule = f"response '{tree.name}': prompt and reasoning are {size}"
            raise InputError(rule, hint="a policy with a longer context, or leave the response out")
    sums: list[Floats] = [np.zeros(0)] * len(trees)
    with torch.no_grad():
        for group, common in groups([flat.ids.tolist() for flat in flats]):
            alike = _alike([flats[number] for number in group], common)
            memory = remembered(model, flats[group[0]].ids[:alike].tolist()) if alike else None
            for batch in _batches(group, [len(flats[number].ids) for number in group]):
                logprobs = _logprobs(model, [flats[number] for number in batch], alike, memory)
                for number, values in zip(batch, logprobs, strict=True):
                    nodes = len(trees[number].nodes)
                    sums[number] = np.bincount(flats[number].owners, values, nodes).astype(np.float64)
    return sums


class _Flat(NamedTuple):
    """A tree as one sequence, node by node. The last token of a leaf is only asked for, never read."""

    ids: Ints
    """(L,) tokens read."""
    positions: Ints
    """(L,) tokens before each on its path."""
    sees: Bools
    """(L, L) whether a row's token sees a column's, its ancestor or itself."""
    sources: Ints
    """(S,) of each scored token: where the one before it is read."""
    targets: Ints
    """(S,) its id."""
    owners: Ints
    """(S,) its node."""
    depth: int
    """Tokens of the longest path, those of leaves included."""


def _flat(tree: Tree) -> _Flat:
    parents = {node.parent for node in tree.nodes}
    read = [node.ids if number in parents else node.ids[:-1] for number, node in enumerate(tree.nodes)]
    counts = np.array([len(ids) for ids in read], np.int64)
    ends = np.cumsum(counts)
    before = np.zeros(len(read), np.int64)  # tokens before each node on its path
    ancestors = np.eye(len(read), dtype=np.bool_)  # a node and those above it
    sources = list[int]()
    targets = list[int]()
    owners = []
    for number, node in enumerate(tree.nodes):
        if node.parent != ROOT:
            before[number] = before[node.parent] + len(tree.nodes[node.parent].ids)
            ancestors[number] |= ancestors[node.parent]
        if node.scored:
            if node.parent == ROOT:
                raise ValueError(f"{tree.name}: the first token of a text has no log-probability")
            begin = ends[number] - counts[number]
            sources += [ends[node.parent] - 1, *range(begin, begin + len(node.ids) - 1)]
            targets += node.ids
            owners += [number] * len(node.ids)
    node_of = np.repeat(np.arange(len(read)), counts)
    within = np.arange(len(node_of)) - np.repeat(ends - counts, counts)
    ids = np.fromiter(chain.from_iterable(read), np.int64, len(node_of))
    sees = np.tril(ancestors[node_of][:, node_of])
    source, target, owner = (np.array(column, np.int64) for column in (sources, targets, owners))
    depth = before + [len(node.ids) for node in tree.nodes]
    return _Flat(ids, before[node_of] + within, sees, source, target, owner, int(depth.max(initial=0)))


def _alike(flats: Sequence[_Flat], common: int) -> int:
    """How many tokens, at most `common`, can be read once for all trees: those on the path that each begins with, as
    long as no probability is asked for."""
    limits = [common]
    for flat in flats:
        # Tokens of the path that a tree begins with: each sees all before it.
        straight = int((np.cumsum(flat.positions != np.arange(len(flat.ids))) == 0).sum())
        limits += [straight, int(flat.sources.min(initial=common)), len(flat.ids) - 1]
    return max(0, min(limits))


def _batches(places: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Trees of like lengths, as many as tokens and masks allow; one that is longer than that goes alone."""
    batch: list[int] = []
    for length, place in sorted(zip(lengths, places, strict=True)):
        rows = len(batch) + 1
        if batch and (rows * length > _BATCH_TOKENS or rows * length**2 > _BATCH_MASK):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _logprobs(model: Any, flats: Sequence[_Flat], read: int, memory: Any) -> list[Floats]:
    """Log-probabilities of the scored tokens of each tree, shape (S,). memory: of the tokens that were read already."""
    width = max(1, *(len(flat.ids) for flat in flats))
    ids, positions = np.zeros((2, len(flats), width), np.int64)
    sees = np.tile(np.eye(width, dtype=np.bool_), (len(flats), 1, 1))  # padding sees itself, and is seen by no other
    for row, flat in enumerate(flats):
        length = len(flat.ids)
        ids[row, :length] = flat.ids
        positions[row, :length] = flat.positions
        sees[row, :length, :length] = flat.sees
    device, kind = model.device, model.dtype
    hidden = torch.from_numpy(~sees[:, None, read:]).to(device)
    mask = torch.zeros(hidden.shape, dtype=kind, device=device).masked_fill_(hidden, torch.finfo(kind).min)
    past = {} if memory is None else {"past_key_values": copies(memory, len(flats))}
    tokens, places_in_text = (torch.from_numpy(values[:, read:]).to(device) for values in (ids, positions))
    decoder = model.get_decoder()
    output = decoder(input_ids=tokens, position_ids=places_in_text, attention_mask=mask, use_cache=False, **past)
    states = output.last_hidden_state
    places = np.concatenate([row * (width - read) + flat.sources - read for row, flat in enumerate(flats)])
    targets = np.concatenate([flat.targets for flat in flats])
    values = _read(model.get_output_embeddings(), states.reshape(-1, states.shape[-1]), places, targets)
    return np.split(values, np.cumsum([len(flat.targets) for flat in flats])[:-1])


def _read(head: Any, states: torch.Tensor, places: Ints, targets: Ints) -> Floats:
    """Log-probability of each target after the state in its place; the head reads every place once, some at a time."""
    once, place_of = np.unique(places, return_inverse=True)
    logprobs = np.zeros(len(places))
    rows = max(1, _HEAD // head.weight.shape[0])
    for begin in range(0, len(once), rows):
        chosen = np.flatnonzero((place_of >= begin) & (place_of < begin + rows))
        logits = head(states[torch.from_numpy(once[begin : begin + rows]).to(states.device)]).float()
        row = torch.from_numpy(place_of[chosen] - begin).to(states.device)
        token = torch.from_numpy(targets[chosen]).to(states.device)
        logprobs[chosen] = (logits[row, token] - logits.logsumexp(1)[row]).double().cpu().numpy()
    return logprobs
