"""Studies of rubric graphs on public data: python tests/studies/graphs.py devai|healthbench --data FOLDER --to FOLDER

Writes a study whose graphs a language model makes, to be asked by `rubricflow batch FOLDER/study.yaml --work graph`.

devai: requirements on software tasks, with people's prerequisites (`people.yaml`) and people's verdicts on the work of
three agents; the requirements of every third task, in the order of their names, are those on which wording was chosen,
and `--part held` writes the others.
healthbench: 40 rubrics drawn by chance among those of 5 to 15 criteria under conversations of at most 1,500 characters.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

ENGINE = {"model": "large-language-model", "urls": ["http://127.0.0.1:9/v1"]}
REWARD = {"retention": {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}}
RUBRICS = {
    "derive": {
        "origin": "criteria",
        "scale": {"min": 0, "max": 1, "step": 0.01},
        "kind": "criterion",
        "evidence": "none",
        "levels": ["not met", "met"],
    }
}


def devai(data: Path, to: Path, part: str) -> dict[str, Any]:
    """The tables of DevAI, and the study without its name."""
    needed = pd.read_parquet(data / "devai" / "requirements.parquet")
    names = sorted(needed["task"].unique())
    chosen = [name for number, name in enumerate(names) if part == "all" or (number % 3 == 0) == (part == "chosen")]
    tasks = pd.read_parquet(data / "devai" / "tasks.parquet").set_index("task").loc[chosen]
    verdicts = pd.read_parquet(data / "devai" / "verdicts.parquet")
    verdicts = verdicts[verdicts["task"].isin(chosen) & (verdicts["rater"] == "human")]
    # One verdict is on a requirement that there is not.
    verdicts = verdicts.merge(needed[["task", "requirement_id"]])
    items, graphs = [], []
    for name in chosen:
        rows = needed[needed["task"] == name].sort_values("requirement_id")
        criteria = [
            {"id": f"R{n}", "text": t, "weight": 1} for n, t in zip(rows.requirement_id, rows.criteria, strict=True)
        ]
        items.append({"item_id": name, "question": tasks.loc[name, "query"], "criteria": criteria})
        edges = []
        for number, cell in zip(rows.requirement_id, rows.prerequisites_json, strict=True):
            # One task has two requirements that name each other: only the earlier licenses.
            edges += [
                {"parent": f"R{before}", "child": f"R{number}", "relation": "strong_prerequisite"}
                for before in sorted(json.loads(cell))
                if before < number
            ]
        graphs.append({"rubric_id": name, "edges": edges})
    (to / "people.yaml").write_text(yaml.safe_dump({"graphs": graphs}))
    (to / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
    work = verdicts[["task", "agent"]].drop_duplicates()
    pd.DataFrame(
        {"response_id": work["task"] + "/" + work["agent"], "item_id": work["task"], "text": "(a folder of files)"}
    ).to_csv(to / "responses.csv", index=False)
    pd.DataFrame(
        {
            "response_id": verdicts["task"] + "/" + verdicts["agent"],
            "criterion_id": "R" + verdicts["requirement_id"].astype(str),
            "level": verdicts["satisfied"].astype(int),
        }
    ).drop_duplicates(["response_id", "criterion_id"]).to_csv(to / "marks.csv", index=False)
    sources = [
        {"file": "items.jsonl", "items": {"item_id": "item_id", "question": "question", "criteria": "criteria"}},
        {"file": "responses.csv", "responses": {"response_id": "response_id", "item_id": "item_id", "text": "text"}},
        {
            "file": "marks.csv",
            "marks": {
                "response_id": "response_id",
                "rater_id": {"const": "people"},
                "criterion_id": "criterion_id",
                "level": "level",
            },
        },
    ]
    return {"data": {"sources": sources}, "graph": {"profile": "work"}, "reward": REWARD | {"rater": "people"}}


def healthbench(data: Path, to: Path, part: str) -> dict[str, Any]:
    """Forty prompts of HealthBench with their completions, and the study without its name."""
    folder = data / "healthbench"
    prompts = pd.read_parquet(folder / "prompts_rubrics.parquet")
    fits = prompts["n_criteria"].between(5, 15) & (prompts["conversation_json"].str.len() <= 1500)
    prompts = prompts[fits].sort_values("prompt_key").sample(40, random_state=39)
    prompts.to_parquet(to / "prompts_rubrics.parquet")
    for name in ("completions", "judge_verdicts"):
        rows = pd.read_parquet(folder / f"{name}.parquet")
        rows[rows["prompt_key"].isin(prompts["prompt_key"])].to_parquet(to / f"{name}.parquet")
    return {
        "data": {"layout": "healthbench", "folder": "."},
        "graph": {"profile": "health"},
        "reward": REWARD | {"rater": "recorded"},
    }


def main() -> None:
    """Write the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("devai", "healthbench"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--part", choices=("all", "chosen", "held"), default="all")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    study = {"devai": devai, "healthbench": healthbench}[given.what](given.data, given.to, given.part)
    study |= {"name": f"graphs_{given.what}", "marks": "calibrate", "rubrics": RUBRICS}
    study["graph"] |= {"backend": "openai", "engine": ENGINE}
    (given.to / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


if __name__ == "__main__":
    main()
