"""Whether labels ever make a judge worse: the mapping that is chosen against the raw score, text alone and hindsight.

    python tests/studies/never_worse.py [--draws 3] [--folder FOLDER] [--of short_answers large pooled …]

Recorded judges, the demo's two, and simulated ones on real answers, of every strength; of each, 0 to 200 labels are
drawn (below 100 twice as often), `decide` chooses, and QWK is counted on at most 320 unseen answers of other authors. A
loss is another's QWK less that of the score chosen: of the raw score, of `text_only`, and of the method that is best in
the mean over the draws of a judge and a number of labels. Below ten labels the raw score is kept and nothing is lost.
Means over judges, with the 95 % interval of redrawn judges. Last, one sample of gpt-3.5 beside the mean of its ten.

It needs the real data next to the checkout and says so where they are absent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.label_losses import agreement, agreements
from recorded_sets import SETS, need
from recorded_tasks import RESOLVED

from rubricflow.flows.plan import plan
from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, text_blocks
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

COUNTS = (0, 10, 25, 50, 100, 200)
MOST = 520
"""Answers of a judge that are used."""
STRENGTHS = (-1.0, 0.3, 0.5, 0.7, 0.9, 1.01)
AGAINST = ("raw", "text alone", "hindsight")
DEMO = Path(__file__).resolve().parents[2] / "data/demo"
SCORES = DEMO.parent / "results"


def rows(frame: pd.DataFrame, scales: Sequence[Scale], traits: Sequence[str] = ()) -> LabelledRows:
    """Labelled rows of columns own, human, text, cluster, item (0 for one) and the traits; shares where pooled."""
    pooled, texts = len(scales) > 1, frame["text"].tolist()
    matrix = np.column_stack([frame["own"], np.log1p(frame["text"].str.len()), *(frame[name] for name in traits)])
    varies = matrix.std(axis=0) > 0
    return LabelledRows(
        names=tuple(np.array(["score", "length", *traits])[varies]),
        left_out=(),
        items=tuple(f"q{k}" for k in range(len(scales))),
        scales=tuple(scales),
        low=0.0 if pooled else scales[0].min,
        high=1.0 if pooled else scales[0].max,
        item=frame["item"].to_numpy(np.int64) if pooled else np.zeros(len(frame), dtype=np.int64),
        raw=frame["own"].to_numpy(float),
        human=frame["human"].to_numpy(float),
        matrix=matrix[:, varies],
        weight=np.ones(len(frame)),
        cluster=frame["cluster"].astype(str).to_numpy(dtype=np.str_),
        weak=np.zeros(len(frame), dtype=np.bool_),
        blocks=text_blocks(TextSource(texts, "", "", ""), ("characters", "embedding"), Readers(encode=minilm())),
    )


def some(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """At most MOST of the rows, in an order of their own."""
    frame = frame.assign(**columns)
    return frame.sample(min(MOST, len(frame)), random_state=0).sort_index()


def short_answers() -> Iterator[tuple[str, LabelledRows]]:
    """gpt-3.5 once and the mean of ten samples, its free text, and Llama-405B with its seven or so prompts pooled."""
    samples = SETS["sas_sampled"]()
    kept = samples.frame[samples.frame["ours"].notna() & samples.frame["ours"].between(0, 3)]
    for item, part in kept.groupby("item"):
        mean = part.groupby("response_id")["ours"].mean().rename("mean")
        first = part.sort_values("sample").drop_duplicates("response_id").merge(mean, on="response_id")
        for how, column in (("one", "ours"), ("mean of 10", "mean")):
            own = some(first, own=first[column], cluster=first["response_id"])
            yield f"gpt-3.5 asap_sas {item} {how}", rows(own, [Scale(min=0, max=3)])
    free = SETS["sas_freeform"]()
    kept = free.frame[free.frame["ours"].notna() & (free.frame["judge"] == "gpt-3.5 complex")]
    for item, part in kept.groupby("item"):
        scale = Scale(min=0, max=free.scale(str(item))[1])
        part = part[part["ours"].between(0, scale.max)].drop_duplicates("response_id")
        if len(part) > 300:
            own = some(part, own=part["ours"], cluster=part["response_id"])
            yield f"gpt-3.5 free text asap_sas {item}", rows(own, [scale])
    llama = pd.read_parquet(need("asap_sas", "judge_llama31_405b_base_style.parquet"))
    answers = pd.read_parquet(need("asap_sas", "answers.parquet"))[["answer_id", "student_answer"]]
    llama = llama.merge(answers, on="answer_id").rename(columns={"student_answer": "text", "answer_id": "cluster"})
    llama["top"] = np.where(llama["question_id"].isin([1, 2, 5, 6]), 3.0, 2.0)
    own = llama["number_extracted_by_source"] / llama["top"]
    llama = llama.assign(own=own, human=llama["score_rater1"] / llama["top"])[own.between(0, 1)]
    items = sorted(llama["question_id"].unique())
    tops = llama.groupby("question_id")["top"].first()
    llama = llama.assign(item=llama["question_id"].map(items.index)).sort_values(["item", "cluster"])
    yield "Llama-405B asap_sas pooled", rows(llama, [Scale(min=0, max=tops[item]) for item in items])


def essays() -> Iterator[tuple[str, LabelledRows]]:
    """Two judges of ASAP-AES and four of ENEM, whose competences are traits."""
    one = SETS["asap_aes"]()
    for judge in ("gpt-3.5-turbo-0301 A", "gpt-3.5-turbo-0301 D", "llama-2-chat A"):
        for item in ("1", "3", "4", "7"):
            (low, high, _), ends = one.scale(item), RESOLVED[int(item)]
            part = one.frame[
                (one.frame["judge"] == judge) & (one.frame["item"] == item) & one.frame["resolved"].notna()
            ]
            part = part[part["ours"].between(low, high)].drop_duplicates("response_id")
            if len(part) >= 250:
                own = ends[0] + (part["ours"] - low) / (high - low) * (ends[1] - ends[0])
                part = some(part, own=own, human=part["resolved"], cluster=part["response_id"])
                yield f"{judge} asap_aes {item}", rows(part, [Scale(min=ends[0], max=ends[1])])
    judged = pd.read_parquet(need("enem_essays", "judge_competence_scores.parquet"))
    people = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet"))
    traits = [f"llm_c{k}" for k in range(1, 6)]
    for model, part in judged[judged["strategy"] == "zero_shot"].groupby("model"):
        part = part.dropna(subset=traits).merge(people, on="essay_id").drop_duplicates("essay_id")
        part = part.rename(columns={"human_total": "human", "essay": "text", "essay_id": "cluster"})
        yield f"{model} enem", rows(some(part, own=part[traits].sum(axis=1)), [Scale(min=0, max=1000, step=40)], traits)


def summaries() -> Iterator[tuple[str, LabelledRows]]:
    """Three judges of SummEval and the six of SummHay, whose answers are summaries; two of physics besides."""
    frame = SETS["summeval"]().frame
    frame = frame[frame["ours"].between(1, 5) & frame["mean"].notna()]
    for judge in ("gpt-4-0314 rts", "gpt-3.5-turbo-0301 rts", "llama-2-70b-chat-hf rts"):
        for item, part in frame[frame["judge"] == judge].groupby("item"):
            part = part.drop_duplicates("response_id")
            if len(part) >= 300:
                part = some(part, own=part["ours"], human=part["mean"])
                yield f"{judge} summeval {item}", rows(part, [Scale(min=1, max=5, step=1 / 3)])
    verdicts = pd.read_parquet(need("summhay", "judge_verdicts.parquet"))
    people = pd.read_parquet(need("summhay", "criteria_human.parquet"))
    texts = pd.read_parquet(need("summhay", "summaries.parquet"))
    texts["text"] = texts["summary_json"].map(lambda bullets: " ".join(map(str, json.loads(bullets))))
    found = verdicts.merge(people, on=["summary_id", "insight_id"]).merge(
        texts[["summary_id", "text"]], on="summary_id"
    )
    found = found[found["level"].notna() & found["human_level"].notna()]
    for judge, part in found.groupby("judge"):
        text = part["insight"] + " " + part["text"].str[:600]
        part = some(part, own=part["level"], human=part["human_level"], cluster=part["summary_id"], text=text)
        yield f"{judge} summhay", rows(part, [Scale(min=0, max=2)])
    frame = SETS["physics"]().frame
    for judge in ("gpt-4o naive_cot_2", "gpt-3.5 naive_cot_2"):
        part = frame[(frame["judge"] == judge) & frame["ours"].between(0, 3) & frame["human"].notna()]
        part = part.sort_values("sample").drop_duplicates("response_id")
        yield f"{judge} physics", rows(some(part, own=part["ours"]), [Scale(min=0, max=3)])


def large() -> Iterator[tuple[str, LabelledRows]]:
    """A large model on short answers and essays, each way of asking a judge; the questions of a set pooled."""
    sas = pd.read_parquet(need("asap_sas", "answers.parquet")).rename(
        columns={"answer_id": "response_id", "question_id": "item", "student_answer": "text", "score_rater1": "human"}
    )
    aes = pd.read_parquet(need("asap_aes", "essays.parquet")).rename(
        columns={"essay_id": "response_id", "essay_set": "item", "essay": "text", "domain1_score": "human"}
    )
    enem = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet")).rename(
        columns={"essay_id": "response_id", "essay": "text", "human_total": "human"}
    )
    ends = {1: (2.0, 12.0), 2: (1.0, 6.0), 3: (0.0, 3.0), 4: (0.0, 3.0), 6: (0.0, 4.0), 7: (0.0, 24.0)}
    short = {one: (0.0, 3.0 if one in (1, 2, 5, 6) else 2.0) for one in range(1, 11)}
    every = (("asap_sas", sas, short), ("asap_sas_eight", sas, short), ("asap_aes", aes, ends))
    for name, people, scales in (*every, ("enem", enem, {0: (0.0, 1000.0)})):
        people = people.assign(response_id=people["response_id"].astype(str))
        scores = pd.read_csv(SCORES / f"{name}_methods.csv", dtype={"response_id": str})
        for arm, part in scores.groupby("arm"):
            part = part.merge(people, on="response_id").dropna(subset=["score", "human"])
            part = part.assign(item=part.get("item", 0), cluster=part["response_id"])
            items = sorted(part["item"].unique())
            low = part["item"].map({item: scales[item][0] for item in items})
            span = part["item"].map({item: scales[item][1] - scales[item][0] for item in items})
            own, human = part["score"], part["human"]
            if len(items) > 1:
                own, human = (own - low) / span, (human - low) / span
            part = part.assign(own=own, human=human, item=part["item"].map(items.index)).sort_values("item")
            steps = [40.0 if name == "enem" else 1.0] * len(items)
            shapes = [
                Scale(min=scales[one][0], max=scales[one][1], step=step) for one, step in zip(items, steps, strict=True)
            ]
            yield f"large model {name} {arm}", rows(part, shapes)


def demo(folder: Path) -> Iterator[tuple[str, LabelledRows]]:
    """The large language model of the demo and the 1.5B, all questions together."""
    for name in ("study", "weak"):
        study = DEMO / f"{name}.yaml"
        command = [Path(sys.executable).with_name("rubricflow"), "grade", study, "--warehouse", folder]
        subprocess.run(command, check=True, capture_output=True)
        run = plan(study, folder).run
        answers = run.read(run.ref(Responses, "ingest"), ["response_id", "text"]).to_pandas()
        people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "score"]).to_pandas()
        human = people[people["rater_id"] == "key"].set_index("response_id")["score"]
        found = run.read(run.ref(Gradings, "judge"), ["response_id", "item_id", "status", "score"]).to_pandas()
        found = found[found["status"] == "scored"].merge(answers, on="response_id").sort_values("item_id")
        found = found.assign(human=found["response_id"].map(human), cluster=found["response_id"]).dropna(subset="human")
        tops = found.groupby("item_id")["human"].max()
        top, item = found["item_id"].map(tops), found["item_id"].map(list(tops.index).index)
        found = found.assign(own=(found["score"] / top).clip(0, 1), human=found["human"] / top, item=item)
        yield f"demo {name}", rows(found, [Scale(min=0, max=float(value)) for value in tops])


def simulated() -> Iterator[tuple[str, LabelledRows]]:
    """Judges made of people's scores on real answers: noise, lapses, severity, a narrow scale, a full one, length."""
    answers = pd.read_parquet(need("asap_sas", "answers.parquet"))
    answers = answers[answers["score_rater2"].notna()]
    luck = np.random.default_rng(0)
    for question in (2, 5):
        part = answers[answers["question_id"] == question].sample(500, random_state=5)
        human, n = part["score_rater1"].to_numpy(float), len(part)
        part = part.assign(human=human, own=human, text=part["student_answer"], cluster=part["answer_id"])
        base = rows(part, [Scale(min=0, max=3)])
        length = (base.matrix[:, -1] - base.matrix[:, -1].mean()) / base.matrix[:, -1].std()
        made = {"perfect": human, "second rater": part["score_rater2"].to_numpy(float)}
        made["nearly perfect"] = np.where(luck.random(n) < 0.03, human + luck.choice([-1, 1], n), human)
        made |= {f"noise {sd}": human + luck.normal(0, sd, n) for sd in (0.5, 0.8, 1.2, 2.0)}
        made |= {f"lapses {p}": np.where(luck.random(n) < p, luck.integers(0, 4, n), human) for p in (0.2, 0.5, 0.8)}
        made |= {"harsh": human - 1 + luck.normal(0, 0.4, n), "lenient": human + 1 + luck.normal(0, 0.4, n)}
        made["narrow"] = 1.5 + (human - 1.5) * 0.4 + luck.normal(0, 0.3, n)
        made["full marks"] = np.where(human >= 1, 3, human) + luck.normal(0, 0.3, n)
        made |= {"length": human / 2 + 1 + 0.8 * length + luck.normal(0, 0.4, n), "chance": luck.uniform(0, 3, n)}
        for name, own in made.items():
            raw = np.clip(np.floor(own + 0.5), 0, 3)
            yield f"{name} {question}", replace(base, raw=raw, matrix=np.column_stack([raw, base.matrix[:, 1:]]))


def pooled() -> Iterator[tuple[str, LabelledRows]]:
    """Judges made of people's scores on several questions, few answers of each: one has a severity by question."""
    answers = pd.read_parquet(need("asap_sas", "answers.parquet"))
    answers = answers[answers["score_rater2"].notna()]
    luck = np.random.default_rng(36)
    for questions, each in (((2, 4, 5), 60), ((2, 3, 4, 5, 6, 7, 8, 9), 40), ((3, 8), 90), ((4, 7, 9), 30)):
        parts = [answers[answers["question_id"] == one].sample(each, random_state=7) for one in questions]
        part = pd.concat(parts).assign(item=np.repeat(np.arange(len(questions)), each))
        top = np.where(part["question_id"].isin([2, 5, 6]), 3.0, 2.0)
        human, n = part["score_rater1"].to_numpy(float), len(part)
        scales = [Scale(min=0, max=3 if one in (2, 5, 6) else 2) for one in questions]
        part = part.assign(human=human / top, own=human / top, text=part["student_answer"], cluster=part["answer_id"])
        base, severity = rows(part, scales), luck.normal(0, 0.6, len(questions))[part["item"]]
        made = {f"noise {sd}": human + luck.normal(0, sd, n) for sd in (0.5, 0.8, 1.2)}
        made["lapses 0.3"] = np.where(luck.random(n) < 0.3, luck.integers(0, 4, n), human)
        made["severities"] = human + severity + luck.normal(0, 0.5, n)
        made |= {"second rater": part["score_rater2"].to_numpy(float), "chance": luck.uniform(0, 3, n)}
        made["harsh"] = human - 0.7 + luck.normal(0, 0.5, n)
        for name, own in made.items():
            raw = np.clip(np.floor(own + 0.5), 0, top) / top
            yield (
                f"{name}, {len(questions)} questions of {each}",
                replace(base, raw=raw, matrix=np.column_stack([raw, base.matrix[:, 1:]])),
            )


def losses(found: pd.DataFrame) -> pd.DataFrame:
    """A row per judge and number of labels: means over its draws."""
    cells = found.groupby(["judge", "labels"]).mean(numeric_only=True)
    methods = cells.columns.difference(["strength", "chosen", "raw", "seed"])
    best = cells[methods].max(axis=1)
    lost = {"raw": cells["raw"], "text alone": cells["text_only"], "hindsight": best}
    lost = {name: values - cells["chosen"] for name, values in lost.items()}
    return pd.DataFrame({"strength": cells["strength"], "chosen": cells["chosen"], **lost}).reset_index()


MAKERS: dict[str, Callable[..., Iterator[tuple[str, LabelledRows]]]] = {
    made.__name__: made for made in (short_answers, essays, summaries, large, demo, simulated, pooled)
}


def interval(values: pd.Series, luck: np.random.Generator) -> str:
    """Mean and 95 % interval of redrawn judges."""
    means = values.to_numpy()[luck.integers(len(values), size=(2000, len(values)))].mean(axis=1)
    return f"{values.mean():+.3f} [{np.quantile(means, 0.025):+.3f}, {np.quantile(means, 0.975):+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--of", nargs="*", default=list(MAKERS), choices=list(MAKERS))
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    need("asap_sas", "answers.parquet")
    made = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        judges = [one for name in given.of for one in (demo(folder) if name == "demo" else MAKERS[name]())]
    several = [judge for judge, labels in judges if len(labels.items) > 1]
    for judge, labels in judges:
        strength = agreement(labels.raw, labels)
        for count in (count for count in COUNTS if count <= 0.55 * len(labels)):
            for seed in range(given.draws * (2 if count < 100 else 1)):
                made.append({"judge": judge, "labels": count, "seed": seed, "strength": strength})
                made[-1] |= agreements(labels, count, seed)
        print(f"{judge}: {len(labels)} answers, raw QWK {strength:.3f}", flush=True)
    found = losses(pd.DataFrame(made))
    found["raw QWK"] = pd.cut(found["strength"], STRENGTHS)
    luck = np.random.default_rng(0)
    found["of"] = np.where(found["judge"].isin(several), "several questions", "one question")
    for keys in (["labels"], ["raw QWK", "labels"], ["of", "labels"]):
        cells = found.groupby(keys, observed=True)
        table = cells[list(AGAINST)].agg(lambda values: interval(values, luck)).assign(judges=cells.size())
        print(f"\nlost against\n{table.to_string()}", flush=True)
    judge_means = found.groupby("judge")[list(AGAINST)].mean()
    print("\nall:", {name: interval(judge_means[name], luck) for name in AGAINST}, f"{len(judge_means)} judges")
    pairs = found[found["judge"].str.startswith("gpt-3.5 asap_sas")].copy()
    if pairs.empty:
        return
    pairs["how"] = np.where(pairs["judge"].str.endswith("one"), "one sample", "mean of 10")
    print(f"\nQWK\n{pairs.pivot_table(index='how', columns='labels', values='chosen').round(3).to_string()}")


if __name__ == "__main__":
    main()
