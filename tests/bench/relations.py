"""How an annotator labels the relations of criteria, beside the demo's authored graphs.

    python tests/bench/relations.py --warehouse DIR [--model NAME --url URL]

Five rubrics of the demo have graphs by their author: 76 ordered pairs of core and additional criteria, 18 with an edge.
The annotator, a language model or without `--model` nobody but the criteria themselves, labels the same rubrics by the
command `rubricflow graph`. Printed: pairs that it gives an edge, how many of these the author gave, of the same kind,
criteria whose role is the author's, and the number of calls.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rubricflow.flows.graph import graph
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.store.warehouse import Warehouse

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
EDGE, CRITERION = ["rubric_id", "parent", "child"], ["rubric_id", "criterion_id"]


def study_file(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    """A study of the rubrics that have authored graphs, with other settings of `graph`."""
    study = yaml.safe_load((DEMO / "reward.yaml").read_text(encoding="utf-8"))
    rubrics = [graph["rubric_id"] for graph in yaml.safe_load((DEMO / "graphs.yaml").read_text())["graphs"]]
    study["name"] = name
    study["rubrics"] = {"file": str(DEMO / "rubrics.yaml")}
    study["graph"] = settings
    for source in study["data"]["sources"]:
        rows = pd.read_csv(DEMO / source["file"], keep_default_na=False)
        rows[rows["item_id"].isin(rubrics)].to_csv(folder / source["file"], index=False)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return path


def main() -> None:
    """Build both graphs and print what they have in common."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--warehouse", type=Path, required=True)
    options = parser.parse_args()
    engine = {"model": options.model, "urls": [options.url], "timeout_s": 3600}
    annotator = {"backend": "openai", "engine": engine} if options.model else {"backend": "stated"}
    kept, roles = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in {"authored": {"file": str(DEMO / "graphs.yaml")}, "annotated": annotator}.items():
            run_id = graph(str(study_file(Path(folder), name, settings)), str(options.warehouse))
            run = Warehouse.open(options.warehouse).run(run_id)
            edges = run.read(run.ref(GraphEdges, "graph")).to_pandas()
            kept.append(edges[edges["kept"]])
            nodes = run.read(run.ref(GraphNodes, "graph"), [*CRITERION, "role"]).to_pandas()
            roles.append(nodes.set_index(CRITERION)["role"])
            graphs = run.read(run.ref(RubricGraphs, "graph"), ["calls"]).to_pylist()
    by_author, by_annotator = kept
    both = by_author.merge(by_annotator, on=EDGE, suffixes=("", "_annotated"))
    same_kind = int((both["relation"] == both["relation_annotated"]).sum())
    role = pd.concat(roles, axis=1, keys=["author", "annotator"])
    print(f"edges: {len(by_annotator)}, the author's: {len(by_author)}, in both: {len(both)}, same kind: {same_kind}")
    print(f"roles as the author's: {int((role['author'] == role['annotator']).sum())} of {len(role)}")
    print(f"calls: {sum(len(row['calls']) for row in graphs)}")


if __name__ == "__main__":
    main()
