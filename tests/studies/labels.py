"""What labels make of a language model on ASAP-SAS: zero-shot, worked examples by level and by similarity.

    python tests/studies/labels.py FOLDER --model NAME --url URL [--items 2 5 6 7] [--labels 50] [--test 62]
        [--count 4] [--arm 'expected={"any": "setting of judge"}'] [--protocol dhs] [--logprobs 5] [--concurrency 8]

Of each item `labels` answers calibrate and `test` others are held out, drawn by `--seed`; every arm is a study file in
FOLDER, graded by the command `rubricflow grade` into FOLDER/house, so that a stopped script goes on where it was.
`--arm` adds settings of `judge` to zero-shot and to both kinds of examples, as arms of their own; repeated for several.

QWK with rater 1 on the held-out answers, the mean over items, and the 95 % interval of redrawn answers within items: of
the raw score, after the standard calibration, and of what takes the same labels and no judge: `text_only` of the same
calibration, and a ridge on MiniLM's embedding with its distribution map.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recorded_sets import need  # isort: split

from rubricflow.flows.finished_runs import read_finished
from rubricflow.flows.plan import plan
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.alignment import knots
from rubricflow.tasks.grading.ingest.prepared import asap_sas as prepare

RUBRICS = Path(__file__).resolve().parents[2] / "data/studies/asap_sas_rubrics.yaml"
DRAWS = 2000
TARGET = "rater1"
KINDS: Mapping[str, str | None] = {"zero-shot": None, "by level": "level", "by similarity": "similarity"}
WITHOUT_A_JUDGE = {"(text_only, same calibration)": "text_only", "(embedding ridge)": "embedding"}


def sample(folder: Path, items: list[str], labels: int, test: int, seed: int) -> None:
    """Write items.csv and answers.csv, with the side of each answer."""
    asked = pd.read_json(need("asap_sas", "questions.jsonl"), lines=True).astype({"question_id": str})
    asked = asked[asked["question_id"].isin(items)]
    guided = prepare("questions.jsonl", asked)
    guided[["question_id", "question_text", "guide"]].to_csv(folder / "items.csv", index=False)
    answers = pd.read_parquet(need("asap_sas", "answers.parquet")).astype({"question_id": str})
    answers = prepare("answers.parquet", answers)
    parts = []
    for item in items:
        part = answers[answers["question_id"] == item].sample(labels + test, random_state=seed)
        parts.append(part.assign(split=["calibration"] * labels + ["test"] * test))
    pd.concat(parts).to_csv(folder / "answers.csv", index=False)


def study(folder: Path, name: str, judge: dict[str, Any]) -> Path:
    """Write the study file of an arm."""
    path = folder / f"{name}.yaml"
    answers = {
        "file": "answers.csv",
        "responses": {"response_id": "answer_id", "item_id": "question_id", "text": "student_answer", "split": "split"},
        "scores": [{"rater": TARGET, "score": "score_rater1"}],
    }
    items = {
        "file": "items.csv",
        "items": {"item_id": "question_id", "question": "question_text", "rubric_text": "guide"},
    }
    content = {
        "name": name,
        "data": {"sources": [items, answers]},
        "rubrics": {"file": str(RUBRICS)},
        "judge": judge,
        "evaluation": {"target": TARGET, "draws": 200},
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def arms(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and judge of every arm."""
    engine = {"model": given.model, "urls": given.url, "logprobs": given.logprobs, "concurrency": given.concurrency}
    engine["timeout_s"] = 3600
    sampling = {"max_tokens": given.max_tokens}
    judge = {"protocol": given.protocol, "backend": "openai", "engine": engine, "sampling": sampling}
    added = {"": {}} | {f" {name}": json.loads(of) for name, _, of in (arm.partition("=") for arm in given.arm)}
    for more, settings in added.items():
        for kind, by in KINDS.items():
            examples = {"examples": {"by": by, "count": given.count}} if by else {}
            yield f"{kind}{more}", {**judge, **examples, **settings}


def graded(path: Path, house: Path) -> Run:
    """The finished run of a study file."""
    command = Path(sys.executable).with_name("rubricflow")
    subprocess.run([command, "grade", path, "--warehouse", house], check=True)
    return plan(path, house).run


def scores(run: Run) -> tuple[pd.DataFrame, dict[str, tuple[float, float, float]]]:
    """The score frame of both splits with the texts and the embedding's ridge, and the scale of every item."""
    made, tables, scales = read_finished(run)
    frame = score_frame(tables, made.evaluation.target, splits=("calibration", "test")).frame
    texts = run.read(run.ref(Responses, "ingest"), ["response_id", "text"]).to_pandas()
    frame = frame.merge(texts, on="response_id")
    frame["fitted"] = (frame["split"] == "calibration") & frame["target"].notna()
    ridge = [pd.Series(baseline(of, scales[at]), of.index) for at, of in _by_item(frame)]
    return frame.assign(embedding=pd.concat(ridge)), scales


def baseline(part: pd.DataFrame, scale: tuple[float, float, float]) -> np.ndarray:
    """Mapped scores of every row of `part` (columns text, target, fitted), fitted on its fitted rows."""
    fitted, x = part["fitted"].to_numpy(), minilm()(part["text"].tolist())
    y = part.loc[fitted, "target"].to_numpy()
    at, score = knots(cross_val_predict(Ridge(1.0), x[fitted], y, cv=10), y, 1e-9)
    return np.clip(np.interp(Ridge(1.0).fit(x[fitted], y).predict(x), at, score), scale[0], scale[1])


def agreement(frame: pd.DataFrame, column: str, scales: Mapping[str, tuple[float, float, float]]) -> str:
    """Mean over items of the QWK of the held-out answers that have a score, its interval, and how many these are.

    Items where it is undefined have no part in it.
    """
    test = frame[(frame["split"] == "test") & frame["target"].notna() & frame[column].notna()]
    pairs = [(scales[at], of["target"].to_numpy(float), of[column].to_numpy(float)) for at, of in _by_item(test)]
    if not pairs:
        return "no score"
    if np.isnan(_mean_qwk(pairs)):
        return f"undefined n={len(test)}"
    luck = np.random.default_rng(0)
    drawn = [_mean_qwk(pairs, luck) for _ in range(DRAWS)]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return f"{_mean_qwk(pairs):.3f} [{low:.3f}, {high:.3f}] n={len(test)}"


def cost(run: Run) -> str:
    """Calls, tokens and the share of the prompts that the prefix cache held."""
    columns = ["prompt_tokens", "completion_tokens", "cached_tokens", "error", "violations"]
    calls = run.read(run.ref(Attempts, "judge"), columns).to_pandas()
    read, written, cached = (int(calls[name].fillna(0).sum()) for name in columns[:3])
    failed = int((calls["error"].notna() | (calls["violations"].map(len) > 0)).sum())
    said = f"{len(calls)} calls ({failed} failed), {read} tokens read ({cached / max(read, 1):.0%} cached)"
    return f"{said}, {written} written"


def _mean_qwk(pairs: list[tuple[Any, np.ndarray, np.ndarray]], luck: np.random.Generator | None = None) -> float:
    values = []
    for scale, human, own in pairs:
        rows = luck.integers(len(human), size=len(human)) if luck else slice(None)
        value = qwk(human[rows], own[rows], *scale).value
        values.append(np.nan if value is None else value)
    return float(np.nanmean(values)) if not np.isnan(values).all() else np.nan


def _by_item(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from ((str(name), part) for name, part in frame.groupby("item_id"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", nargs="+", required=True)
    parser.add_argument("--items", nargs="+", default=["2", "5", "6", "7"])
    parser.add_argument("--arm", action="append", default=[])
    parser.add_argument("--protocol", default="dhs")
    for name, number in {"labels": 50, "test": 62, "count": 4, "logprobs": 5, "concurrency": 8, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--max-tokens", type=int, default=200)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    sample(given.folder, given.items, given.labels, given.test, given.seed)
    rows = []
    for name, judge in arms(given):
        start = time.monotonic()
        run = graded(study(given.folder, name.replace(" ", "-"), judge), given.folder / "house")
        seconds = time.monotonic() - start
        frame, scales = scores(run)
        if not rows:
            rows += [(label, agreement(frame, of, scales), "", "") for label, of in WITHOUT_A_JUDGE.items()]
        rows.append((name, agreement(frame, "raw", scales), agreement(frame, "calibrated", scales), f"{seconds:.0f} s"))
        print(f"{name}: {cost(run)}, {seconds:.0f} s", flush=True)
    print(f"\n{len(given.items)} items, {given.labels} labels and {given.test} held-out answers each\n")
    print(pd.DataFrame(rows, columns=["arm", "raw", "calibrated", "time"]).to_string(index=False))


if __name__ == "__main__":
    main()
