"""How a language model follows the prompts: the same small development sample under every protocol, before and after.

    python tests/bench/prompts.py --model NAME --url URL [--protocols rulers dhs] [--warehouse DIR] [--label WORD]

The sample is 24 answers of the demo (three questions, eight authors, of class a), with the marks of the pass `key`. It
is for wording prompts; what is reported of a judge is measured on other answers. One row a protocol: how many first
replies keep the contract, what share of the levels above 0 stands on a quote that was found, what share of the levels
is 0 as the model said it (people: as `key` said it), agreement with the marks and with the scores, tokens an answer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.stats import beta, spearmanr
from sklearn.metrics import cohen_kappa_score

from rubricflow.flows.grade import grade
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.judge.mend import kind_of

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
ITEMS = ("osmosis", "p_value", "phone_ban")
AUTHORS = ("a01", "a03", "a05", "a08", "a11", "a13", "a16", "a18")
PROTOCOLS = ("rulers", "pointwise", "checkeval", "gradeagentops", "dhs", "mts", "autoscore", "unlocked")
MARKED = frozenset({"rulers", "pointwise", "checkeval"})
"""Protocols that decide the criteria that `key` marked."""


def study_file(folder: Path, protocol: str, model: str, url: str, options: dict[str, object]) -> Path:
    """A study of the sample under a protocol, in a folder with its data."""
    items = pd.read_csv(DEMO / "items.csv")
    items[items.item_id.isin(ITEMS)].to_csv(folder / "items.csv", index=False)
    for name in ("responses", "marks"):
        rows = pd.read_csv(DEMO / f"{name}.csv", keep_default_na=False)
        chosen = rows.response_id.isin([f"{item}-{author}" for item in ITEMS for author in AUTHORS])
        rows[chosen].to_csv(folder / f"{name}.csv", index=False)
    demo = yaml.safe_load((DEMO / "study.yaml").read_text(encoding="utf-8"))
    class_a = [source for source in demo["data"]["sources"] if "_b" not in source["file"]]
    engine = {"model": model, "urls": [url], "logprobs": 5, "timeout_s": 3600, "concurrency": 32}
    judge = {"protocol": protocol, "backend": "openai", "engine": engine, **options}
    if protocol in MARKED:
        judge |= {"final_score": "weighted_points"}
    study = {
        "name": f"prompts_{protocol}",
        "data": {"sources": class_a},
        "rubrics": {"file": str(DEMO / "rubrics.yaml")},
        "split": {"by": "author", "per": "set", "calibration": 12},
        "judge": judge,
    }
    path = folder / f"{protocol}.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return path


def figures(run: Run) -> dict[str, str]:
    """What a finished run says about its prompts."""
    attempts = run.read(run.ref(Attempts, "judge")).to_pandas()
    judgments = run.read(run.ref(Judgments, "judge")).to_pandas()
    gradings = run.read(run.ref(Gradings, "judge")).to_pandas()
    first = attempts[attempts.attempt == 0]
    valid = [not broken or kind_of(tuple(broken)) == "semantic" for broken in map(list, first.violations)]
    row = {"n": f"{gradings.response_id.nunique()}", "valid first": share(sum(valid), len(valid))}
    row |= criteria(run, judgments) if len(judgments) else {}
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "score"]).to_pandas()
    key = people[people.rater_id == "key"].set_index("response_id").score
    scored = gradings.dropna(subset=["score"]).set_index("response_id").score
    both = pd.concat([scored, key], axis=1, keys=["judge", "key"]).dropna()
    row["QWK"] = f"{agreement(both.judge.round(), both.key):.2f}" if len(both) > 2 else "-"
    row["rank"] = f"{spearmanr(both.judge, both.key).statistic:.2f}" if both.judge.nunique() > 1 else "-"
    row["mean (key)"] = f"{both.judge.mean():.1f} ({both.key.mean():.1f})"
    row["tokens in / out"] = (
        f"{attempts.prompt_tokens.sum() / len(gradings):.0f} / {attempts.completion_tokens.sum() / len(gradings):.0f}"
    )
    return row


def criteria(run: Run, judgments: pd.DataFrame) -> dict[str, str]:
    """Support, level 0 and agreement criterion by criterion."""
    marks = run.read(run.ref(Judgments, "ingest")).to_pandas()
    marks = marks[marks.rater_id == "key"].set_index(["response_id", "criterion_id"]).decision
    stated = judgments.dropna(subset=["stated"]).set_index(["response_id", "criterion_id"])
    asked = stated[(stated.stated > 0) & stated.verified.notna()]
    row = {"verified": share(int(asked.verified.sum()), len(asked))}
    both = stated.join(marks.rename("key"), how="inner")
    if len(both):
        row["level 0 (key)"] = f"{(both.stated == 0).mean():.2f} ({(both.key == 0).mean():.2f})"
        points = both[~both.index.get_level_values("criterion_id").str.startswith("M")]
        row["marks QWK stated"] = f"{agreement(points.stated, points.key):.2f}"
        row["verified QWK"] = f"{agreement(points.decision.fillna(0), points.key):.2f}"
    return row


def agreement(left: pd.Series, right: pd.Series) -> float:
    """QWK of whole numbers."""
    return float(cohen_kappa_score(np.asarray(left, int), np.asarray(right, int), weights="quadratic"))


def share(part: int, whole: int) -> str:
    """A share with its exact 95% interval and n."""
    if not whole:
        return "-"
    low = beta.ppf(0.025, part, whole - part + 1) if part else 0.0
    high = beta.ppf(0.975, part + 1, whole - part) if part < whole else 1.0
    return f"{part / whole:.2f} [{low:.2f}, {high:.2f}] n={whole}"


def main() -> None:
    """Grades the sample under each protocol and prints its row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--protocols", nargs="+", default=PROTOCOLS)
    parser.add_argument("--judge", type=json.loads, default={}, help="further settings of `judge`, as JSON")
    parser.add_argument("--warehouse", required=True)
    asked = parser.parse_args()
    for protocol in asked.protocols:
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            study = study_file(Path(folder), protocol, asked.model, asked.url, asked.judge)
            run_id = grade(str(study), asked.warehouse)
            row = figures(Warehouse.open(asked.warehouse).run(run_id))
            told = "; ".join(f"{name} {figure}" for name, figure in row.items())
            print(f"{protocol}: {told}; {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
