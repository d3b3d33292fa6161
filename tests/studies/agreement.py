"""Agreement with people by the number of labels: raw, every mapping, ten-line baselines, length alone, and people.

    python tests/studies/agreement.py RUN_ID [--warehouse DIR] [--labels 50 100 200 all] [--repeats 5] [--cache FILE]

Of each item (or of the set, where its study labels by set) one random half is held out, and labels are drawn from the
other half, several times. QWK is that of the held-out half, mean over the draws of labels and over items; of sets that
are labelled as one also pooled. Half the width of a 95% interval stands behind each, over held-out authors; the
second line is the paired difference between the stacked mapping and the best baseline that knows no rubric.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import issparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.settings.study import Calibration, Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, pair_sums, statistics_of_totals
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.alignment import Refusal, knots
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, fit_method
from rubricflow.tasks.grading.calibrate.rows import GRADING, Item, LabelledRows, collect, graded_items
from rubricflow.tasks.grading.calibrate.texts import Readers, TextSource, text_blocks

DRAWS = 400
FEWEST = 5
"""Held-out responses that an item needs for a QWK of its own."""
FEWEST_LABELS = 60
"""Labelled responses that an item needs to be cut in halves."""
BASELINES = ("text_only", "char ridge", "embedding ridge")
NAMED = ("stacked", "text_only", "rulers", "linking")


def prepared(run: Run, study: Study) -> list[LabelledRows]:
    """Every labelled and graded response with its features and blocks, by item or, labelled as a set, together."""
    machine = run.read(run.ref(Gradings, "judge"), GRADING)
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"])
    responses = run.read(run.ref(Responses, "ingest"), ["response_id", "split", "author_id", "text"])
    every = responses.set_column(1, "split", [["calibration"] * len(responses)])
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    asked = {row["item_id"]: row for row in run.read(run.ref(Items, "ingest")).to_pylist()}
    bundles = {name: locked[row["rubric_id"]] for name, row in asked.items()}
    text = dict(zip(responses["response_id"].to_pylist(), responses["text"].to_pylist(), strict=True))
    graded = [item for item in graded_items(bundles, machine, every, people, study.evaluation.target) if len(item.rows)]
    beside = [_beside(item, asked[item.item_id], text) for item in graded]
    if study.split.per == "set":
        return [collect(beside, pooled=True).drawn]
    return [collect([item], pooled=False).drawn for item in beside]


def _beside(item: Item, asked: dict[str, object], text: dict[str, str]) -> Item:
    texts = [text[name] for name in item.rows["response_id"].to_pylist()]
    source = TextSource(texts, str(asked["question"]), str(asked["reference_answer"] or ""), item.bundle.text)
    return item._replace(blocks=text_blocks(source, ("characters", "embedding"), Readers(encode=minilm())))


def halves(labels: LabelledRows, rng: np.random.Generator) -> np.ndarray:
    """Whether each row is held out: about half, whole authors."""
    names = np.unique(labels.cluster)
    held = set(rng.permutation(names)[: len(names) // 2])
    return np.array([name in held for name in labels.cluster])


def ten_lines(block: str, known: LabelledRows, held: LabelledRows) -> np.ndarray:
    """A ridge on one block of the text with the published map, fitted on cross-fitted latents."""
    x, new = known.blocks[block], held.blocks[block]
    if issparse(x):
        weigh = TfidfTransformer(sublinear_tf=True).fit(x)
        x, new = weigh.transform(x), weigh.transform(new)
    folds = KFold(10, shuffle=True, random_state=0)
    at, score = knots(cross_val_predict(Ridge(1.0), x, known.human, cv=folds), known.human, 1e-9)
    return np.interp(Ridge(1.0).fit(x, known.human).predict(new), at, score)


def length_alone(known: LabelledRows, held: LabelledRows) -> np.ndarray:
    """The same with the logarithm of the length."""
    x, new = (np.log1p(part.blocks["characters"].sum(axis=1)).reshape(-1, 1) for part in (known, held))
    folds = KFold(10, shuffle=True, random_state=0)
    at, score = knots(cross_val_predict(Ridge(1.0), x, known.human, cv=folds), known.human, 1e-9)
    return np.interp(Ridge(1.0).fit(x, known.human).predict(new), at, score)


def scored(known: LabelledRows, held: LabelledRows) -> Iterator[tuple[str, np.ndarray]]:
    """(method, aligned scores of the held-out rows)."""
    yield "raw", held.raw
    chosen = decide(known, Calibration())
    yield "chosen", apply_to_labels(chosen.tried.mapping if chosen.tried else None, held).aligned
    for method in NAMED:
        try:
            yield method, apply_to_labels(fit_method(method, known, 2.5), held).aligned
        except Refusal:
            yield method, held.raw
    yield "char ridge", ten_lines("characters", known, held)
    yield "embedding ridge", ten_lines("embedding", known, held)
    yield "length", length_alone(known, held)


def drawn(held: LabelledRows, machine: np.ndarray, within: bool) -> np.ndarray:
    """QWK of the rounded scores, then in every draw, (1 + DRAWS,): mean over items, or of all rows as one."""
    human, level = held.levels(held.human) / held.top, held.levels(machine) / held.top
    codes, size = cluster_codes(held.cluster)
    parts = [held.item == at for at in np.unique(held.item)] if within else [np.ones(len(held), dtype=bool)]
    parts = [rows for rows in parts if rows.sum() >= FEWEST]
    blocks = [pair_sums(human[rows], level[rows], codes[rows], size, (0.0, 1.0, 1.0)) for rows in parts]
    whole = np.array([statistics_of_totals(block.sum(axis=0)[None])["qwk_continuous"][0] for block in blocks])
    draws = np.array([statistics_of_totals(t)["qwk_continuous"] for t in draw_totals(blocks, DRAWS, 0)])
    return np.concatenate([[np.nanmean(whole)], np.nanmean(draws, axis=0)])


def figures(sets: list[LabelledRows], sizes: list[str], repeats: int) -> None:
    """Print a row per number of labels and kind of mean."""
    pooled = len(sets[0].items) > 1
    for size in sizes:
        for within in (False, True) if pooled else (False,):
            found: dict[str, list[np.ndarray]] = {}
            used = []
            for at, labels in enumerate(sets):
                for repeat in range(repeats):
                    rng = np.random.default_rng([at, repeat])
                    out = halves(labels, rng)
                    rows = rng.permutation(np.flatnonzero(~out))
                    rows = rows if size == "all" else rows[: int(size)]
                    known = labels.take(np.isin(np.arange(len(labels)), rows))
                    held = labels.take(out)
                    used.append(len(known))
                    for method, aligned in scored(known, held):
                        found.setdefault(method, []).append(drawn(held, aligned, within))
            means = {method: np.mean(parts, axis=0) for method, parts in found.items()}
            best = max(BASELINES, key=lambda name: means[name][0])
            gap = means["stacked"] - means[best]
            shown = "  ".join(f"{name} {value[0]:.3f} ±{1.96 * value[1:].std():.3f}" for name, value in means.items())
            kind = "within items" if within else "pooled" if pooled else "mean over items"
            print(f"{size:>4} labels ({np.mean(used):.0f}), {kind}: {shown}")
            print(f"     stacked - {best}: {gap[0]:+.3f} (SE {gap[1:].std():.3f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--warehouse", default="data/warehouse")
    parser.add_argument("--labels", nargs="+", default=["50", "100", "200", "all"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    run = Warehouse.open(given.warehouse).run(given.run)
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    if given.cache and given.cache.exists():
        sets = pickle.loads(given.cache.read_bytes())
    else:
        sets = prepared(run, study)
        if given.cache:
            given.cache.write_bytes(pickle.dumps(sets))
    sets = [labels for labels in sets if len(labels) >= FEWEST_LABELS]
    print(f"{given.run}: {sum(len(labels) for labels in sets)} labelled responses, {len(sets)} scopes")
    figures(sets, given.labels, given.repeats)


if __name__ == "__main__":
    main()
