"""Is the promise kept on what nobody labelled? python tests/studies/logs.py [SET ...] [--draws 5] [--risk .1]

Recorded judges of five public sets (shared/data) are written as plain logs, as a tool would; 25, 50, 100 and 200
answers, drawn by chance, get people's labels. `calibrate`'s own study is fitted on these and held against people's
scores of all others: the share that may be relied on, how many of these are wrong, and in how many draws that is more
than the promise allows. Beside it stands what is wrong of all verdicts as they are. The table is of data/results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from recorded_sets import PROSE, need  # isort: split

import pandas as pd

from rubricflow.flows.log_study import write_study
from rubricflow.flows.plan import plan
from rubricflow.tasks.core.llm.foreign import read_score
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.grading.logs.labels import read_labels
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.study import study_of

LABELS = (25, 50, 100, 200)
Set = tuple[pd.DataFrame, dict[str, pd.Series]]
"""The log's rows, and people's scores by rater, both by id."""


def summhay() -> Set:
    people = pd.read_parquet(need("summhay", "criteria_human.parquet"))
    summaries = pd.read_parquet(need("summhay", "summaries.parquet")).set_index("summary_id")["summary_json"]
    verdicts = pd.read_parquet(need("summhay", "judge_verdicts.parquet"))
    verdicts = verdicts[verdicts["judge"] == "prompted_gpt-4o"]
    both = people.merge(verdicts, on=["summary_id", "insight_id"])
    both["id"] = both["summary_id"].astype(str) + ":" + both["insight_id"]
    answers = both["summary_id"].map(summaries).map(lambda bullets: "\n".join(json.loads(bullets)))
    log = pd.DataFrame({"id": both["id"], "score": both["level"], "answer": answers, "question": both["insight"]})
    return log.assign(judge_model="gpt-4o"), {"person": both.set_index("id")["human_level"]}


def summeval() -> Set:
    people = pd.read_parquet(need("summeval", "summaries_human_scores.parquet"))
    replies = pd.read_parquet(need("summeval", "judge_outputs.parquet"))
    chosen = {"judge": "gpt-4-0314", "method": "rts", "dimension": "coherence"}
    replies = replies[(replies[[*chosen]] == pd.Series(chosen)).all(axis=1)]
    both = people.merge(replies, on=["doc_id", "system"])
    both["id"] = both["doc_id"] + ":" + both["system"]
    scores = [read_score(reply, PROSE) for reply in both["raw_output"]]
    log = pd.DataFrame({"id": both["id"], "score": scores, "answer": both["summary"]})
    log = log.assign(explanation=both["raw_output"], judge_model="gpt-4-0314")
    people_of = both.set_index("id")
    return log, {f"expert{n}": people_of[f"coherence_expert{n}"] for n in (1, 2, 3)}


def devai() -> Set:
    verdicts = pd.read_parquet(need("devai", "verdicts.parquet"))
    verdicts["id"] = verdicts["task"] + ":" + verdicts["agent"] + ":" + verdicts["requirement_id"].astype(str)
    wide = verdicts.pivot(index="id", columns="rater", values="satisfied").dropna().astype(int)
    log = pd.DataFrame({"id": wide.index, "verdict": wide["agent_as_a_judge_gray_box"].map({1: "yes", 0: "no"})})
    return log.assign(judge_model="agent-as-a-judge"), {"person": wide["human"]}


def carousel() -> Set:
    rows = pd.read_parquet(need("carousel", "answers.parquet"))
    rows["id"] = [f"{user}:{row}" for row, user in enumerate(rows["u_id"])]
    log = pd.DataFrame(
        {"id": rows["id"], "verdict": rows["zeroshot-gpt-4-0125-preview"], "answer": rows["student_answer"]}
    )
    log = log.assign(question=rows["question"], judge_model="gpt-4-0125-preview")
    by_id = rows.set_index("id")
    return log, {f"rater{n}": (by_id[f"rater_{n}"] == "right").astype(int) for n in (1, 2, 3)}


def judgebench() -> Set:
    pairs = pd.read_parquet(need("judgebench", "pairs.parquet")).set_index("pair_id")["label"]
    rows = pd.read_parquet(need("judgebench", "judge_outputs.parquet"))
    rows = rows[rows["judge_model"].str.startswith("o1-mini")]
    first = rows["recorded_decision"].map({"A>B": 1.0, "B>A": 0.0, "A=B": 0.5})
    rows = rows.assign(score=first.where(rows["order"] == "AB", 1 - first), sample=rows["game"])
    log = rows[["pair_id", "sample", "score"]].rename(columns={"pair_id": "id"})
    return log.assign(judge_model="o1-mini"), {"key": (pairs == "A>B").astype(int)}


SETS: dict[str, Callable[[], Set]] = {one.__name__: one for one in (summhay, summeval, devai, carousel, judgebench)}


def measured(
    folder: Path, name: str, rows: pd.DataFrame, people: dict[str, pd.Series], count: int, seed: int, risk: float
) -> dict[str, object]:
    """One draw of labels: what the calibration promises, and what becomes of it on all others."""
    log_file, labels_file = folder / "log.jsonl", folder / "labels.csv"
    rows.to_json(log_file, orient="records", lines=True)
    ids = pd.Series(rows["id"].unique()).sample(count, random_state=seed)
    labels = [{"id": one, "rater": rater, "score": scores[one]} for one in ids for rater, scores in people.items()]
    pd.DataFrame(labels).to_csv(labels_file, index=False)
    log = read_log([log_file])
    made = study_of(log, read_labels(labels_file, log), f"{name}-{count}-{seed}")
    made.study["release"]["risk"] = risk
    study_file = write_study(made, folder / "study", log)
    job = plan(study_file, folder / "warehouse")
    run, study, base = job.run, job.study, job.base
    data = ingest.fn(run, study, base)
    locked = lock.fn(run, study, base, data.items, data.responses, data.gradings, data.judgments)
    judged = judge.fn(run, study.judge, base, data.items, data.responses, locked.bundles)
    scored = calibrate.fn(run, study, data.items, data.responses, data.gradings, judged.gradings, locked.bundles)
    found = run.read(scored.predictions).to_pandas().drop_duplicates("response_id").set_index("response_id")
    rest = found[~found.index.isin(ids)]
    target = pd.concat([scores.rename(rater) for rater, scores in people.items()], axis=1).mean(axis=1)[rest.index]
    raw = log.verdicts.groupby("answer_id")["score"].mean()
    scale = job.study.release.tolerance
    low, high, step = _scale(base)
    within = scale * step + 1e-9
    if scale == 0:  # people's mean is rounded as the promise rounds it
        target = (low + ((target - low) / step + 0.5 + 1e-9).floordiv(1) * step).clip(low, high)
    goes = (rest["route"] == "release") & rest["score"].notna()
    wrong = (rest["score"] - target).abs() > within
    plain = (raw[rest.index] - target).abs() > within
    known = raw[rest.index].notna() & rest["score"].notna()
    return {
        "n": len(rest),
        "tolerance": scale,
        "released": float(goes.mean()),
        "wrong": float(wrong[goes].mean()) if goes.any() else None,
        "as they are": float(plain[known].mean()),
        "qwk raw": qwk(target[known], raw[rest.index][known].clip(low, high), low, high, step).value,
        "qwk": qwk(target[known], rest["score"][known], low, high, step).value,
    }


def _scale(base: Path) -> tuple[float, float, float]:
    import yaml

    (rubric,) = yaml.safe_load((base / "rubrics.yaml").read_text())["rubrics"]
    return rubric["scale"]["min"], rubric["scale"]["max"], rubric["scale"]["step"]


def draws(name: str, count: int, seeds: int, most: int, risk: float) -> Iterator[dict[str, object]]:
    rows, people = SETS[name]()
    ids = pd.Series(rows["id"].unique())
    kept = ids.sample(min(most, len(ids)), random_state=0)
    rows = rows[rows["id"].isin(kept)]
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            yield measured(Path(folder), name, rows, people, count, seed, risk)


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("sets", nargs="*")
    given.add_argument("--draws", type=int, default=5)
    given.add_argument("--rows", type=int, default=400)
    given.add_argument("--risk", type=float, default=0.1)
    options = given.parse_args()
    print("set | labels | n | tolerance | released | wrong | draws above | as they are | qwk raw | qwk")
    for name in options.sets or SETS:
        for count in LABELS:
            begun = time.monotonic()
            frame = pd.DataFrame(draws(name, count, options.draws, options.rows, options.risk))
            released = frame["released"]
            wrong = (frame["wrong"].fillna(0) * released).sum() / released.sum() if released.sum() else float("nan")
            above = int((frame["wrong"] > options.risk).sum())
            cells = [name, count, int(frame["n"].mean()), *sorted({*frame["tolerance"]})]
            cells += [f"{released.mean():.2f} ({released.min():.2f} to {released.max():.2f})", f"{wrong:.3f}"]
            cells += [
                f"{above} of {len(frame)}",
                *(f"{frame[c].mean():.3f}" for c in ("as they are", "qwk raw", "qwk")),
            ]
            print(" | ".join(map(str, cells)), f"| {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
