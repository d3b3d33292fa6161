"""The command `label`: the review page on answers of a log or of a graded study that people are to label, drawn so that
the labels both teach and vouch. No Prefect run: people take their time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    Browser,
    Criterion,
    LogFolder,
    PageAddress,
    Port,
    Reviewers,
    WarehouseFolder,
)
from rubricflow.flows.grade import grade
from rubricflow.flows.log_study import labelled_log, study_place, write_study
from rubricflow.flows.next_labels import propose_labels
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.verdict import needs_of
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.ordered import read_marked
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.formulas import csv_text, guarded
from rubricflow.tasks.core.web.server import serve
from rubricflow.tasks.grading.calibrate.next_labels import drawable, read_items
from rubricflow.tasks.grading.judge.evidence import explanations
from rubricflow.tasks.grading.logs.study import response_ids, study_of
from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Board, Shows, Vouching
from rubricflow.tasks.people.review.ledger import acts_of, ledger_file
from rubricflow.tasks.people.review.settle import live_acts
from rubricflow.tasks.people.review.waiting import open_board

COLUMNS = ("answer_id", "criterion", "rater", "score", "split", "probability")
"""Of the file of labels. split: 'chosen' where an answer was labelled because it teaches most; probability: with which
an answer that was drawn by chance was drawn, empty for the others."""
LogCases = dict[str, Record]
"""Response → answer_id, criterion, case_id and question, as the log has them; empty for a study that is no log's."""
_WHY = {
    "drawn": "drawn by chance: its label vouches for others, too",
    "chosen": "chosen: its label teaches most",
    None: "voted on before",
}


def label(
    logs: Annotated[
        list[Path], typer.Argument(help="The log: a file, several, or their folder; or the file of a graded study.")
    ],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels that people gave before; they go into --to, too.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Where the labels are written; LOG.labels.csv if not given.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many answers are asked about.")] = 20,
    show: Annotated[
        Shows, typer.Option("--show", help="What is seen of the judge before a vote: its verdict, its words, nothing.")
    ] = "explanation",
    criterion: Criterion = None,
    study: LogFolder = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    host: PageAddress = "127.0.0.1",
    port: Port = 8765,
    reviewer: Reviewers = None,
    browser: Browser = True,
) -> None:
    """Serves the page until it is stopped. The file of labels is whole after every case that is submitted, and
    `calibrate LOG --labels` and `mean LOG --labels` read it."""
    access = Access(host, port, tuple(reviewer or ()))
    is_study = len(logs) == 1 and logs[0].suffix in (".yaml", ".yml")
    to = to or logs[0].with_name(f"{logs[0].stem}.labels.csv")
    earlier = pd.DataFrame(columns=[*COLUMNS, "response_id"])
    if is_study:
        if labels is not None:
            raise InputError("the labels of a study are in its data", field="--labels", hint="leave --labels out")
        file, names = logs[0], LogCases()
    else:
        if labels is None and to.exists() and len(to.read_bytes().splitlines()) > 1:
            labels = to  # written by this command before
        file, names, earlier = prepared(logs, labels, criterion, study)
    grade(study=str(file), warehouse=warehouse)
    proposed = propose_labels(file, warehouse, None, count)
    settings = load_study(file)
    order = drawable(read_items(proposed.run, settings), settings.split.seed)
    place = ledger_file(Path(warehouse)).parent
    chosen = {row["response_id"] for row in proposed.rows if row["sampled"] == "chosen"}
    save = partial(write_labels, to, place, settings.name, order, chosen, names, earlier)
    print(*proposed.told, sep="\n")
    print(f"{save():,} labels in {to}")
    labelled = {*earlier["response_id"]}
    board = labelling_board(proposed.run, settings, file.parent, proposed.rows, Path(warehouse), show, labelled, names)
    for name, link in access.links().items():
        print(f"{name}: {link}")
    if not reviewer:
        print(f"label: {access.url()} (Ctrl-C stops it; the same command goes on)")
    serve(create_app(board, ledger_file(Path(warehouse)), access, on_stored=save), host, port, browser and not reviewer)


def prepared(
    logs: Sequence[Path], labels: Path | None, criterion: str | None, folder: Path | None
) -> tuple[Path, LogCases, pd.DataFrame]:
    """The study of a log with the labels that there are, as `calibrate` writes it; its responses as the log has them;
    and these labels, with the response that each is of."""
    log, people = labelled_log(logs, labels, criterion)
    folder, name = study_place(logs, folder)
    file = write_study(study_of(log, people, name), folder, log)
    several = len(log.scales) > 1
    rows = log.verdicts.assign(response_id=response_ids(log.verdicts, several))
    first = rows.drop_duplicates("response_id").set_index("response_id")
    told = first[["answer_id", "criterion", "case_id", "question"]].to_dict("index")
    names: LogCases = {str(name): {str(key): value for key, value in case.items()} for name, case in told.items()}
    people = people.reindex(columns=[*COLUMNS]).assign(response_id=response_ids(people, several))
    return file, names, people


def labelling_board(
    run: Run,
    settings: Study,
    base: Path,
    rows: Sequence[Record],
    warehouse: Path,
    show: Shows,
    labelled: Collection[str],
    names: LogCases,
) -> Board:
    """The board of what is proposed, and of what was voted on before, so that nothing of it is lost from sight.
    labelled: the responses of which the study has labels; names: of a log, see `LogCases`."""
    sampled: dict[str, str] = {row["response_id"]: row["sampled"] for row in rows}
    known = set(run.table(Responses, "ingest", ["response_id"])["response_id"].to_pylist())
    voted = [act.response_id for act in acts_of(warehouse, settings.name) if act.kind == "vote"]
    asked = [name for name in dict.fromkeys([*voted, *sampled]) if name in known]
    if not asked:
        raise InputError(f"no answer of {settings.name} is left to label")
    waiting = [
        {"response_id": name, "criteria": [], "subject_kind": "score", "why": _WHY[sampled.get(name)]} for name in asked
    ]
    board = open_board(run, settings, waiting, {"judge": run.ref(Judgments, "judge")}, None)
    marked = read_marked(run, run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"), settings.evaluation.target)
    needs = needs_of(settings.release, marked)
    release = settings.release
    foreign = settings.judge.lead.foreign
    said = explanations(foreign, base) if foreign and foreign.explanation else {}
    drawn = {name for name in asked if sampled.get(name) != "chosen" and name not in labelled}
    cases = [replace(case, student=None) for case in board.cases]  # who labels is not to know whose it is
    if len({case["question"] for case in names.values()}) > 1 or any(not case["question"] for case in names.values()):
        # The log's criteria are the study's questions: those of its cases are shown, and the same words to another one
        # are another decision.
        told = [(case, names[case.response_id]) for case in cases]
        cases = [replace(case, question=of["question"] or case.question, item_id=of["case_id"]) for case, of in told]
    return replace(
        board,
        cases=tuple(cases),
        shows=show,
        explanations={name: text for (name, sample), text in said.items() if not sample},
        vouching=Vouching(
            needed=sum(need.needed for need in needs),
            here=sum(need.counting for need in needs),
            drawn=frozenset(drawn),
            promise=f"at most {say.rate(release.risk)} wrong at {say.rate(release.confidence)} confidence",
        ),
    )


def write_labels(
    to: Path,
    warehouse: Path,
    study: str,
    order: Sequence[str],
    chosen: Collection[str],
    names: LogCases,
    earlier: pd.DataFrame,
) -> int:
    """Write all labels, those from before and those of the page; returns how many there are.

    order: all answers that may be drawn, in the order by chance in which they are; chosen: those that were asked about
    because they teach most. Drawn are all up to the first that nobody has looked at, whether or not they were chosen,
    without the last that was not: where people stop there it is never a chosen one, and without it the others stand for
    all (Haldane 1945). Drawn are labels from before, too, that are not called chosen. Each had the same chance: their
    share of all answers.
    """
    scores = dict[tuple[str, str], str]()
    looked_at = set[str](earlier["response_id"])
    acts, _ = live_acts(acts_of(warehouse, study))
    submitted = {(act.response_id, act.rater_id) for act in acts if act.kind == "submit"}
    for act in acts:
        if act.kind == "vote" and act.criterion_id is None and (act.response_id, act.rater_id) in submitted:
            looked_at.add(act.response_id)
            scores.pop((act.response_id, act.rater_id), None)
            if act.numeric_value is not None:
                scores[act.response_id, act.rater_id] = f"{act.numeric_value:g}"
    taught = {*chosen, *earlier.loc[earlier["split"] == "chosen", "response_id"]}
    end = next((place for place, name in enumerate(order) if name not in looked_at), len(order))
    if end < len(order):
        end = max((place for place in range(end) if order[place] not in taught), default=0)
    drawn = {*order[:end], *earlier.loc[earlier["split"] != "chosen", "response_id"]}
    chance = len(drawn) / len(order) if order else None
    rows = [COLUMNS]
    for row in earlier.to_dict("records"):
        scores.setdefault((row["response_id"], row["rater"]), f"{row['score']:g}")
    for (name, rater), score in sorted(scores.items()):
        answer, criterion = (names[name][key] for key in ("answer_id", "criterion")) if name in names else (name, "")
        how = ("", f"{chance:.9g}") if name in drawn else ("chosen", "")
        rows.append((guarded(answer), guarded(criterion), guarded(rater), score, *how))
    if len(rows) > 1 or to.exists():
        write_atomically(to, csv_text(rows).encode())
    return len(rows) - 1
