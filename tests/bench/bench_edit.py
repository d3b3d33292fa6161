"""What one pass over all boundaries and all masked contexts of a rollout saves: python tests/bench/bench_edit.py.

The belief probe and the grounding audit, packed, beside the plain way (a forward pass for each boundary, four for each
step) and the plain way with a KV cache. Forward tokens are counted as they enter the model, padding included. Time is
processor time on one core, or wall time on the GPU where there is one; memory is the highest above what was held
before the run.
"""

import ctypes
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tasks/methods/edit"))

import numpy as np
import torch
from plain_readings import beliefs_plain, supports_plain
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rubricflow.tasks.methods.edit.belief import beliefs, pieces
from rubricflow.tasks.methods.edit.grounding import Support, supports
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rollout import Sample

TOP, VOCABULARY = 4, 8000
QUESTION, SCHEME, ANSWER, STEP = 80, 160, 150, 25
"""Tokens of each part."""
BELIEF = {2: 2, 5: 2, 10: 2, 20: 1, 50: 1}
AUDIT = {2: 2, 5: 1, 10: 1, 20: 1}
"""Steps → rollouts."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Asking:
    """The prompt with what is masked left out."""

    def grade(self, sample, masked="none"):
        scheme = "[MASK]" if masked == "scheme" else sample.scheme
        answer = "[MASK]" if masked == "answer" else sample.answer
        return f"{sample.question} \n {scheme} \n {answer} \n"


def random_policy():
    """Qwen3-like, 17 million parameters, one token a word; its weights are drawn wide, so that context counts."""
    words = ["<end>", "\n", "Final", "mark:", *map(str, range(TOP + 1)), "[MASK]"]
    words += [f"w{number}" for number in range(VOCABULARY - len(words))]
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<end>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|[^\s]+"), "removed", invert=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<end>")
    torch.manual_seed(0)
    shape = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "head_dim": 64}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 6}
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=VOCABULARY, max_position_embeddings=8192, tie_word_embeddings=False, **shape, **heads)
    )
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 2:
                weights.normal_(0, 1.0 if "embed" in name else 1.5 / weights.shape[1] ** 0.5)
    return Policy(model.eval().to(DEVICE), tokenizer, "random")


def some_cases(steps, count):
    """Rollouts of this many steps."""
    rng = np.random.default_rng(steps)

    def words(n):
        return " ".join(f"w{number}" for number in rng.integers(0, VOCABULARY - 20, n))

    return [
        (
            Sample(f"r{at}", "i", words(QUESTION), words(SCHEME), words(ANSWER), TOP),
            "".join(words(STEP - 1) + "\n" for _ in range(steps)) + "Final mark: 2",
        )
        for at in range(count)
    ]


class Extended:
    """A model with what it has read: the same text need not be read again."""

    def __init__(self, policy):
        self._model, self._cache = policy.model, DynamicCache(config=policy.model.config)

    def read(self, ids, keep=1):
        """Log-probabilities of what follows the last of these tokens, after all that was read before."""
        tokens = torch.tensor([ids], device=DEVICE)
        made = self._model(input_ids=tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=keep)
        return made.logits[0].float().log_softmax(-1)

    def forget(self, tokens):
        """Forgets the last tokens."""
        self._cache.crop(-tokens)


def beliefs_cached(policy, prompts, cases):
    """The belief probe with a KV cache: the rollout once, the scaffold anew at each boundary."""
    scaffold, marks = policy.ids("Final mark:"), [policy.ids(str(mark))[0] for mark in range(TOP + 1)]
    found = []
    with torch.inference_mode():
        for sample, text in cases:
            reader, rows = Extended(policy), []
            for ids in [policy.prompt_ids(prompts.grade(sample)), *map(policy.ids, pieces(text))]:
                reader.read(ids)
                rows.append(reader.read(scaffold)[-1, marks].softmax(0).double().cpu().numpy())
                reader.forget(len(scaffold))
            found.append(np.array(rows))
    return found


def supports_cached(policy, prompts, cases):
    """The audit with a KV cache: each context once, step by step; the prompt's cache again for steps on their own."""
    with torch.inference_mode():
        return [_audited(policy, prompts, *case) for case in cases]


def _audited(policy, prompts, sample, text):
    steps = [policy.ids(piece) for piece in pieces(text)]
    losses = []
    for masked, alone in (("none", False), ("scheme", False), ("answer", False), ("none", True)):
        prompt, reader = policy.prompt_ids(prompts.grade(sample, masked)), Extended(policy)
        first = reader.read(prompt)
        last, found = first, []
        for ids in steps:
            after = reader.read(ids, len(ids))
            places = torch.cat([last, after[:-1]])
            found.append(-places[torch.arange(len(ids)), ids].double().sum().item())
            last = after[-1:]
            if alone:
                reader.forget(len(ids))
                last = first
        losses.append(found)
    full, scheme, answer, alone = np.array(losses)
    return Support(scheme - full, answer - full, alone - full)


def high_water():
    """Highest memory since `reset`, and what is held now, in MiB; NaN where the system does not tell."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20, torch.cuda.memory_allocated() / 2**20
    with suppress(OSError):
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))
    return float("nan"), float("nan")


def reset():
    """Gives back what is free and begins to watch the highest memory anew."""
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def measured(policy, act):
    """What it gives, tokens read, seconds, MiB."""
    tokens = []

    def count(module, arguments, given):
        tokens.append(given["input_ids"].numel() if "input_ids" in given else arguments[0].numel())

    hook = policy.model.get_decoder().register_forward_pre_hook(count, with_kwargs=True)
    reset()
    held = high_water()[1]
    clock = time.perf_counter if DEVICE == "cuda" else time.process_time
    started = clock()
    result = act()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    seconds = clock() - started
    hook.remove()
    return result, sum(tokens), seconds, high_water()[0] - held


def furthest(found, others):
    """Largest difference of two ways' numbers."""
    pairs = (pair for one, other in zip(found, others, strict=True) for pair in zip(one, other, strict=True))
    return max(float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in pairs)


def table(title, policy, ways, rollouts):
    """Print the packed way (first), the plain and the cached one by number of steps."""
    print(f"\n{title}: plain/packed, cached/packed; differences of packed to both")
    print("steps rollouts | tokens packed   plain cached  x plain x cached | s packed  x plain x cached"
          " | MiB packed  x plain x cached | difference")  # fmt: skip
    for steps, count in rollouts.items():
        cases = some_cases(steps, count)
        (packed, tokens, seconds, mib), *others = [
            measured(policy, lambda way=way, cases=cases: way(policy, Asking(), cases)) for way in ways
        ]
        (_, plain, slow, much), (_, cached, medium, some) = others
        difference = max(furthest(packed, other[0]) for other in others)
        print(
            f"{steps:5} {count:8} | {tokens:13} {plain:7} {cached:6} {plain / tokens:7.1f} {cached / tokens:8.2f}"
            f" | {seconds:8.2f} {slow / seconds:8.1f} {medium / seconds:8.2f}"
            f" | {mib:10.0f} {much / mib:8.2f} {some / mib:8.2f} | {difference:.1e}",
            flush=True,
        )


def main():
    policy = random_policy()
    size = sum(weights.numel() for weights in policy.model.parameters()) / 1e6
    print(f"{size:.1f} M parameters on {DEVICE}, {torch.get_num_threads()} threads")
    beliefs(policy, Asking(), some_cases(2, 1))  # the first pass pays for what all use
    table("belief probe, p̂", policy, (beliefs, beliefs_plain, beliefs_cached), BELIEF)
    table("grounding audit, nats", policy, (supports, supports_plain, supports_cached), AUDIT)


if __name__ == "__main__":
    main()
