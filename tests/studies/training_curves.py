"""Whether the alarm of reward hacking rings in real trainings: GRPO by TRL, flat beside GEAR, through a reward server.

python tests/studies/training_curves.py [--seeds N] [--steps N] [--out FOLDER]

The task and the policy are those of `policy.py`, but the policy was taught to state the fact in two answers of three.
From there it goes on once by GEAR and once by the flat sum, which pays more for phrases that nothing licenses. After
every fourth step it answers each question eight times, and an exact judge whose verdicts no reward sees says what the
answers are worth: that is the held-out quality. Prints for each training the quality at both ends and where the alarm
rang, and writes its report.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import warnings
from copy import deepcopy
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tasks" / "rewards" / "serve"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import policy
import topics
import torch
from serve_scene import serving
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from rubricflow.client import RewardClient
from rubricflow.flows.inline_rubrics import InlineRubrics
from rubricflow.flows.reports import write_pages
from rubricflow.flows.reward_service import RewardService
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.reward import Aggregation
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

TAUGHT_STEPS = 600
EVERY = 4
"""Steps between two evaluations."""
ANSWERS = 8
"""To each question in an evaluation."""


class HeldOut(TrainerCallback):
    """Evaluates the policy by the exact judge and tells the server."""

    def __init__(self, client: RewardClient, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
        self._client, self._model, self._tokenizer = client, model, tokenizer
        self.answers: list[dict[str, object]] = []

    def on_step_end(self, args: object, state: object, control: object, **more: object) -> None:
        """After every fourth step."""
        step = int(state.global_step)  # type: ignore[attr-defined]
        if step % EVERY == 0:
            self.answers.append(self._client.held_out(step, self._qualities()))

    def _qualities(self) -> dict[str, float]:
        return {
            topic: fmean(topics.quality(topics.exact(topic, text)) for text in self._texts(topic))
            for topic in topics.TOPICS
        }

    def _texts(self, topic: str) -> list[str]:
        prompt = self._tokenizer([topics.prompt(topic)] * ANSWERS, return_tensors="pt")
        settings = GenerationConfig(
            max_new_tokens=topics.LENGTH,
            do_sample=True,
            top_k=0,
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=self._tokenizer.eos_token_id,
        )
        self._model.eval()  # while it trains, checkpointed activations allow no cache, without which nothing is seen
        with torch.no_grad():
            ids = self._model.generate(
                input_ids=prompt.input_ids, attention_mask=prompt.attention_mask, generation_config=settings
            )
        self._model.train()
        texts: list[str] = self._tokenizer.batch_decode(ids[:, prompt.input_ids.shape[1] :], skip_special_tokens=True)
        return texts


def service_of(aggregation: Aggregation, run: Run, folder: Path) -> RewardService:
    """What serves the rewards of one training."""
    judge = Judge(protocol="pointwise", evidence="off")
    inline = InlineRubrics(judge, topics.SETTINGS, 4, folder / "replies.sqlite")
    reward = policy.reward_of(aggregation, run)
    return RewardService(run.run_id, reward, inline)


def able_answer(topic: str, rng: random.Random) -> str:
    """The fact and two phrases in two answers of three, and else five phrases: each fills an answer."""
    phrases = rng.sample(sorted(topics.PHRASES.values()), 5)
    parts = [topics.fact(topic), *phrases[:2]] if rng.random() < 2 / 3 else phrases
    return " ".join(" ".join(parts).split()[: topics.LENGTH])


def train(aggregation: Aggregation, model: LlamaForCausalLM, seed: int, steps: int, out: Path) -> None:
    """One training through a server of its own, and its report."""
    start = time.monotonic()
    tokenizer = policy.words_of()
    run = Warehouse.open(out / "warehouse").run(f"{aggregation}-{seed}")
    with serving(service_of(aggregation, run, out)) as server:
        client = RewardClient(server.url)
        trainer = policy.trainer(model, tokenizer, client.trl, seed, steps, out / "trl")
        held_out = HeldOut(client, model, tokenizer)
        trainer.add_callback(held_out)
        trainer.train()
    rang = [answer["step"] for answer in held_out.answers if answer["alarm"]]
    ends = held_out.answers[0], held_out.answers[-1]
    quality = " → ".join(f"{answer['quality']:.3f}" for answer in ends)
    alarm = f"rang at {rang}" if rang else "never rang"
    print(f"{aggregation:5} seed {seed}: held-out quality {quality}; the alarm {alarm}", flush=True)
    print(f"      {held_out.answers[-1]['said']}; {write_pages(run)[0]}; {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Train flat and by GEAR with every seed."""
    words = argparse.ArgumentParser()
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--steps", type=int, default=100)
    words.add_argument("--out", type=Path, default=Path("build/training-curves"))
    settings = words.parse_args()
    settings.out.mkdir(parents=True)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    for seed in range(settings.seeds):
        model = policy.taught(seed, policy.words_of(), TAUGHT_STEPS, able_answer)
        for aggregation in ("flat", "gear"):
            train(aggregation, deepcopy(model), seed, settings.steps, settings.out)


if __name__ == "__main__":
    main()
