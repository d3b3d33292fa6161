"""What notebooks and scripts call: grade a table or a study, look at the run, measure agreement, check a quote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pandas as pd

from rubricflow.flows.reports import write_pages
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats import agreement as statistics
from rubricflow.tasks.core.stats.bootstrap import bootstrap
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Run as StoredRun
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.core.text.fold import fold, folded
from rubricflow.tasks.core.text.quotes import Match, find_folded, spelled, unquoted

_ITEM_COLUMNS = ("question", "reference_answer")
_RESPONSE_COLUMNS = ("response_id", "item_id", "author_id", "text", "split")


@dataclass(frozen=True)
class Run:
    """A graded study. Its tables are Parquet files of the warehouse; `rubricflow columns` lists what they hold."""

    run_id: str
    warehouse: Path

    @property
    def scores(self) -> pd.DataFrame:
        """One row per response: scores of people, judge and machine with interval, the route, and the final score where
        it may go out."""
        return self.sql("SELECT * FROM scores ORDER BY item_id, response_id")

    @property
    def judgments(self) -> pd.DataFrame:
        """One row per criterion and response: the level decided, the quotes offered for it and what became of them."""
        return self.sql("SELECT * FROM judgments ORDER BY response_id, rater_id, criterion_id")

    def report(self) -> Path:
        """Write the report anew; returns its HTML file."""
        return write_pages(self._stored)[0]

    def sql(self, query: str, **parameters: str) -> pd.DataFrame:
        """The answer to a SELECT over the run's tables, to a table's name, or to a named question of `rubricflow sql`.

        parameters: values for a question's $names. UserError says what is wrong with the query.
        """
        answer: pd.DataFrame = ask(self._stored, query, parameters).df()
        return answer

    @property
    def _stored(self) -> StoredRun:
        return Warehouse.open(self.warehouse).run(self.run_id)


def grade(
    source: str | Path | pd.DataFrame,
    rubric: str | Path | Mapping[str, Any] | None = None,
    judge: str | Mapping[str, Any] | None = None,
    *,
    raters: Sequence[str] = (),
    folder: str | Path = "rubricflow-study",
    warehouse: str | Path | None = None,
    url: str | None = None,
    limit: int | None = None,
    **sections: Any,
) -> Run:
    """Grade a study file, or a table of responses; the same call resumes a run that was killed.

    source: a study file; or a table with the columns `question` and `text`, one row a response, and, where there are
        any, response_id, item_id, author_id, split and reference_answer.
    rubric: for a table: a file of rubrics; one rubric as such a file has it; or criterion → points, negative for what
        costs points.
    judge: the name of a language model behind `url`, or a folder of weights; or for a table the study's section
        `judge`. Without it the study's own judge, or for a table the sentence encoder, which needs no model.
    raters: columns of the table that hold people's scores.
    folder: where a table's study is written: `study.yaml`, `responses.csv`, `rubrics.yaml`.
    warehouse: where runs are kept; data/warehouse for a study file, else `warehouse` in the folder.
    limit: only so many responses of each item. sections: for a table, further sections of the study file.

    InputError names the file, field and rule that something breaks; the errors of `rubricflow grade` besides.
    """
    from rubricflow.flows.grade import grade as flow

    model = judge if isinstance(judge, str) else None
    if isinstance(source, pd.DataFrame):
        section = judge if isinstance(judge, Mapping) else {}
        source = _write_study(source, rubric, section, tuple(raters), Path(folder), sections)
        place = Path(warehouse or Path(folder) / "warehouse")
    else:
        extra = {"rubric": rubric, "judge": judge if model is None else None, "raters": raters} | sections
        if named := [name for name, value in extra.items() if value]:
            raise InputError("stands in the study file itself", file=Path(source), field=named[0])
        place = Path(warehouse or "data/warehouse")
    return Run(flow(str(source), str(place), limit=limit, model=model, url=url), place)


def _write_study(
    frame: pd.DataFrame,
    rubric: str | Path | Mapping[str, Any] | None,
    judge: Mapping[str, Any],
    raters: tuple[str, ...],
    folder: Path,
    sections: Mapping[str, Any],
) -> Path:
    """Write a table's study, its responses and, unless it is a file, its rubric; returns the study's path."""
    if missing := [name for name in ("question", "text", *raters) if name not in frame]:
        raise InputError(f"the table has no such column; it has {', '.join(map(str, frame.columns))}", field=missing[0])
    if not rubric:
        raise InputError("a table of responses needs a rubric", field="rubric")
    table = frame.reset_index(drop=True)
    defaults = {"response_id": [f"r{number}" for number in range(1, len(table) + 1)], "item_id": "item"}
    table = table.assign(**{name: value for name, value in defaults.items() if name not in table}, rubric_id="rubric")
    items = {name: name for name in ("item_id", *_ITEM_COLUMNS, "rubric_id") if name in table}
    responses = {name: name for name in _RESPONSE_COLUMNS if name in table}
    source = {
        "file": "responses.csv",
        "items": items | {"type": {"const": "short_answer"}},
        "responses": responses,
        "scores": [{"rater": name, "score": name} for name in raters],
    }
    files = {folder / "responses.csv": table[[*dict.fromkeys((*items, *responses, *raters))]].to_csv(index=False)}
    if isinstance(rubric, Mapping):
        rubrics = [dict(rubric) | {"rubric_id": "rubric"}] if "criteria" in rubric else [_plain_rubric(rubric)]
        files[folder / "rubrics.yaml"] = json.dumps({"rubrics": rubrics}, ensure_ascii=False, indent=1)
        rubric = "rubrics.yaml"
    study = {
        "name": folder.name,
        "data": {"sources": [source]},
        "rubrics": {"file": str(rubric if rubric == "rubrics.yaml" else Path(rubric).resolve())},
        **({"judge": dict(judge)} if judge else {}),
        **sections,
    }
    files[folder / "study.yaml"] = json.dumps(study, ensure_ascii=False, indent=1)  # JSON is YAML, too
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_atomically(path, text.encode())
    return folder / "study.yaml"


def _plain_rubric(points: Mapping[str, float]) -> dict[str, Any]:
    """A rubric of criteria that are met or not, by their points: the score is the sum of those that are met."""
    if not points or not all(isinstance(value, int | float) for value in points.values()):
        raise InputError("a plain rubric is criterion → points", field="rubric")
    top = sum(value for value in points.values() if value > 0)
    scale = {"min": 0, "max": top, "step": 1 if all(value == int(value) for value in points.values()) else 0.5}
    return {
        "rubric_id": "rubric",
        "title": "Rubric",
        "text": "",
        "scale": scale,
        "traits": [{"id": "content", "name": "Content", "source": "derived", **scale}],
        "criteria": [
            {
                "id": f"C{number}",
                "trait": "content",
                "kind": "gold_point" if value > 0 else "misconception",
                "text": text,
                "weight": value,
            }
            for number, (text, value) in enumerate(points.items(), 1)
        ],
    }


def agreement(
    human: npt.ArrayLike,
    machine: npt.ArrayLike,
    scale: tuple[float, float, float],
    clusters: npt.ArrayLike | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """How far two columns of scores agree: quadratic weighted kappa, exact and adjacent agreement, errors, correlation.

    human, machine: (n,) finite scores; scale: (lowest, highest, step). clusters: (n,) whose responses belong together,
    such as authors, which are resampled whole; where not given each response for itself.
    Returns one row a statistic: value, low and high (95 % cluster bootstrap), n; no value where it is undefined.
    ValueError where lengths differ, a score is not finite or lies outside the scale.
    """
    low, high, step = scale
    first, second = statistics.checked_pair(human, machine)
    intervals = bootstrap(first, second, range(len(first)) if clusters is None else clusters, scale, draws, seed)
    values = {
        "qwk": statistics.qwk(first, second, low, high, step),
        "exact": statistics.exact_agreement(first, second, low, high, step),
        "within_1": statistics.adjacent_agreement(first, second, low, high, step),
        "mae": statistics.mae(first, second),
        "bias": statistics.bias(first, second),
        "pearson": statistics.pearson(first, second),
    }
    rows = {name: (stat.value, intervals[name].low, intervals[name].high, len(first)) for name, stat in values.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high", "n"])


def verify_quote(quote: str, text: str) -> Match | None:
    """Where a quote stands in a text, or None where it does not.

    It stands as it is, or with other case, marks or spaces (`spelling`); ellipses may leave out what is short and holds
    no negation. `pieces` are the spans [start, end) in the text, `span` is all of it.
    """
    bare = unquoted(quote)
    match = find_folded(folded(bare), fold(text))
    return match._replace(spelling=spelled(bare, match, text)) if match else None
