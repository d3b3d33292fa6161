"""GRPO with rewards from a rubricflow server, by TRL: as small as it gets.

    rubricflow serve rubrics.jsonl --judge MODEL --url http://127.0.0.1:8000/v1 --record my-training
    python train_with_grpo.py Qwen/Qwen2.5-0.5B-Instruct --steps 200
    rubricflow report my-training

Where this runs only TRL and peft are needed, and the one file rubricflow/client.py, copied next to this one as
rubricflow_client.py.
"""

import argparse

import torch
from datasets import Dataset
from peft import LoraConfig
from rubricflow_client import RewardClient
from trl import GRPOConfig, GRPOTrainer

arguments = argparse.ArgumentParser()
arguments.add_argument("model", help="a name, or a folder of weights")
arguments.add_argument("--server", default="http://127.0.0.1:8321")
arguments.add_argument("--steps", type=int, default=200)
arguments.add_argument("--group", type=int, default=8, help="completions of a prompt")
arguments.add_argument("--tokens", type=int, default=256, help="of a completion, at most")
arguments.add_argument("--output", default="my-training")
given = arguments.parse_args()

client = RewardClient(given.server, deadline_s=300, on_failure="stop")
settings = GRPOConfig(
    output_dir=given.output,
    max_steps=given.steps,
    per_device_train_batch_size=given.group,
    num_generations=given.group,
    max_completion_length=given.tokens,
    learning_rate=1e-5,
    bf16=torch.cuda.is_available(),
    logging_steps=1,
    report_to="none",  # "wandb" or "tensorboard": false credit and leaks are in the curves there, too
)
trainer = GRPOTrainer(
    model=given.model,
    reward_funcs=client.trl,
    train_dataset=Dataset.from_list(client.dataset()),
    args=settings,
    peft_config=LoraConfig(r=16, target_modules="all-linear"),
)
trainer.train()
