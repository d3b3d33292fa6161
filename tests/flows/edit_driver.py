"""A small study that trains the arms of Edit, and a run of it that is killed in every phase and started again.

    python tests/flows/edit_driver.py FOLDER    # what test_flow_edit.py looks at, as JSON

The policy is made up: a decoder whose next word hangs on the last one, and a little on the rest, so that rollouts,
checklists, revisions and interventions have their form and the marks are luck. Nothing is trained to make it.
"""

from __future__ import annotations

import csv
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from kill_driver import Point, child, ended, fault, outcome, use_plain_checks

SHARD = 5
END = "<end>"
NEXT: dict[str, dict[str, float]] = {
    "Reasoning:\n": {"P1": 0.5, "P2": 0.5},
    "\n": {"P1": 0.3, "P2": 0.2, "Final": 0.5},
    "P1": {" is": 1},
    "P2": {" is": 1},
    " is": {" met": 0.4, " missing": 0.3, " half": 0.3},
    " met": {"\n": 1},
    " missing": {"\n": 1},
    " half": {" there": 1},
    " there": {"\n": 1},
    "Final": {" mark:": 1},
    " mark:": {" 0": 0.3, " 1": 0.4, " 2": 0.3},
    " 0": {END: 1},
    " 1": {END: 1},
    " 2": {END: 1},
    "Points:\n": {"P1|covered|none": 1},
    "P1|covered|none": {END: 1},
    "Instead:\n": {"Rather": 1},
    "Rather": {" so": 0.4, " thus": 0.3, " otherwise": 0.3},
    " so": {END: 1},
    " thus": {END: 1},
    " otherwise": {END: 1},
    "Better:\n": {"Step": 1},
    "Step": {" 1:": 0.7, " 9:": 0.3},
    " 1:": {" differently": 1},
    " 9:": {" differently": 1},
    " differently": {" so": 0.5, " thus": 0.5},
}
"""Word → what may follow, with its probability."""
PIECE = r"(?:Reasoning|Points|Instead|Better):\n|\n| ?[^\s]+| "
PHASES: dict[str, Point] = {
    "signals half written": Point("half written", r"steps/edit/.signals-0-00001\.parquet"),
    "before a mark of revisions": Point("before rename", r"_done/edit/revisions-edit_sft-0-00001\.json"),
    "in fine-tuning": Point("before call", "trl.trainer.sft_trainer:SFTTrainer.compute_loss", 4),
    "after the adapter is done": Point("after rename", r"edit_sft-0/done\.json"),
    "in a look": Point("before rename", r"_done/edit/look-edit_rl-0-000002\.json"),
    "in a checkpoint of RL": Point("before call", "transformers:Trainer._save_rng_state"),
    "before the last mark": Point("before rename", r"_done/edit/worth\.json"),
}
"""Where one run is killed, one after the other: each is in the process that goes on after the one before."""


def make_policy(folder: Path) -> None:
    """The decoder and its tokenizer, as a checkpoint of Hugging Face."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = ["<pad>", END, "<unknown>", *dict.fromkeys([*NEXT, *(one for of in NEXT.values() for one in of)])]
    words = list(dict.fromkeys(words))
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unknown>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    made.decoder = decoders.Fuse()
    names = {"eos_token": END, "pad_token": "<pad>", "unk_token": "<unknown>"}
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=made, clean_up_tokenization_spaces=False, **names)
    size = 48
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=size, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() == 2:
                weights.normal_(0, 0.3)
        model.model.embed_tokens.weight.copy_(torch.eye(len(words), size))
        logits = torch.full((len(words), size), -12.0)
        for word, after in NEXT.items():
            for one, share in after.items():
                logits[words.index(one), words.index(word)] = torch.tensor(share).log()
        model.lm_head.weight.copy_(logits / size**0.5)
        for layer in model.model.layers:  # the context has a say, but a small one
            layer.self_attn.o_proj.weight.mul_(0.01)
            layer.mlp.down_proj.weight.mul_(0.01)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_study(folder: Path, **edit: Any) -> Path:
    """Two questions with responses to train on and one without, in a folder of its own."""
    folder.mkdir(parents=True)
    make_policy(folder / "policy")
    rows = []
    for number in range(30):
        item = f"q{number % 3 + 1}"
        split = "train" if item != "q3" and number < 20 else "test"
        rows.append([f"r{number:02d}", item, f"water and light {number}", split, number * 7 % 3])
    with (folder / "responses.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["response_id", "item_id", "text", "split", "gold"], *rows])
    with (folder / "items.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["item_id", "question"], *([f"q{n}", f"Why {n}?"] for n in (1, 2, 3))])
    points = [{"id": f"P{n}", "trait": "content", "text": text} for n, text in ((1, "names water"), (2, "names light"))]
    scale = {"min": 0, "max": 2}
    trait = {"id": "content", "name": "Content", **scale}
    rubric = {"title": "Two points", "text": "Two points.", "scale": scale, "traits": [trait], "criteria": points}
    rubrics = [{"rubric_id": f"q{n}", **rubric} for n in (1, 2, 3)]
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": rubrics}))
    study = {
        "name": "marking",
        "data": {
            "sources": [
                {"file": "items.csv", "items": {"item_id": "item_id", "question": "question", "rubric_id": "item_id"}},
                {
                    "file": "responses.csv",
                    "responses": {name: name for name in ("response_id", "item_id", "text", "split")},
                    "scores": [{"rater": "gold", "score": "gold"}],
                },
            ]
        },
        "rubrics": {"file": "rubrics.yaml"},
        "evaluation": {"target": "gold", "draws": 50},
        "edit": {
            "policy": "policy",
            "prompts": "compact",
            "max_tokens": 24,
            "arms": ["base", "edit_sft", "edit_rl"],
            "seeds": [0],
            "adapter": {"rank": 2, "alpha": 4},
            "revising": {"rollouts": 2, "weak_below": 0.9, "near_tie": 0},
            "fine_tuning": {"epochs": 2, "batch_size": 4},
            "reinforcement": {"steps": 4, "group": 2, "responses": 2, "save_every": 1, "look_every": 2},
            **edit,
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


def watch(log: Path) -> None:
    """Write down every shard that is made and every update of RL; make shards small."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    import rubricflow.flows.edit
    import rubricflow.flows.plan
    from rubricflow.tasks.core.store.warehouse import Run
    from rubricflow.tasks.methods.edit import workspace

    def say(what: str) -> None:
        with log.open("a") as file:
            file.write(what + "\n")

    commit, update = Run.commit, GRPOTrainer._generate_and_score_completions

    def committing(run: Any, stage: str, shard: str, tables: Any) -> None:
        if stage == "edit":
            say(shard)
        commit(run, stage, shard, tables)

    def updating(trainer: Any, inputs: Any) -> Any:
        say("update")
        return update(trainer, inputs)

    Run.commit = committing  # type: ignore[method-assign, assignment]
    GRPOTrainer._generate_and_score_completions = updating  # type: ignore[method-assign, assignment]
    workspace.CHUNK = SHARD
    rubricflow.flows.plan.code_digest = lambda: "0" * 64  # type: ignore[assignment, attr-defined]


def run(study: Path, house: Path, log: Path, point: Point | None = None) -> None:
    """The flow in this process, to its end or to the point."""
    import rubricflow.flows.edit

    watch(log)
    use_plain_checks(pytest.MonkeyPatch())
    if point:
        fault(point)
    rubricflow.flows.edit.edit.fn(str(study), str(house))


def done(house: Path) -> set[str]:
    """Shards of the stage that are finished."""
    return {mark.stem for mark in house.glob("*/_done/edit/*.json")}


def lines(log: Path) -> list[str]:
    """What was written down so far."""
    return log.read_text().split() if log.exists() else []


def attempt(folder: Path, study: Path, name: str, point: Point | None) -> dict[str, Any]:
    """One process, and which finished shards it made again."""
    house, log, said = (folder / f"{name}{end}" for end in ("", ".log", ".out"))
    finished, before = done(house), len(lines(log))
    code = ended(child(partial(run, study, house, log, point), said))
    again = set(lines(log)[before:]) & finished - {"start"}
    if not finished & {"selection-0"}:  # which completes them
        again -= {shard for shard in again if shard.startswith("signals-")}
    return {"code": code, "again": sorted(again), "said": said.read_text()[-3000:]}


def main(folder: Path) -> dict[str, Any]:
    """A run that nobody kills, one that is killed in every phase, and one whose pool stays empty."""
    from trl.trainer import grpo_trainer, sft_trainer  # noqa: F401

    import rubricflow.flows.edit  # noqa: F401

    study = make_study(folder / "study")
    found: dict[str, Any] = {"whole": attempt(folder, study, "whole", None)}
    found["phases"] = {what: attempt(folder, study, "killed", point) for what, point in PHASES.items()}
    found["last"] = attempt(folder, study, "killed", None)
    found["outcomes"] = [outcome(folder / name) for name in ("whole", "killed")]
    found["updates"] = [lines(folder / f"{name}.log").count("update") for name in ("whole", "killed")]
    bare = make_study(folder / "bare", revising={"rollouts": 1, "weak_below": 0, "natural": 0})
    found["empty"] = attempt(folder, bare, "empty", None)
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
