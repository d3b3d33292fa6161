"""A small run whose scores lie partly in the words and partly in the judge's decision."""

import numpy as np
from builders.bundles import bundle, criterion, trait
from builders.rows import grading, item, locked, response
from builders.studies import study

from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Warehouse

WORDS = ("membrane", "water", "energy", "salt", "gate", "cell")
JUDGED = bundle(
    criterion("c1"),
    ends=(0, 3),
    traits=(trait("t", 0, 3),),
    name="pointwise",
    final_score="weighted_points",
    signals=("criteria", "length"),
)
SIZES = {"p": 60, "q": 20, "empty": 4}
"""Item → responses; of the last no label calibrates."""


def run_of(root):
    """The run, and what calibrate takes of it."""
    rng = np.random.default_rng(0)
    responses, people, machine = [], [], []
    for item_id, size in SIZES.items():
        for at in range(size):
            key, said, level = f"{item_id}-{at:02d}", rng.random(len(WORDS)) < 0.5, rng.random()
            text = " ".join(word for word, used in zip(WORDS, said, strict=True) if used)
            split = "test" if at % 4 == 0 or item_id == "empty" else "calibration"
            responses.append(response(key, item_id, text=text, split=split))
            signals = {"criterion.c1": level, "length": float(len(text))}
            machine.append(grading(key, "m", float(round(3 * level)), item_id=item_id, signals=signals))
            score = float(np.clip(round(said[0] + said[1] + level), 0, 3))
            people.append(grading(key, "h", score, item_id=item_id))
    run = Warehouse.open(root).run("small")
    items = [item(name, rubric_id="r", reference_answer="water passes a membrane") for name in SIZES]
    run.commit("ingest", "all", {Items: items, Responses: responses, Gradings: people})
    run.commit("lock", "all", {Bundles: [locked(JUDGED, "r")]})
    run.commit("judge", "all", {Gradings: machine})
    ingested = (run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"))
    return run, (*ingested, run.ref(Gradings, "judge"), run.ref(Bundles, "lock"))


def plan(**calibration):
    return study(calibration={"minimum": 20, "method": "stacked"} | calibration)
