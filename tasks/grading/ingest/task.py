"""The stage entry point of ingest: source files in, canonical tables out; and, where a study asks for them, the fair
scores of an average rater."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
from pyarrow import feather

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row, TableRef, conform, schema
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import InputWarnings, Items, Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments, Preferences
from rubricflow.tasks.core.monitor.runs import log, task
from rubricflow.tasks.core.stats.facet_likelihood import design, linked
from rubricflow.tasks.core.stats.facets import fair_scores, fit
from rubricflow.tasks.core.stats.scores import FAIR, OF_SEVERAL
from rubricflow.tasks.core.store.files import aside, named
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.grading.ingest.canonical import Tables
from rubricflow.tasks.grading.ingest.oddities import sentence
from rubricflow.tasks.grading.ingest.sources import evaluation_only, streams
from rubricflow.tasks.grading.ingest.survey import drawn_in_words, gradable, shards, splits, survey

FIELD = "evaluation.target"
SHOWN = 3
"""Sets of raters, and raters of a set, that an error names."""
_RATINGS = ["response_id", "item_id", "rater_id", "rater_kind", "score"]
"""What fair scores are made of."""


class Ingested(NamedTuple):
    """What ingest writes; gradings and judgments are those of people, and those that the source recorded of a
    machine; input_warnings: what is odd about the responses."""

    items: TableRef
    responses: TableRef
    units: TableRef
    gradings: TableRef
    judgments: TableRef
    input_warnings: TableRef
    preferences: TableRef | None = None
    """Of people, where the sources hold pairs."""


@task(task_run_name=named("ingest"))
def ingest(run: Run, study: Study, base: Path, limit: int | None = None, only: tuple[str, ...] = ()) -> Ingested:
    """Read the sources, map them, cut units, and split; with a limit only so many responses of each item, or those
    named in `only`.

    The sources are read a chunk at a time, and each chunk's tables put aside until all rows are known: so nothing is
    written of bad input, and the split is drawn among all. Then they become a shard for each chunk. Where nothing may
    be fitted on the data, all of it is test data, whatever split a source gives. Where a foreign table of recorded
    replies judges, labels to calibrate on are drawn among the responses that it can grade. InputError for bad input
    (see `chunks`, `survey`, `gradable`), or a target that is no person of the sources.
    """
    if not run.done("ingest", "all"):
        sources = streams(study.data, base)
        target = study.evaluation.target
        kinds = {rater.rater: rater.kind for source, *_ in sources for rater in source.scores}
        people = sorted(rater for rater, kind in kinds.items() if kind != "replayed")
        if kinds and target not in {*OF_SEVERAL, *people}:
            rule = f"'{target}' is no rater of the sources; there are {', '.join(people) or 'none that are people'}"
            raise InputError(rule, field="evaluation.target")
        if target == FAIR and FAIR in kinds:
            rule = f"a rater of the sources is called '{FAIR}', as is the score made of all raters'; rename the rater"
            raise InputError(rule, field="evaluation.target")
        ratings = [schema(Gradings).empty_table().select(_RATINGS)]
        with aside(run.warehouse.root, "ingest") as folder:
            chunks = _Chunks(folder)
            surveyed = survey(sources, study.split, target, limit, only, chunks.put)
            foreign = study.judge.lead.foreign
            able = gradable(surveyed, foreign, base) if foreign and not foreign.order else None
            split_of = splits(surveyed, study.split, able)
            if evaluation_only(study.data):
                split_of = [side and "test" for side in split_of]
            if able is not None:
                log(drawn_in_words(surveyed, able, split_of))
            for number, tables in enumerate(shards(chunks, surveyed, split_of)):
                run.commit("ingest", f"{number:05d}", tables)
                if target == FAIR and Gradings in tables:
                    ratings.append(tables[Gradings].select(_RATINGS))
        if target == FAIR:
            rubric_of = {key: row["rubric_id"] for key, row in surveyed.items.items()}
            split_by_id = {key: side for key, side in zip(surveyed.places, split_of, strict=True) if side}
            fair = fair_gradings(pa.concat_tables(ratings), rubric_of, split_by_id, study.evaluation.random_assignment)
            run.commit("ingest", FAIR, {Gradings: fair})
        # The last shard names the others.
        last: dict[type[Row], Rows] = {Items: surveyed.items.values(), InputWarnings: list(surveyed.oddities.rows())}
        last |= {Preferences: []} if any(source.pairs for source, *_ in sources) else {}
        run.commit("ingest", "all", last | {Responses: [], Units: [], Gradings: [], Judgments: []})
    written = Ingested(
        *(run.ref(row, "ingest") for row in (Items, Responses, Units, Gradings, Judgments, InputWarnings))
    )
    has_pairs = "ingest" in run.stages(Preferences)
    return written._replace(preferences=run.ref(Preferences, "ingest")) if has_pairs else written


class _Chunks:
    """The tables of chunks, put aside in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: list[dict[type[Row], str]] = []

    def put(self, tables: Tables) -> None:
        paths = {row: str(self._folder / f"{len(self._paths)}-{row.table}") for row in tables}
        for row, table in tables.items():
            feather.write_feather(table, paths[row], compression="lz4")
        self._paths.append(paths)

    def __iter__(self) -> Iterator[Tables]:
        for paths in self._paths:
            yield {row: feather.read_table(path, memory_map=False) for row, path in paths.items()}


def warning_sentences(run: Run, warnings: TableRef) -> list[str]:
    """What ingest found odd about the responses, a sentence each."""
    rows = run.read(warnings).to_pylist()
    return [sentence(row["kind"], row["responses"], row["examples"]) for row in rows]


def fair_gradings(
    gradings: pa.Table, rubric_of: Mapping[str, str], split_of: Mapping[str, str], at_random: bool
) -> pa.Table:
    """Rows of `gradings` by the rater 'fair', one for every response that a person scored, each with its standard error
    and the number of its ratings among the signals.

    gradings: response_id, item_id, rater_id, rater_kind, score; rubric_of: item -> rubric, whose responses share their
    steps; split_of: response -> split; at_random: as in `fit`. What a calibration may learn from rests on no score of
    the test split: its responses are fitted without those, and only those of the test with all. InputError where
    raters share no responses, directly or by way of others.
    """
    rows = gradings.to_pandas()
    people = rows[(rows["rater_kind"] == "human") & rows["score"].notna()]
    people = people.assign(rubric=people["item_id"].map(rubric_of), split=people["response_id"].map(split_of))
    taught = people[people["split"] != "test"]
    scored = _scored(taught, "in the train and calibration splits", at_random)
    if len(taught) < len(people):
        tested = _scored(people, "", at_random)
        scored |= {response: row for response, row in tested.items() if split_of[response] == "test"}
    item_of = dict(zip(people["response_id"], people["item_id"], strict=True))
    same = {"rater_id": FAIR, "rater_kind": "adjudication", "sample": 0, "trait_scores": {}, "status": "scored"}
    records = []
    for response, (score, error, count) in scored.items():
        signals = {"standard_error": error, "ratings": float(count)}
        record = {"response_id": response, "item_id": item_of[response], "score": score, "signals": signals}
        records.append(same | record)
    return conform(Gradings, records)


def _scored(people: pd.DataFrame, where: str, at_random: bool) -> dict[str, tuple[float, float, int]]:
    """Response -> (fair score, its standard error, the number of its ratings)."""
    if people.empty:
        return {}
    named = {"response_id": "response", "rubric": "group", "rater_id": "rater"}
    coded = design(people.rename(columns=named))
    sets = [] if at_random else linked(coded)
    if len(sets) > 1:
        shown = [
            ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            for names in sets[:SHOWN]
        ]
        rule = f"raters fall into {len(sets)} sets that share no response {where}".rstrip()
        hint = (
            "so nobody can tell a strict rater from weak responses: let a person of each set mark responses of "
            "another, use 'mean', or say evaluation.random_assignment: true if chance decided who marked what"
        )
        more = " …" if len(sets) > SHOWN else ""
        raise InputError(f"{rule}: {'; '.join(shown)}{more}", field=FIELD, hint=hint)
    fair = fair_scores(fit(coded, at_random))
    rows = zip(fair.score.tolist(), fair.se.tolist(), fair.ratings.tolist(), strict=True)
    return dict(zip(coded.responses, rows, strict=True))
