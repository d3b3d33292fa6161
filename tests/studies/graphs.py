"""Studies of rubric graphs on public data: python tests/studies/graphs.py devai|healthbench --data FOLDER --to FOLDER

Writes a study whose graphs a language model makes, to be asked by `rubricflow batch FOLDER/study.yaml --work graph`.
`measure --to FOLDER --warehouse DIR` prints how the graphs of DevAI's run stand to people's, with intervals over tasks;
what rewards by each leak and preserve; and what any reward could preserve at most.

devai: requirements on software tasks, with people's prerequisites (`people.yaml`) and people's verdicts on the work of
three agents; the requirements of every third task, in the order of their names, are those on which wording was chosen,
and `--part held` writes the others; `--examples 13` takes people's graphs of the former and shows them to the model.
healthbench: 40 rubrics, or as many as `--rubrics` says, drawn by chance among those of 5 to 15 criteria under
conversations of at most 1,500 characters; a longer draw begins with a shorter one. Its edges: `graph_claims.py`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import yaml

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.graph import Edge, Graph
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, RubricGraphs
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.graph.subject import authored, subjects
from rubricflow.tasks.rewards.reward.aggregate import RULES, aggregate
from rubricflow.tasks.rewards.reward.compiled import compile_graph
from rubricflow.tasks.rewards.reward.leakage import EdgeCaseArrays, diagnose, edge_cases
from rubricflow.tasks.rewards.reward.rows import judged_responses

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
    verdicts = verdicts[verdicts["task"].isin(chosen)]
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
    shown = [graph for graph in graphs if graph["rubric_id"] in names[::3]]
    (to / "examples.yaml").write_text(yaml.safe_dump({"graphs": shown}))
    (to / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
    marked = verdicts[verdicts["rater"] == "human"].groupby(["task", "agent"], as_index=False)["satisfied"].mean()
    work = {"response_id": marked["task"] + "/" + marked["agent"], "item_id": marked["task"]}
    pd.DataFrame(work | {"text": "(a folder of files)", "score": marked["satisfied"].round(2)}).to_csv(
        to / "responses.csv", index=False
    )
    pd.DataFrame(
        {
            "response_id": verdicts["task"] + "/" + verdicts["agent"],
            "rater": verdicts["rater"].map({"human": "people"}).fillna("judge"),
            "criterion_id": "R" + verdicts["requirement_id"].astype(str),
            "level": verdicts["satisfied"].astype(int),
        }
    ).drop_duplicates(["response_id", "rater", "criterion_id"]).to_csv(to / "marks.csv", index=False)
    sources = [
        {"file": "items.jsonl", "items": {"item_id": "item_id", "question": "question", "criteria": "criteria"}},
        {
            "file": "responses.csv",
            "responses": {"response_id": "response_id", "item_id": "item_id", "text": "text"},
            "scores": [{"rater": "people", "score": "score"}],
        },
        {
            "file": "marks.csv",
            "marks": {
                "response_id": "response_id",
                "rater_id": "rater",
                "criterion_id": "criterion_id",
                "level": "level",
            },
        },
    ]
    return {"data": {"sources": sources}, "graph": {"profile": "work"}, "reward": REWARD | {"rater": "people"}}


def healthbench(data: Path, to: Path, rubrics: int) -> dict[str, Any]:
    """Prompts of HealthBench with their completions, and the study without its name."""
    folder = data / "healthbench"
    prompts = pd.read_parquet(folder / "prompts_rubrics.parquet")
    fits = prompts["n_criteria"].between(5, 15) & (prompts["conversation_json"].str.len() <= 1500)
    prompts = prompts[fits].sort_values("prompt_key").sample(rubrics, random_state=39)
    prompts.to_parquet(to / "prompts_rubrics.parquet")
    for name in ("completions", "judge_verdicts"):
        rows = pd.read_parquet(folder / f"{name}.parquet")
        rows[rows["prompt_key"].isin(prompts["prompt_key"])].to_parquet(to / f"{name}.parquet")
    return {
        "data": {"layout": "healthbench", "folder": "."},
        "graph": {"profile": "health"},
        "reward": REWARD | {"rater": "recorded"},
    }


def only_run(folder: Path, warehouse: Path) -> Run:
    """The run of a folder's study."""
    name = load_study(folder / "study.yaml").name
    (run,) = (run for run in Warehouse.open(warehouse).runs() if run.startswith(name))
    return Warehouse.open(warehouse).run(run)


def measure(folder: Path, warehouse: Path) -> None:
    """How a finished run's graphs, every earlier requirement as a parent, and flat rewards stand to people's graphs."""
    study = load_study(folder / "study.yaml")
    assert study.reward is not None
    run = only_run(folder, warehouse)
    bundles = unlocked(run.table(Bundles, "lock").to_pylist())
    items = run.table(Items, "ingest").to_pylist()
    people = {name: one.graph for name, one in authored(folder / "people.yaml", subjects(items, bundles)).items()}
    rows = run.table(RubricGraphs, "graph").to_pylist()
    model = {row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in rows}
    earlier = {name: every_earlier(graph) for name, graph in people.items()}
    names = sorted(people)
    for part, chosen in (("chosen on", names[::3]), ("held back", [name for name in names if name not in names[::3]])):
        for who, graphs in (("model", model), ("every earlier", earlier)):
            for kind, closed in (("as written", False), ("implied", True)):
                counts = np.array([overlap(graphs[name], people[name], closed) for name in chosen], dtype=float)
                rng = np.random.default_rng(39)
                drawn = counts[rng.integers(0, len(chosen), (2000, len(chosen)))].sum(axis=1)
                for what, of in MEASURES.items():
                    low, high = np.nanpercentile(of(drawn), (2.5, 97.5))
                    value = of(counts.sum(axis=0)[None])[0]
                    print(f"{part}, {who}, {kind}: {what} {value:.3f} [{low:.3f}, {high:.3f}] of {len(chosen)} tasks")
        compiled = {
            who: {name: compile_graph(name, bundles[name], graphs[name], study.reward.retention) for name in chosen}
            for who, graphs in (("people", people), ("model", model), ("every earlier", earlier))
        }
        wanted = [item["item_id"] for item in items if item["item_id"] in chosen]
        judged = judged_responses(
            run,
            run.ref(Items, "ingest"),
            run.ref(Responses, "ingest"),
            run.ref(Judgments, "ingest"),
            bundles,
            {name: compile_graph(name, bundles[name], people[name], study.reward.retention) for name in names},
            study.reward,
        )
        judged = judged.only(np.isin(np.asarray(judged.item_id), wanted))
        for who in ("flat", "people", "hard_local", "hard_propagated", "model", "every earlier"):
            of = compiled.get(who, compiled["people"])
            under = replace(
                judged.batch, compiled=tuple(of.get(graph.rubric_id, graph) for graph in judged.batch.compiled)
            )
            rewarded = aggregate(under, who if who in RULES else "gear")
            for row in diagnose(judged, who, rewarded, study.reward):
                if row["slice"] == "all":
                    ends = f"[{row['low']:.3f}, {row['high']:.3f}] of {row['n']}"
                    print(f"{part}, {who}: {row['metric']} by {row['per']} {row['value']:.3f} {ends}")
        for share in (0.0, 0.2):
            most = most_preserved(edge_cases(judged.batch, judged.batch.local, study.reward.threshold), share)
            print(f"{part}, any reward that leaks {share} of flat's by edge: preservation by edge at most {most:.3f}")


def most_preserved(cases: EdgeCaseArrays, share: float) -> float:
    """The highest preservation by edge of any reward that pays each child one share of its own and leaks so much of
    what flat rewards do: a child with a failed parent among satisfied ones is in both, and those come in first that
    are preserved most for what they leak."""
    place = np.unique(cases.child, return_inverse=True)[1]
    leaks = np.bincount(place, np.where(cases.violated, cases.weight, 0.0))
    kept = np.bincount(place, ~cases.violated)
    order = np.argsort(leaks / np.maximum(kept, 1e-9), kind="stable")
    leaks, kept = leaks[order], kept[order]
    room = share * leaks.sum() - (np.cumsum(leaks) - leaks)
    let_in = np.where(leaks > 0, np.clip(room / np.maximum(leaks, 1e-9), 0, 1), 1)
    return float(kept @ let_in / kept.sum())


MEASURES = {
    "precision": lambda sums: sums[:, 0] / sums[:, 1],
    "recall": lambda sums: sums[:, 0] / sums[:, 2],
    "F1": lambda sums: 2 * sums[:, 0] / (sums[:, 1] + sums[:, 2]),
    "backwards": lambda sums: sums[:, 3] / sums[:, 1],
}


def every_earlier(graph: Graph) -> Graph:
    """Every criterion a strong prerequisite of all that follow."""
    names = [node.criterion_id for node in graph.nodes]
    edges = [Edge(parent=a, child=b, relation="strong_prerequisite") for a, b in combinations(names, 2)]
    return graph.model_copy(update={"edges": tuple(edges)})


def overlap(graph: Graph, people: Graph, closed: bool) -> tuple[int, int, int, int]:
    """Edges in both, in the first, in the second, and those of the first that the second has, or implies, backwards."""
    sets = []
    for one in (graph, people):
        drawn: nx.DiGraph[str] = nx.DiGraph((edge.parent, edge.child) for edge in one.edges)
        sets.append(set((nx.transitive_closure(drawn) if closed else drawn).edges))
    reached = nx.transitive_closure(nx.DiGraph((edge.parent, edge.child) for edge in people.edges)).edges
    return len(sets[0] & sets[1]), len(sets[0]), len(sets[1]), sum((b, a) in reached for a, b in sets[0])


def main() -> None:
    """Write the study, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("devai", "healthbench", "measure"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--warehouse", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--examples", type=int, default=0)
    parser.add_argument("--rubrics", type=int, default=40)
    parser.add_argument("--part", choices=("all", "chosen", "held"), default="all")
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.to, given.warehouse)
        return
    given.to.mkdir(parents=True, exist_ok=True)
    if given.what == "devai":
        study = devai(given.data, given.to, given.part)
    else:
        study = healthbench(given.data, given.to, given.rubrics)
    study |= {"name": f"graphs_{given.what}", "marks": "calibrate", "rubrics": RUBRICS}
    study["graph"] |= {"backend": "openai", "engine": ENGINE, "orders": given.orders}
    if given.examples:
        study["graph"] |= {"file": "examples.yaml", "examples": given.examples}
    (given.to / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


if __name__ == "__main__":
    main()
