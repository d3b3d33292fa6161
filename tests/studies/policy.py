"""What a policy learns from flat, hard and GEAR rewards: real GRPO of a small language model, on this machine's cores.

python tests/studies/policy.py [--seeds N] [--steps N] [--out FOLDER] [--jobs N]

For each seed a decoder of two layers is made and taught imperfect answers (`topics.imperfect`); from there every arm is
trained by TRL's GRPOTrainer with nothing different but the aggregation's name. All rewards come through
`flows.trainers.RubricReward` from a judge that errs; every rollout is recorded with its reward. What a policy is worth
is read from these records afterwards by an exact judge whose verdicts no training sees (`topics.quality`).
Writes steps.csv (one line for each arm, seed and step), final.csv, curves.png and curves.svg into a new folder.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import pandas as pd
import topics
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, Rewards
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

ARMS: tuple[Aggregation, ...] = get_args(Aggregation)
BATCH, GROUP = 64, 8
"""Rollouts in a step, and those of them that answer the same question."""
LEARNING_RATE = 1e-3
TAUGHT_STEPS = 300
MEASURES = {
    "reward": "reward that is trained on",
    "quality": "true quality",
    "unlicensed": "credit of what is not licensed",
    "leaked": "reward paid for it",
    "fact": "answers with the fact",
    "bare": "answers with unlicensed credit",
}


def words_of() -> PreTrainedTokenizerFast:
    """A tokenizer of whole words."""
    known = ["<pad>", "<end>", "<unknown>", *topics.words()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>", padding_side="left"
    )


def taught(
    seed: int,
    tokenizer: PreTrainedTokenizerFast,
    steps: int = TAUGHT_STEPS,
    answer: Callable[[str, random.Random], str] = topics.imperfect,
) -> LlamaForCausalLM:
    """A decoder of two layers that was taught such answers by next-word prediction."""
    torch.manual_seed(seed)
    luck = random.Random(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        asked = [luck.choice(topics.TOPICS) for _ in range(BATCH)]
        texts = [f"{topics.prompt(topic)} {answer(topic, luck)} <end>" for topic in asked]
        ids = tokenizer(texts, return_tensors="pt", padding=True)
        labels = ids.input_ids.masked_fill(ids.attention_mask == 0, -100)
        labels[:, : -topics.LENGTH - 1][ids.attention_mask[:, : -topics.LENGTH - 1] == 1] = -100
        loss = model(input_ids=ids.input_ids, attention_mask=ids.attention_mask, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def reward_of(aggregation: Aggregation, record: Run | None = None) -> RubricReward:
    """The reward of an arm: all arms share all but the aggregation."""
    return RubricReward(
        topics.items(),
        {topic: topics.bundle(topic) for topic in topics.TOPICS},
        dict.fromkeys(topics.TOPICS, topics.graph()),
        topics.SETTINGS,
        topics.noisy,
        aggregation,
        record=record,
    )


def trainer(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, reward: object, seed: int, steps: int, folder: Path
) -> GRPOTrainer:
    """GRPO over the topics with this reward."""
    luck = random.Random(seed)
    rounds = range(-(-steps * BATCH // GROUP // len(topics.TOPICS)))
    asked = [topic for _ in rounds for topic in luck.sample(topics.TOPICS, len(topics.TOPICS))]
    config = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        use_vllm=False,
        report_to="none",
        save_strategy="no",
        logging_steps=max(1, steps),
        disable_tqdm=True,
        seed=seed,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        num_generations=GROUP,
        max_completion_length=topics.LENGTH,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        temperature=1.0,
        beta=0.0,
    )
    questions = Dataset.from_list([{"prompt": topics.prompt(topic), "item_id": topic} for topic in asked])
    made = GRPOTrainer(model, reward_funcs=reward, args=config, train_dataset=questions, processing_class=tokenizer)
    made.remove_callback(PrinterCallback)
    return made


def arm(aggregation: Aggregation, seed: int, steps: int, out: Path) -> None:
    """Teach and train, and record every rollout."""
    torch.set_num_threads(1)
    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    start = time.monotonic()
    tokenizer = words_of()
    model = taught(seed, tokenizer)
    run = Warehouse.open(out / "warehouse").run(f"{aggregation}-{seed}")
    with reward_of(aggregation, run) as reward:
        trainer(model, tokenizer, reward, seed, steps, out / "trl").train()
    print(f"{aggregation:16} seed {seed}: {steps} steps in {time.monotonic() - start:.0f} s", flush=True)


def measured(run: Run) -> pd.DataFrame:
    """One line for each recorded rollout: its step, its reward and what the exact judge says of it."""
    rows = run.read(run.ref(Rewards, "trainer"), ["response_id", "reward", "marginals"])
    paid = {row["response_id"]: row for row in rows.to_pylist(maps_as_pydicts="strict")}
    lines = []
    for row in run.read(run.ref(Responses, "trainer")).to_pylist(maps_as_pydicts="strict"):
        reward, holds = paid[row["response_id"]], topics.exact(row["item_id"], row["text"])
        unlicensed = topics.unlicensed(holds, holds)
        lines.append(
            {
                "step": int(row["groups"]["step"]),
                "reward": reward["reward"],
                "quality": topics.quality(holds),
                "unlicensed": unlicensed,
                "leaked": topics.unlicensed(holds, reward["marginals"]),
                "fact": float(holds["fact"]),
                "bare": float(unlicensed > 0),
            }
        )
    return pd.DataFrame(lines)


def draw(steps: pd.DataFrame, out: Path) -> None:
    """Each measure over the steps: mean of the seeds, and the range between them."""
    from matplotlib.figure import Figure

    colours = dict(zip(ARMS, ("#b3462c", "#7a7a7a", "#c79a1b", "#1f5f8b"), strict=True))
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(2, 3).flat, MEASURES.items(), strict=True):
        for aggregation, mine in steps.groupby("aggregation", sort=False):
            curves = mine.pivot_table(index="step", columns="seed", values=name).rolling(5, min_periods=1).mean()
            axis.plot(curves.index, curves.mean(axis=1), color=colours[aggregation], label=aggregation)
            axis.fill_between(
                curves.index, curves.min(axis=1), curves.max(axis=1), color=colours[aggregation], alpha=0.15, lw=0
            )
        axis.set(title=title, xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8)
    for ending in ("png", "svg"):
        figure.savefig(out / f"curves.{ending}", dpi=120)


def told(out: Path, seeds: int, steps: int) -> None:
    """Read what was recorded, write tables and curves, and print the last tenth of the steps."""
    house = Warehouse.open(out / "warehouse")
    parts = [(name, seed, measured(house.run(f"{name}-{seed}"))) for name in ARMS for seed in range(seeds)]
    rollouts = pd.concat([part.assign(aggregation=name, seed=seed) for name, seed, part in parts])
    by_step = rollouts.groupby(["aggregation", "seed", "step"], sort=False).mean().reset_index()
    last = by_step[by_step.step >= steps - max(1, steps // 10)]
    final = last.groupby(["aggregation", "seed"], sort=False)[list(MEASURES)].mean()
    by_step.to_csv(out / "steps.csv", index=False)
    final.to_csv(out / "final.csv")
    draw(by_step, out)
    before = by_step[by_step.step == 0][list(MEASURES)].mean()
    print(f"\nfirst step, all arms: {', '.join(f'{name} {value:.3f}' for name, value in before.items())}")
    print(f"last {max(1, steps // 10)} of {steps} steps, mean ± standard deviation over {seeds} seeds")
    print(f"{'':16}" + "".join(f"{name:>16}" for name in MEASURES))
    for name in ARMS:
        mine = final.loc[name]
        print(f"{name:16}" + "".join(f"{mine[m].mean():>8.3f} ± {mine[m].std():.3f}" for m in MEASURES))


def main() -> None:
    """Run every arm with every seed, and show what came of it."""
    words = argparse.ArgumentParser()
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--steps", type=int, default=100)
    words.add_argument("--out", type=Path, default=Path("build/policy"))
    words.add_argument("--jobs", type=int, default=2, help="trainings at once, one core each")
    given = words.parse_args()
    given.out.mkdir(parents=True)  # a new one: what is recorded there stays apart from other runs
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    start = time.monotonic()
    todo = [(aggregation, seed, given.steps, given.out) for seed in range(given.seeds) for aggregation in ARMS]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        pool.starmap(arm, todo, chunksize=1)
    told(given.out, given.seeds, given.steps)
    print(f"{time.monotonic() - start:.0f} s; curves and tables in {given.out}")


if __name__ == "__main__":
    main()
