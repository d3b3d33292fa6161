"""Fine-tuning and reinforcement through TRL on a small random model: what is learnt from, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOTrainer, SFTTrainer

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.settings.methods import FineTuning, Reinforcement
from rubricflow.tasks.methods.edit import rl
from rubricflow.tasks.methods.edit.policy import Policy, Prompts
from rubricflow.tasks.methods.edit.rl import Method, outcomes, reinforce, shape
from rubricflow.tasks.methods.edit.rollout import Sample, cut, read_mark
from rubricflow.tasks.methods.edit.tuning import Tuned, fine_tune, last_checkpoint, settings

PHRASES = ["P1 is met.", "P2 is not.", "\n", *(f"\nFinal mark: {mark}" for mark in range(4))]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<end>{% endfor %}<|assistant|>"
ADAPTER = Adapter(rank=4, alpha=8)
TUNING = FineTuning(epochs=2, batch_size=4, learning_rate=2e-2)
PLAN = Reinforcement(steps=5, group=4, responses=2, learning_rate=2e-3, save_every=2, look_every=2, shaping=0.5)
LENGTH = 12
PAIRS = [(f"Mark answer {n}.", "P1 is met.\nFinal mark: 1" if n % 2 else "P2 is not.", n % 3 > 0) for n in range(10)]
SAMPLES = [Sample(f"r{n}", "q1", "What is it?", "P1 (1 mark)", "abc"[: n + 1], 3, gold=n) for n in range(3)]


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each phrase, and for each character that is in none."""
    special = ["<pad>", "<end>", "<|user|>", "<|assistant|>"]
    words = [*special, *PHRASES, *map(chr, range(32, 127))]
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<pad>"))
    pattern = "|".join([*(phrase.replace(".", r"\.") for phrase in reversed(PHRASES)), r"[\s\S]"])
    made.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", pad_token="<pad>", additional_special_tokens=special[2:]
    )
    fast.chat_template = TEMPLATE
    return fast


def a_policy(seed: int = 0) -> Policy:
    """Writes phrases, marks and ends for the most part, others for other prompts."""
    words = tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 2:
                weights.normal_(0, 1.0 if "embed" in name else 1.5 / weights.shape[1] ** 0.5)
        model.model.embed_tokens.weight[:, 0] = 8.0  # one dimension that all tokens share: the head's bias
        model.lm_head.weight *= 0.5
        model.lm_head.weight[:, 0] = -8.0
        model.lm_head.weight[[words.convert_tokens_to_ids(phrase) for phrase in PHRASES], 0] = 0.0
        model.lm_head.weight[words.eos_token_id, 0] = 0.6
    return Policy(model, words, "tiny")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return a_policy()


def believed(policy: Policy, prompts: Prompts, cases: Any) -> list[Any]:
    """In place of the probe: beliefs that depend on the policy's weights and the text, one row a boundary."""
    found = []
    for sample, text in cases:
        ids = torch.tensor([policy.ids(text) or [0]])
        with torch.inference_mode():
            moved = policy.model(input_ids=ids).logits[0, -1, : sample.top + 1].double().numpy()
        rows = moved * np.arange(1, len(cut(text)) + 2)[:, None]
        found.append(np.exp(rows) / np.exp(rows).sum(1, keepdims=True))
    return found


@pytest.fixture(scope="module", autouse=True)
def _probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rl, "beliefs", believed)
        yield


@pytest.fixture(scope="module")
def whole(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """An undisturbed fine-tuning."""
    return tuned(policy, tmp_path_factory.mktemp("tuned"))


class Course(NamedTuple):
    """A reinforcement at which nobody looks, and what its trainer came to at each update."""

    tuned: Tuned
    asked: list[list[int]]
    """Prompts that were continued."""
    scored: list[Any]
    """Arguments and result of the rewards, and the batch made of them, in turn."""
    losses: list[Any]
    """Batches of the loss."""


@pytest.fixture(scope="module")
def undisturbed(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> dict[Method, Course]:
    folder, courses = tmp_path_factory.mktemp("reinforced"), dict[Method, Course]()
    for method in get_args(Method):
        asked, scored, losses = list[list[int]](), list[Any](), list[Any]()
        with pytest.MonkeyPatch.context() as patched:
            watch(patched, Policy, "continued", lambda _, ids, *__, asked=asked: asked.extend(ids))
            watch(patched, GRPOTrainer, "_calculate_rewards", lambda _, *given, to=scored: to.append(given))
            scores = "_generate_and_score_completions"
            watch(patched, GRPOTrainer, scores, lambda _, __, batch, to=scored: to.append(batch))
            watch(patched, GRPOTrainer, "_compute_loss", lambda _, __, batch, ___, to=losses: to.append(batch))
            courses[method] = Course(reinforced(policy, folder / method, method), asked, scored, losses)
    return courses


def weights(tuned: Tuned) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(tuned.adapter / "adapter_model.safetensors")
    return found


def alike(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def tuned(policy: Policy, folder: Path, seed: int = 0) -> Tuned:
    return fine_tune(policy, PAIRS, TUNING, ADAPTER, seed=seed, folder=folder)


def reinforced(policy: Policy, folder: Path, method: Method = "grpo", **given: Any) -> Tuned:
    given = {"plan": PLAN, "samples": SAMPLES, "seed": 0, "max_tokens": LENGTH} | given
    samples, plan = given.pop("samples"), given.pop("plan")
    return reinforce(policy, samples, Prompts("compact"), plan, ADAPTER, method=method, folder=folder, **given)


def watch(monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, see: Callable[..., None]) -> None:
    """Calls `see` with the arguments and the result of a trainer's method."""
    original = getattr(kind, method)

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        result = original(self, *given, **named)
        see(self, *given, result)
        return result

    monkeypatch.setattr(kind, method, watched)


def kill_after(monkeypatch: pytest.MonkeyPatch, kind: Any, step: int) -> None:
    """The trainer dies as soon as the checkpoint of a step is whole."""

    def die(self: Any, *_: Any) -> None:
        if self.state.global_step == step:
            raise KeyboardInterrupt

    watch(monkeypatch, kind, "_save_checkpoint", die)


def test_the_loss_is_the_cross_entropy_of_the_completions_tokens_alone(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    losses: list[tuple[Any, float]] = []
    watch(
        monkeypatch,
        SFTTrainer,
        "compute_loss",
        lambda _, model, inputs, loss: losses.append((inputs["input_ids"].clone(), float(loss.detach()))),
    )
    pair = ("Mark it.", "P1 is met.\nFinal mark: 1", True)
    other = ("Mark this answer.", "P2 is not.", False)
    plan = FineTuning(epochs=1, batch_size=2)
    found = fine_tune(policy, [pair, other], plan, ADAPTER, seed=0, folder=tmp_path / "a")
    assert capfd.readouterr().out == ""
    tokens, loss = losses[0]
    summed, count = 0.0, 0
    for prompt, completion, ends in (pair, other):
        asked, written = policy.prompt_ids(prompt), policy.ids(completion) + [1] * ends
        assert [*asked, *written] in [[one for one in row if one] for row in tokens.tolist()]
        with torch.inference_mode():
            steps = torch.log_softmax(policy.model(input_ids=torch.tensor([asked + written])).logits[0], -1)
        summed -= sum(float(steps[len(asked) + at - 1, token]) for at, token in enumerate(written))
        count += len(written)
    assert count == 3 + 1
    assert loss == pytest.approx(summed / count, rel=1e-5)
    assert found.steps == 1
    assert {metric: value for _, metric, value in found.history}["loss"] == pytest.approx(loss, rel=1e-3)


def test_fine_tuning_learns_its_pool_and_leaves_the_policy_as_it_was(policy: Policy, whole: Tuned) -> None:
    fresh, ids = a_policy(), torch.tensor([policy.prompt_ids("Mark answer 1.")])
    with torch.inference_mode():
        assert torch.equal(policy.model(input_ids=ids).logits, fresh.model(input_ids=ids).logits)
    assert [name for name, _ in policy.model.named_modules()] == [name for name, _ in fresh.model.named_modules()]
    assert "forward" not in vars(policy.model)
    losses = [value for _, metric, value in whole.history if metric == "loss"]
    assert len(losses) == whole.steps == 6
    assert sum(losses[3:]) < 0.9 * sum(losses[:3])  # the second epoch and the first
    assert whole.parameters == sum(one.numel() for one in weights(whole).values())
    folder = whole.adapter.parent
    assert sorted(path.name for path in folder.iterdir()) == ["adapter", "done.json", "plan.json"]
    assert tuned(policy, folder) == whole  # read, not trained: the seconds are the same
    with pytest.raises(InputError, match="another training"):
        tuned(policy, folder, seed=1)
    assert settings(policy, folder, batch=4, longest=9, seed=7)["seed"] == 7


def test_adapters_go_on_the_projections_or_else_on_all_linear_layers(whole: Tuned, tmp_path: Path) -> None:
    targets = {name.split(".lora_")[0].rpartition(".")[2] for name in weights(whole)}
    assert targets == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    told = json.loads((whole.adapter / "adapter_config.json").read_text())
    assert (told["r"], told["lora_alpha"]) == (4, 8)
    words = tokenizer()
    config = GPT2Config(vocab_size=len(words), n_embd=16, n_layer=1, n_head=2, n_positions=128)
    other = Policy(GPT2LMHeadModel(config).eval(), words, "gpt2")
    found = weights(fine_tune(other, PAIRS[:2], TUNING, ADAPTER, seed=0, folder=tmp_path / "b"))
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in found} == {"c_attn", "c_proj", "c_fc"}
    with pytest.raises(BackendError, match=r"learned positions \(transformer.wpe\)"):
        reinforced(other, tmp_path / "d")
    other.model.transformer.h = torch.nn.ModuleList()
    with pytest.raises(BackendError, match="no linear layers"):
        fine_tune(other, PAIRS[:2], TUNING, ADAPTER, seed=0, folder=tmp_path / "c")


def test_a_killed_fine_tuning_goes_on_to_the_same_adapter(
    policy: Policy, whole: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        kill_after(patched, SFTTrainer, 4)  # in the second epoch
        with pytest.raises(KeyboardInterrupt):
            tuned(policy, tmp_path / "b")
    half = tmp_path / "b/checkpoints/checkpoint-5"
    half.mkdir()
    (half / "trainer_state.json").write_text('{"global_step": 5, ')
    last = last_checkpoint(tmp_path / "b/checkpoints")
    assert last is not None
    assert last.name == "checkpoint-4"
    seen: list[int] = []
    watch(monkeypatch, SFTTrainer, "training_step", lambda self, *_: seen.append(self.state.global_step))
    again = tuned(policy, tmp_path / "b")
    assert seen == [4, 5]
    assert alike(weights(again), weights(whole))
    assert [row[:2] for row in again.history] == [row[:2] for row in whole.history]


@pytest.mark.parametrize("method", ["grpo", "edit"])
def test_the_rewards_and_group_advantages_are_those_of_the_equations(
    policy: Policy, undisturbed: dict[Method, Course], method: Method
) -> None:
    found, asked_for, seen, _ = undisturbed[method]
    marks: list[int | None] = []
    for (_, prompts, texts, ids, per_part), batch in zip(seen[::2], seen[1::2], strict=True):
        asked = [SAMPLES[int(at)] for at in prompts]
        beliefs = believed(policy, Prompts("compact"), list(zip(asked, texts, strict=True)))
        rewards = []
        for sample, text, written, belief, parts in zip(asked, texts, ids, beliefs, per_part, strict=True):
            mark = read_mark(text, 3).mark if 1 in written or len(written) < LENGTH else None
            marks.append(mark)
            (out,) = outcomes([mark], [sample.gold or 0], [3])
            shaped = shape(belief @ np.arange(4.0), sample.gold or 0, 3, 0.5)
            wanted_parts = [out, shaped] if method == "edit" else [out]
            assert parts.tolist() == pytest.approx(wanted_parts, abs=1e-6)
            rewards.append(out + 0.5 * shaped * (method == "edit"))
        groups = np.array(rewards).reshape(-1, 4)
        spread = groups.std(1, ddof=1, keepdims=True)
        wanted = (groups - groups.mean(1, keepdims=True)) / (spread + 1e-4)
        # TRL shuffles a batch after the rewards; the advantages are the same ones.
        np.testing.assert_allclose(np.sort(batch["advantages"].numpy()), np.sort(wanted.ravel()), rtol=1e-3, atol=1e-3)
    assert None in marks
    assert len(set(marks)) > 2
    shares = [value for _, metric, value in found.history if metric == "unmarked"]
    assert np.mean(shares) == pytest.approx(sum(mark is None for mark in marks) / len(marks))
    told = {"reward", "outcome", "kl", "entropy", "length"} | ({"shaping"} if method == "edit" else set())
    assert {metric for _, metric, _ in found.history} >= told
    # Five updates of two groups of four on the policy's own tokens: every response is in three groups, or in four.
    wanted_ids = [policy.prompt_ids(Prompts("compact").grade(sample)) for sample in SAMPLES]
    assert sorted(asked_for.count(ids) for ids in wanted_ids) == [12, 12, 16]
    assert alike(weights(found), weights(undisturbed["grpo"].tuned)) == (method == "grpo")


def test_a_rollout_that_does_not_end_has_no_mark(policy: Policy) -> None:
    course = rl._Rewards(policy, SAMPLES, Prompts("compact"), PLAN, [], 3)
    texts = ["\nFinal mark: 1", "\nFinal mark: 1", "P1 is met.", "\nFinal mark: 1"]
    told: list[float] = []
    rewards = course.outcome(
        ["1"] * 4, texts, [[9, 1], [9, 9, 9], [4, 1], [9, 9, 1]], lambda _, share: told.append(share)
    )
    assert rewards == [1.0, 0.0, 0.0, 1.0]
    assert told == [0.5]


def test_dgpo_gives_every_token_an_advantage_and_no_penalty(undisturbed: dict[Method, Course]) -> None:
    found, _, _, batches = undisturbed["dgpo"]
    flat = []
    for batch in batches:
        given, mask = batch["advantages"], batch["completion_mask"].bool()
        assert given.shape == mask.shape
        assert (given[~mask] == 0).all()
        flat.append(all(float(row[real].std(correction=0)) < 1e-5 for row, real in zip(given, mask, strict=True)))
        assert float((given.sum(1) / mask.sum(1)).sum()) == pytest.approx(0, abs=1e-4)  # as the groups' own
    assert flat[0]  # the policy is still its reference
    assert not all(flat)
    assert "kl" not in {metric for _, metric, _ in found.history}


def test_a_killed_reinforcement_goes_on_to_the_same_adapter(
    policy: Policy, undisturbed: dict[Method, Course], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def look(step: int, now: Policy) -> None:
        now.write(["Mark it."], temperature=1.0, max_tokens=2, seed=step)  # what it draws must move nothing
        looks.append(step)

    with monkeypatch.context() as patched:
        kill_after(patched, GRPOTrainer, 2)
        with pytest.raises(KeyboardInterrupt):
            reinforced(policy, tmp_path, "edit", look=look)
    again, whole = reinforced(policy, tmp_path, "edit", look=look), undisturbed["edit"].tuned
    assert looks == [2, 4, 5]
    assert alike(weights(again), weights(whole))
    timeless = [[row for row in one.history if row[1] != "seconds"] for one in (again, whole)]
    assert timeless[0] == timeless[1]
    assert reinforced(policy, tmp_path, "edit") == again


def test_bad_input_is_refused(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pool is empty"):
        fine_tune(policy, [], TUNING, ADAPTER, seed=0, folder=tmp_path)
    with pytest.raises(InputError, match="pair 0 of the pool has"):
        fine_tune(policy, [("a" * 600, "b", True)], TUNING, ADAPTER, seed=0, folder=tmp_path)
    with pytest.raises(InputError, match="no responses"):
        reinforced(policy, tmp_path, samples=[])
    with pytest.raises(InputError, match="'r9' has no gold mark"):
        reinforced(policy, tmp_path, samples=[Sample("r9", "q1", "", "", "", 3)])
    with pytest.raises(InputError, match="'r0' with its rollout has"):
        reinforced(policy, tmp_path, max_tokens=500)
    assert not list(tmp_path.iterdir())
