"""What a policy learns from flat, hard and GEAR rewards: GRPO of a small language model on the questions of
`knowledge`, on one core.

python tests/studies/policy.py train --out FOLDER [--arms NAME,...] [--worlds NAME,...] [--seeds N,...] [--steps N]
python tests/studies/policy.py show --out FOLDER [--picture FILE]

`train` teaches a decoder (the laboratory's, two layers) imperfect answers once a seed, and trains every arm from there
by TRL's GRPOTrainer with nothing different but what the arm says. All rewards come from `flows.trainers.RubricReward`
and a judge that errs as real ones do. Every rollout is recorded with its reward; every `EVERY` updates the policy
answers the held-out questions. Killed, it goes on with the first training that is not whole; `rubricflow report` makes
a page of each. `show` has all of it read by the exact judge, and prints tables; the alarm of reward hacking is the
product's, as that page has it.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import knowledge
import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from scipy.stats import t as student
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rubricflow.flows.batch import PosedRollout
from rubricflow.flows.recorder import CURVES, TRAINER
from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, Rewards
from rubricflow.tasks.core.stats.reward_hacking import LEAST_SHARE, WINDOW, hacking_alarms
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.methods.edit.decoder import Size, decoder
from rubricflow.tasks.rewards.report.training import paired
from rubricflow.tasks.rewards.reward.aggregate import Aggregated
from rubricflow.tasks.rewards.reward.factors import Factors
from rubricflow.tasks.rewards.reward.learn import paying
from rubricflow.tasks.rewards.reward.local import Locals
from rubricflow.tasks.rewards.reward.recipes import RAR_WEIGHTS, merf_prompt, ruscarl_prompt, ruscarl_shares

BATCH, GROUP = 32, 8
"""Rollouts in an update, and those of them that answer the same question."""
LEARNING_RATE = 1e-3
TAUGHT_STEPS = 300
EVERY = 5
"""Updates between two evaluations."""
MARKED = 200
"""Answers of the taught policy's teacher whose criteria are marked, for learned edges."""
PLAIN, ASKED = "plain", "motivated"


class Arm(NamedTuple):
    """What differs between trainings."""

    aggregation: Aggregation
    graph: str = "authored"
    """authored, learned (factors by marks) or guessed (by a model)."""
    weights: tuple[float, float] = (1.0, 1.0)
    """Points of facts and reasons."""
    prompt: str = PLAIN
    """plain, merf or ruscarl."""
    dropout: float = 0.0
    """Share of the criteria left out of the rewards of a group, drawn anew at every update."""


RAR = (RAR_WEIGHTS["Essential"], RAR_WEIGHTS["Important"])
ARMS = {
    "flat": Arm("flat"),
    "hard, own score": Arm("hard_local"),
    "hard, propagated": Arm("hard_propagated"),
    "GEAR": Arm("gear"),
    "GEAR, learned edges": Arm("gear", graph="learned"),
    "GEAR, a model's graph": Arm("gear", graph="guessed"),
    "RaR": Arm("flat", weights=RAR),
    "RaR with GEAR": Arm("gear", weights=RAR),
    "rubric dropout": Arm("flat", dropout=0.5),
    "rubric dropout with GEAR": Arm("gear", dropout=0.5),
    "MeRF": Arm("flat", prompt="merf"),
    "MeRF with GEAR": Arm("gear", prompt="merf"),
    "RuscaRL": Arm("flat", prompt="ruscarl"),
    "RuscaRL with GEAR": Arm("gear", prompt="ruscarl"),
}
"""`hard_verdict` is no arm of its own: where a judge gives verdicts without probabilities it is `hard_local`."""


# The policy.


def shown(
    item: str, prompt: str, aggregation: Aggregation, share: float = 1.0, luck: random.Random | None = None
) -> str:
    """A question, with what a recipe writes under it."""
    asked, bundle = knowledge.prompt(item), knowledge.bundle(item)
    if prompt == "merf":
        graph = knowledge.graph(knowledge.parts(item)[0]) if aggregation == "gear" else None
        return str(merf_prompt(asked, bundle, graph))
    return str(ruscarl_prompt(asked, bundle, share, luck or random.Random(0))) if prompt == "ruscarl" else asked


def words_of() -> PreTrainedTokenizerFast:
    """A tokenizer of whole words and signs."""
    cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    texts = [shown(item, "merf", name) for item in knowledge.ITEMS for name in ("flat", "gear")]
    texts += [shown(item, "ruscarl", "flat") for item in knowledge.ITEMS]
    texts += [" ".join(values) for values in knowledge.VALUES.values()]
    known = sorted({piece for text in texts for piece, _ in cut.pre_tokenize_str(text)})
    names = ["<pad>", "<end>", "<unknown>", *known]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(names)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = cut
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>", padding_side="left"
    )


def taught(
    seed: int,
    tokenizer: PreTrainedTokenizerFast,
    steps: int = TAUGHT_STEPS,
    world: knowledge.World = knowledge.WORLDS["as measured"],
) -> Qwen3ForCausalLM:
    """A decoder of two layers that was taught imperfect answers by next-word prediction: to plain questions, and to
    questions with (a part of) the rubric under them, of which it then says most."""
    luck = random.Random(seed)
    model: Qwen3ForCausalLM = decoder(tokenizer, Size(width=64, layers=2, heads=4), seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        kind = ("plain", "ruscarl", "plain", "merf", "plain")[step % 5]
        rows = []
        for item in luck.choices(knowledge.ITEMS, k={"plain": 64, "ruscarl": 32, "merf": 16}[kind]):
            criteria = list(knowledge.FORMS[knowledge.parts(item)[0]])
            asked = shown(item, kind, luck.choice(("flat", "gear")), luck.random(), luck)
            seen = [name for name in criteria if f"- {knowledge.sentence(item, name)}" in asked or kind == "merf"]
            answer = knowledge.imperfect(item, luck, world, seen)
            rows.append((tokenizer(asked)["input_ids"], tokenizer(f"{answer} <end>")["input_ids"]))
        longest = max(len(asked) + len(answer) for asked, answer in rows)
        pads = [[tokenizer.pad_token_id] * (longest - len(asked) - len(answer)) for asked, answer in rows]
        ids = torch.tensor([pad + asked + answer for pad, (asked, answer) in zip(pads, rows, strict=True)])
        heads = [[-100] * (longest - len(answer)) for _, answer in rows]
        labels = torch.tensor([head + answer for head, (_, answer) in zip(heads, rows, strict=True)])
        loss = model(input_ids=ids, attention_mask=(ids != tokenizer.pad_token_id).long(), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@torch.no_grad()
def answers(model: Any, tokenizer: PreTrainedTokenizerFast, asked: Sequence[str], room: int) -> list[list[int]]:
    """Drawn answers, as ids with the end token where they end within the room."""
    ids = tokenizer(list(asked), return_tensors="pt", padding=True)
    was_training = model.training
    model.eval()
    drawn = model.generate(
        input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], do_sample=True, temperature=1.0, top_k=0,
        max_new_tokens=room + 1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model.train(was_training)
    texts = []
    for row in drawn[:, ids["input_ids"].shape[1] :].tolist():
        ends = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
        texts.append(row[:ends])
    return texts


# The rewards.


def reward_of(arm: Arm, world: str, seed: int, record: Run | None = None) -> RubricReward:
    """The reward of an arm."""
    luck = random.Random(f"graph {seed}")
    forms = {form: knowledge.guessed(form, luck) for form in knowledge.FORMS}
    if arm.graph != "guessed":
        forms = {form: knowledge.graph(form) for form in knowledge.FORMS}
    graphs = {item: forms[knowledge.parts(item)[0]] for item in knowledge.ITEMS}
    factors = learned(world, seed, graphs) if arm.graph == "learned" else None
    return rewarding(arm.aggregation, arm.weights, world, graphs, factors, record)


def rewarding(
    aggregation: Aggregation,
    weights: tuple[float, float],
    world: str,
    graphs: Mapping[str, Graph],
    factors: Factors | None = None,
    record: Run | None = None,
) -> RubricReward:
    """The product's reward on these questions."""
    return RubricReward(
        knowledge.rows(),
        {item: knowledge.bundle(item, weights) for item in knowledge.ITEMS},
        graphs,
        knowledge.SETTINGS,
        knowledge.Paying(world),
        aggregation,
        factors,
        record=record,
        criteria_per_call=None,
    )


def judged(reward: RubricReward, items: Sequence[str], texts: Sequence[str], step: int | None = None) -> Locals:
    """What the judge that pays says of answers."""
    posed = [PosedRollout(reward.item(item), text, step) for item, text in zip(items, texts, strict=True)]
    batch, _ = reward.judged_so_far(posed, monotonic() + 300)
    assert batch is not None
    return batch.local


def learned(world: str, seed: int, graphs: Mapping[str, Graph]) -> Factors:
    """Factors by exact marks of the criteria of some answers as the policy begins with, `learn: {by: marks}`."""
    luck = random.Random(f"marks {seed}")
    items = [luck.choice(knowledge.TRAINED) for _ in range(MARKED)]
    texts = [knowledge.imperfect(item, luck, knowledge.WORLDS[world]) for item in items]
    with rewarding("gear", (1.0, 1.0), world, graphs) as reward:
        batch = judged(reward, items, texts).batch
    pairs = zip(items, texts, strict=True)
    marks = np.array([float(yes) for item, text in pairs for yes in knowledge.read(item, text).earned.values()])
    found = paying(batch, marks, knowledge.SETTINGS.threshold)
    return {
        compiled.rubric_id: dict(zip(compiled.edges, map(float, factors), strict=True))
        for compiled, (factors, _) in zip(batch.compiled, found, strict=True)
    }


class Dropping:
    """Rubric dropout (arXiv 2608.11669): a part of the criteria counts for nothing in a group's rewards, another part
    at every update. Ours: each criterion is left out by chance, never all; shares of the points left."""

    __name__ = "dropping"

    def __init__(self, reward: RubricReward, share: float, seed: int) -> None:
        self.reward, self.share, self.seed = reward, share, seed

    def __call__(self, prompts: Any, completions: Sequence[str], **columns: Any) -> list[float]:
        step, items = columns["trainer_state"].global_step, columns["item_id"]
        local = judged(self.reward, items, completions, step)
        whole = self.reward.aggregated(local, self.reward.options.aggregation)
        return kept(local, whole, self.share, f"{self.seed} {step}")


def kept(local: Locals, whole: Aggregated, share: float, seed: str) -> list[float]:
    """Rewards by the criteria that are not left out; the same ones for answers to the same question."""
    rewards = []
    for place, rubric in enumerate(local.batch.rubric_index):
        compiled = local.batch.compiled[rubric]
        luck = random.Random(f"{seed} {compiled.rubric_id}")
        stays = np.array([luck.random() >= share for _ in compiled.criteria])
        stays[luck.randrange(len(stays))] = True
        weights = compiled.weights * stays
        marginal = whole.marginal[local.batch.start[place] : local.batch.start[place + 1]]
        rewards.append(float(weights @ marginal / weights.sum()))
    return rewards


# The trainings.


def trainer(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    reward: Callable[..., Any],
    arm: Arm,
    seed: int,
    steps: int,
    room: int,
    folder: Path,
) -> GRPOTrainer:
    """GRPO over the questions with this reward."""
    luck = random.Random(seed)
    rounds = range(-(-steps * BATCH // GROUP // len(knowledge.TRAINED)))
    asked = [item for _ in rounds for item in luck.sample(knowledge.TRAINED, len(knowledge.TRAINED))]
    config = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        use_vllm=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=max(1, steps),
        disable_tqdm=True,
        seed=seed,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        num_generations=GROUP,
        max_completion_length=room + 1,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        temperature=1.0,
        beta=0.0,
    )

    def scaffolded(prompts: Sequence[str], of: GRPOTrainer) -> dict[str, Any]:
        """RuscaRL: members of a group see shares of the rubric; the update is on the prompt without."""
        shares = ruscarl_shares(GROUP, of.state.global_step + 1, steps)
        items = [prompt.removesuffix(" ?") for prompt in prompts]
        helped = [shown(item, "ruscarl", "flat", shares[n % GROUP], luck) for n, item in enumerate(items)]
        said = answers(of.model, tokenizer, helped, room)
        return {"prompt_ids": tokenizer(list(prompts))["input_ids"], "completion_ids": said, "logprobs": None}

    how = arm.prompt if arm.prompt == "merf" else PLAIN
    rows = [{"prompt": shown(item, how, arm.aggregation), "item_id": item} for item in asked]
    made = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        rollout_func=scaffolded if arm.prompt == "ruscarl" else None,
    )
    made.remove_callback(PrinterCallback)
    return made


class HeldOut(TrainerCallback):
    """Has the policy answer the held-out questions, before the first update and after every few."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, room: int, reward: RubricReward) -> None:
        self.tokenizer, self.room, self.reward, self.rows = tokenizer, room, reward, list[pd.DataFrame]()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """A look, which changes nothing in the training."""
        if state.global_step % EVERY == 0:
            items = [item for item in knowledge.HELD_OUT for _ in range(GROUP)]
            with torch.random.fork_rng():
                torch.manual_seed(state.global_step)
                drawn = answers(model, self.tokenizer, list(map(knowledge.prompt, items)), self.room)
            texts = self.tokenizer.batch_decode(drawn, skip_special_tokens=True)
            rows = pd.DataFrame({"step": state.global_step, "item_id": items, "text": texts})
            of_item = rows.assign(quality=exact(rows)).groupby("item_id")["quality"].mean()
            self.reward.held_out(state.global_step, of_item.to_dict())
            self.rows.append(rows)

    on_train_begin = on_step_end


def train(out: Path, world: str, name: str, seed: int, steps: int, taught_steps: int = TAUGHT_STEPS) -> None:
    """Teach and train, and keep every rollout and every held-out answer."""
    title = re.sub(r"[^a-zA-Z]+", "_", f"{world} {name}") + f"_{seed}"
    done = out / f"{title}.parquet"
    if done.exists():
        return
    start = monotonic()
    entered = knowledge.enter(world)
    arm, tokenizer, room = ARMS[name], words_of(), entered.room
    weights = out / f"taught_{room}_{entered.knows}_{seed}"
    if not weights.exists():
        taught(seed, tokenizer, taught_steps, entered).save_pretrained(weights)
    spent = monotonic() - start
    model = Qwen3ForCausalLM.from_pretrained(weights)
    run = Warehouse.open(out / "warehouse").run(f"{title}-{int(time.time())}")
    with reward_of(arm, world, seed, run) as reward:
        paid = Dropping(reward, arm.dropout, seed) if arm.dropout else reward
        made = trainer(model, tokenizer, paid, arm, seed, steps, room, out / "trl")
        looks = HeldOut(tokenizer, room, reward)
        made.add_callback(looks)
        made.train()
    pd.concat(looks.rows).assign(world=world, arm=name, seed=seed, run=run.run_id).to_parquet(done)
    print(f"{world}, {name}, seed {seed}: taught {spent:.0f} s, all {monotonic() - start:.0f} s", flush=True)


# What came of it.

MEASURES = {
    "quality": "quality, held out",
    "trained": "quality, rollouts",
    "unearned": "false credit",
    "paid": "of it paid",
    "facts": "facts right",
    "words": "words",
    "distinct": "distinct answers",
}
"""quality and trained: the share of the criteria that is earned, by the exact judge. unearned: of the criteria, those
that the judge who pays credits and that are not earned, whatever an arm pays for them. paid: what the arm pays for
these. facts: asked for and told rightly. distinct: of the answers to a question in an update, those unlike
the others."""
LAST = 30
"""Updates whose means stand in the table."""


def measured(run: Run) -> pd.DataFrame:
    """A training's rollouts, read by the exact judge."""
    answered = run.read(run.ref(Responses, TRAINER)).to_pylist(maps_as_pydicts="strict")
    wanted = ["response_id", "aggregation", "reward", "marginals"]
    paid = run.read(run.ref(Rewards, TRAINER), wanted).to_pylist(maps_as_pydicts="strict")
    curves = run.read(run.ref(Rewards, CURVES), wanted)
    flat = {
        row["response_id"]: row for row in curves.to_pylist(maps_as_pydicts="strict") if row["aggregation"] == "flat"
    }
    own = {row["response_id"]: row for row in paid}
    lines = []
    for row in answered:
        name, found = row["response_id"], knowledge.read(row["item_id"], row["text"])
        shares = [sum(of[name]["marginals"][c] for c, yes in found.earned.items() if not yes) for of in (flat, own)]
        facts = [yes is True for c, yes in found.there.items() if c not in knowledge.REASONS]
        lines.append(
            {
                "response_id": name,
                "trained": found.quality,
                "unearned": shares[0] / len(found.earned),
                "paid": shares[1] / len(found.earned),
                "reward": own[name]["reward"],
                "facts": sum(facts) / len(facts),
                "words": len(row["text"].split()),
            }
        )
    steps = [{**row, "step": int(row["groups"]["step"])} for row in answered]
    rows = paired(curves.to_pandas(), pd.DataFrame(steps)[["response_id", "item_id", "step", "text"]])
    rows = rows.merge(pd.DataFrame(lines), on="response_id")
    of_group = rows.groupby(["step", "item_id"])["text"]
    rows["distinct"] = of_group.transform("nunique") / of_group.transform("count")
    return rows


def exact(held: pd.DataFrame) -> list[float]:
    """The quality of answers, by the exact judge."""
    return [knowledge.read(item, text).quality for item, text in zip(held["item_id"], held["text"], strict=True)]


class Training(NamedTuple):
    """One training, told."""

    by_step: pd.DataFrame
    """step → `MEASURES`, flat and gear."""
    items: pd.Series
    """Held-out question → quality at the end."""
    departure: float
    """The evaluation (mean of three) from which on less than half of what the reward gains is held-out quality: where
    quality less half of the reward is highest; NaN where that ends within .02 of its highest."""
    rang: float
    """The evaluation at which the alarm rang first; NaN where it never did."""
    share: float
    """Of what the reward gained from the first 25 updates to the last, how much held-out quality did."""


def told(rows: pd.DataFrame, held: pd.DataFrame) -> Training:
    """The curves of a training and the alarm of the product on it."""
    of_step = ["trained", "unearned", "paid", "facts", "words", "distinct", "flat", "gear", "reward"]
    by_step = rows.groupby("step")[of_step].mean()
    quality = held.groupby("step")["quality"].mean()
    end = held["step"].max() - LAST
    said = list(
        hacking_alarms(
            by_step["reward"].dropna().to_dict(),
            {
                step: of.set_index("item_id")["quality"].groupby(level=0).mean().to_dict()
                for step, of in held.groupby("step")
            },
        )
    )
    rang = [alarm.step for alarm in said if alarm.is_raised]
    before = by_step["reward"].rolling(EVERY).mean().reindex(quality.index)  # the updates before each evaluation
    apart = (quality - LEAST_SHARE * before).dropna()
    smooth = apart.rolling(3, min_periods=1).mean()
    departs = smooth.max() - apart[apart.index > end].mean() > 0.02
    gains = [
        series.dropna().iloc[-WINDOW:].mean() - series.dropna().iloc[:WINDOW].mean() for series in (quality[1:], before)
    ]
    return Training(
        by_step.join(quality),
        held[held["step"] > end].groupby("item_id")["quality"].mean(),
        float(smooth.idxmax()) if departs else math.nan,
        float(min(rang)) if rang else math.nan,
        gains[0] / gains[1],
    )


def interval(values: Sequence[float]) -> str:
    """A mean with its 95% t interval."""
    known = np.asarray(values, float)
    if len(known) < 2:
        return f"{known.mean():.3f}"
    half = student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known))
    return f"{known.mean():.3f} [{known.mean() - half:.3f}, {known.mean() + half:.3f}]"


def show(out: Path, picture: Path | None) -> None:
    """Tables of the last updates, differences from flat by seed, and the alarm; and the picture."""
    house = Warehouse.open(out / "warehouse")
    found: dict[tuple[str, str, int], Training] = {}
    for path in sorted(out.glob("*.parquet")):
        held = pd.read_parquet(path)
        world, name, seed, run = held[["world", "arm", "seed", "run"]].iloc[0]
        knowledge.enter(world)
        held = held[["step", "item_id"]].assign(quality=exact(held))
        found[world, name, int(seed)] = told(measured(house.run(run)), held)
    for world in [name for name in knowledge.WORLDS if any(key[0] == name for key in found)]:
        rooms = [knowledge.best(form, knowledge.enter(world).room) for form in knowledge.FORMS]
        print(f"\n{world}; the best answers have {np.mean(rooms):.3f}; last {LAST} updates, 95% intervals over seeds")
        lines = []
        for name in ARMS:
            seeds = {key[2]: of for key, of in found.items() if key[:2] == (world, name)}
            if not seeds:
                continue
            line: dict[str, object] = {"arm": name, "seeds": len(seeds)}
            for measure, title in MEASURES.items():
                last = [of.by_step[measure].dropna().iloc[-LAST:].mean() for of in seeds.values()]
                line[title] = interval([of.items.mean() for of in seeds.values()] if measure == "quality" else last)
            flat = {seed: found[world, "flat", seed] for seed in seeds if (world, "flat", seed) in found}
            ends, false_of_flat = (
                {seed: of.by_step["unearned"].iloc[-LAST:].mean() for seed, of in all_.items()}
                for all_ in (seeds, flat)
            )
            apart = {seed: seeds[seed].items - of.items for seed, of in flat.items()}
            line["less flat, seeds"] = interval([of.mean() for of in apart.values()]) if apart else ""
            line["less flat, questions"] = interval(np.concatenate(list(apart.values()))) if apart else ""
            shares = [ends[seed] / false for seed, false in false_of_flat.items() if seed in ends]
            line["false credit, of flat's"] = interval(shares) if shares else ""
            line["real share of the gain"] = interval([of.share for of in seeds.values()])
            line["alarm (departure)"] = ", ".join(f"{of.rang:g} ({of.departure:g})" for of in seeds.values())
            lines.append(line)
        print(pd.DataFrame(lines).to_csv(sep="|", index=False))
    if picture:
        draw({key[1:]: of.by_step for key, of in found.items() if key[0] == "as measured"}, picture)


COLOURS = {
    "flat": "#b3462c",
    "hard, own score": "#7a7a7a",
    "RaR": "#d98c5f",
    "rubric dropout": "#c79a1b",
    "GEAR": "#1f5f8b",
    "GEAR, learned edges": "#2f8f6b",
    "GEAR, a model's graph": "#7fb2d6",
}
"""The arms of the picture."""


def draw(curves: Mapping[tuple[str, int], pd.DataFrame], picture: Path) -> None:
    """Each measure over the updates: mean of the seeds, means of ten updates, and the range between the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    names = ("quality", "unearned", "flat", "facts", "words", "distinct")
    titles = {**MEASURES, "flat": "flat reward", "unearned": "false credit: credited, not earned"}
    for axis, name in zip(figure.subplots(2, 3).flat, names, strict=True):
        for arm, colour in COLOURS.items():
            seeds = {seed: of[name].dropna() for (of_arm, seed), of in curves.items() if of_arm == arm}
            if seeds:
                wide = pd.DataFrame(seeds).rolling(4 if name == "quality" else 10, min_periods=1).mean()
                axis.plot(wide.index, wide.mean(axis=1), color=colour, label=arm, lw=1.4)
                axis.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=colour, alpha=0.15, lw=0)
        axis.set(title=titles[name], xlabel="update", ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[4].legend(frameon=False, fontsize=8, loc="center right")  # words hardly differ: there is room
    figure.savefig(picture, dpi=80)


def main() -> None:
    """Train what is not trained yet, or show what came of it."""
    words = argparse.ArgumentParser()
    words.add_argument("what", choices=("train", "show"))
    words.add_argument("--out", type=Path, default=Path("build/policy"))
    words.add_argument("--arms", type=lambda text: text.split("; "), default=list(ARMS))
    words.add_argument("--worlds", type=lambda text: text.split("; "), default=["as measured"])
    words.add_argument("--seeds", type=lambda text: list(map(int, text.split(","))), default=[0, 1, 2])
    words.add_argument("--steps", type=int, default=300)
    words.add_argument("--picture", type=Path)
    given = words.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "show":
        return show(given.out, given.picture)
    for seed in given.seeds:
        for world in given.worlds:
            for name in given.arms:
                train(given.out, world, name, seed, given.steps)


if __name__ == "__main__":
    main()
