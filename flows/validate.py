"""The commands `validate` and `plan`: a study checked without a model, what it would ask, and what that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, StudyFile, WarehouseFolder, print_rows
from rubricflow.flows.plan import plan
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice, is_free, is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.engine import MOST_LOGPROBS
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.verdict import release_needs
from rubricflow.tasks.core.llm.backends.replay import read_recording
from rubricflow.tasks.core.llm.budget import unpriced
from rubricflow.tasks.core.llm.foreign import foreign_rows
from rubricflow.tasks.core.llm.opening import cpu_warnings, this_machine
from rubricflow.tasks.core.llm.prices import price_of
from rubricflow.tasks.core.llm.reply_store import are_there, open_replies
from rubricflow.tasks.core.llm.request import digest
from rubricflow.tasks.core.stats.promise import MarkedAnswers
from rubricflow.tasks.core.store.objects import MARKER
from rubricflow.tasks.core.store.ordered import read_marked
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.cascade.task import DOLLARS
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN
from rubricflow.tasks.grading.ingest.sources import read_as
from rubricflow.tasks.grading.ingest.task import ingest, warning_sentences
from rubricflow.tasks.grading.judge.costs import NOBODY, Servers, cost_range, cost_rows, costs, workload
from rubricflow.tasks.grading.judge.grade import asked_about, asks_nobody, expected_requests, first_requests
from rubricflow.tasks.grading.judge.protocol import CHARACTERS_PER_TOKEN
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rater import rater, widest
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.grading.judge.stored_cases import cases_of
from rubricflow.tasks.grading.judge.teaching import People, teaching_of
from rubricflow.tasks.grading.lock.bundles import asks, unexplained
from rubricflow.tasks.grading.lock.task import fit, lock
from rubricflow.tasks.rewards.graph.project import read_votes
from rubricflow.tasks.rewards.graph.subject import authored, subjects

Finding = tuple[str, str, str]
"""(kind, what, message) with kind 'ok', 'warning' or 'wrong'."""


def validate(study: StudyFile, limit: Limit = None, warehouse: WarehouseFolder = DEFAULT_WAREHOUSE) -> None:
    """Prints every finding; UserError where something is wrong."""
    problems = 0
    for kind, label, message in prove(Path(study), limit, Path(warehouse)):
        problems += kind == "wrong"
        print(f"{kind:8} {label}: {message}")
    if problems:
        raise UserError(f"{study}: {problems} problem{'s' if problems > 1 else ''}")


def plan_costs(
    study: StudyFile,
    replicas: Annotated[int, typer.Option(min=1, help="Servers of the model, side by side.")] = 1,
    tokens_per_second: Annotated[
        float, typer.Option(min=1, help="Tokens that each works through a second, prompts and replies together.")
    ] = 2000,
    error: Annotated[
        float | None,
        typer.Option(min=0.001, max=0.5, help="Propose a cascade of the judges of finished runs that errs so often."),
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option("--budget-usd", min=0.0001, help="And whose judging costs no more than that.")
    ] = None,
    limit: Limit = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Prints what judging takes or, with an error or a budget, which cascade to make; UserError if nothing tells."""
    if error is not None or budget_usd is not None:
        from rubricflow.flows.proposal import proposal

        read_study = load_study(Path(study))
        most = read_study.release.risk if error is None else error
        print_rows(["what", "how much", "by what"], [*proposal(read_study, warehouse, most, budget_usd)])
        return
    rows = []
    _, readings = _readings(Path(study), limit)
    for name, read in readings.items():
        judge = read.study.judge
        servers = Servers(replicas, tokens_per_second, judge.engine)
        for what, how_much, basis in costs(workload(read.cases, judge.samples, replicas), servers):
            rows.append((f"{name}: {what}" if name else what, how_much, basis))
    for who, judge, cases in _askers(readings, Path(study), limit):
        rows += cost_rows(cost_range(cases, judge), who)
    print_rows(["what", "how much", "by what"], rows)


def planned_calls(study_file: Path, limit: int | None = None) -> list[tuple[str, int, int, int, int]]:
    """(item, with its juror where there are several, responses, settled without a call, calls, prompt tokens at four
    characters each); sums in the last row."""
    rows: list[tuple[str, int, int, int, int]] = []
    for name, read in _readings(study_file, limit)[1].items():
        for item, _, cases in read.items:
            settled = sum(map(asks_nobody, cases))
            requests = [request for case in asked_about(cases) for request in expected_requests(case, NOBODY)]
            tokens = sum(request.prompt_length for request in requests) // CHARACTERS_PER_TOKEN
            label = f"{item['item_id']}, {name}" if name else item["item_id"]
            rows.append((label, len(cases), settled, len(requests), tokens))
    responses, settled, calls, tokens = (sum(column) for column in zip(*(row[1:] for row in rows), strict=True))
    return [*rows, ("all", responses, settled, calls, tokens)]


def prove(study_file: Path, limit: int | None = None, warehouse: Path | None = None) -> Iterator[Finding]:
    """What is well and what is not; broken data and rubrics raise when they are read.

    warehouse: where the study's run is kept, for the rubrics that it has locked already, the run that its judge keeps
    of, and the replies that it replays.
    """
    # A folder without its marker is left as it is: validating makes no warehouse.
    is_there = warehouse is not None and (warehouse / MARKER).exists()
    opened = Warehouse.open(warehouse) if warehouse is not None and is_there else None
    (read, readings), base = _readings(study_file, limit, opened), study_file.parent
    study = read.study
    for file, words in read_as(study.data, base).items():
        yield "ok", file, f"read as {words}"
    yield "ok", "data", f"{len(read.items)} items, {len(read.cases)} responses"
    yield from (("warning", "answers", words) for words in read.warnings)
    if study.releases:
        yield from release_needs(study, read.marked)
    if read.guessed:
        yield "warning", "rubrics", "made by rules of thumb here; the judge's model makes them when the study is graded"
    yield from _graphs(read, base)
    yield from _rubrics(read)
    for name, reading in readings.items():
        judge = reading.study.judge
        of = f"{name}: " if name else ""
        if study.judge.cost_limit is not None and not is_free(judge) and price_of(judge.engine) is None:
            yield "wrong", f"{of}judge.cost_limit", str(unpriced(name, **DOLLARS))
        if judge.foreign:
            yield "ok", f"{of}recorded replies", f"{len(foreign_rows(judge.foreign, base))} replies"
        yield from ((kind, of + what, words) for kind, what, words in _earlier_runs(judge, base, opened, reading.cases))
        yield from ((kind, of + what, words) for kind, what, words in _engines(reading, base))
        yield from _bundles(reading, f"{of}item")
    for who, judge, of_judge in _askers(readings, study_file, limit):
        yield from (("ok", what, f"{usd}; {basis}") for what, usd, basis in cost_rows(cost_range(of_judge, judge), who))
    if study.annotation:
        yield from _bundles(_read_study(study_file, limit, {"": study.annotation.asked})[""], "annotators, item")


def _readings(
    study_file: Path, limit: int | None, warehouse: Warehouse | None = None
) -> tuple[StudyToValidate, dict[str, StudyToValidate]]:
    """The study, and as each of its jurors judges it, by name; with the empty name where one judge does."""
    jurors = load_study(study_file).judge.jurors
    read = _read_study(study_file, limit, {"": None, **{name: jurors[name] for name in jurors if name}}, warehouse)
    whole = read.pop("")
    return whole, read or {"": whole}


def _askers(
    readings: Mapping[str, StudyToValidate], study_file: Path, limit: int | None
) -> Iterator[tuple[str, Judge, list[Case]]]:
    """(who, as what judge, about which cases) of all that a model is asked for every response."""
    for name, read in readings.items():
        study = read.study
        if BACKENDS[study.judge.backend].needs == "engine":
            yield f"juror {name}" if name else "judging", study.judge, read.cases
    if study.evaluation.judge:
        jurors = study.evaluation.judge.jurors.items()
        paid = {name: judge for name, judge in jurors if BACKENDS[judge.backend].needs == "engine"}
        for name, of in _read_study(study_file, limit, paid).items() if paid else ():
            yield f"evaluation {name}".strip(), of.study.judge, of.cases
    if study.annotation is None:
        return
    asking = [name for name, one in study.annotation.annotators.items() if BACKENDS[one.backend].needs == "engine"]
    cases = _read_study(study_file, limit, {"": study.annotation.asked})[""].cases if asking else []
    for name in asking:
        yield f"annotator {name}", study.annotation.judge(name), cases


def _earlier_runs(judge: Judge, base: Path, warehouse: Warehouse | None, cases: list[Case]) -> Iterator[Finding]:
    """On the run that the judge keeps of, and on the replies that it replays, from a file or from the store."""
    if judge.keep is not None:
        runs = warehouse.runs() if warehouse else []
        if judge.keep in runs:
            yield "ok", "judge.keep", f"run '{judge.keep}' is in the warehouse"
        else:
            yield "wrong", "judge.keep", f"no finished run '{judge.keep}'; there are {', '.join(runs) or 'none'}"
    if judge.replies is None and (judge.backend != "replay" or judge.foreign is not None):
        return
    in_store = judge.replies is None and warehouse is not None and are_there(warehouse.replies)
    with open_replies(warehouse.replies if warehouse and in_store else ":memory:") as store:
        rater_of_judge = rater(judge, base, store)
        model = rater_of_judge.backend.model
        requests = [request for case in asked_about(cases) for request in first_requests(case, rater_of_judge)]
        digests = {digest(request, model) for request in requests}
        stored = len(store.get_many(digests))
    if judge.replies is None:
        what = f"{stored} of {len(digests)} first calls are in the reply store"
        yield "ok" if stored else "wrong", "recorded replies", what
        return
    recording = read_recording(base / judge.replies)
    missing = [request for request in requests if digest(request, model) not in recording]
    if missing and not (judge.rubric_memory or judge.consistency_memory):  # what memory shows is not known yet
        refusal = recording.refuse(missing, len(requests), recording.speaker(judge.model))
        yield "wrong", "recorded replies", refusal.rule
    else:
        said = f"{len(requests)} first calls are in {base / judge.replies}: {recording.header.in_words}"
        yield "ok", "recorded replies", said


def _graphs(read: StudyToValidate, base: Path) -> Iterator[Finding]:
    """What people wrote about graphs: the graphs and the votes; broken ones raise."""
    settings = read.study.graph
    bundles = {item["rubric_id"]: bundle for item, bundle, _ in read.items}
    rubric_subjects = subjects((item for item, *_ in read.items), bundles)
    written = authored(base / settings.file, rubric_subjects) if settings.file else {}
    for name, graph in written.items():
        yield "ok", f"graph of rubric {name}", f"{len(graph.graph.edges)} edges, no circle"
    if settings.votes:
        yield "ok", "votes on graphs", f"{len(read_votes(base / settings.votes, rubric_subjects))} votes"


def _rubrics(read: StudyToValidate) -> Iterator[Finding]:
    """Each remark once, with all the rubrics that it is about, and where a file that `init` drafted still waits for
    words; wrong where a language model would have to guess."""
    judges = read.study.judge.jurors.values()
    serious = "wrong" if any(is_generative(judge) and judge.foreign is None for judge in judges) else "warning"
    bundles = {bundle.bundle_id: bundle for _, bundle, _ in read.items}.values()
    blind = {remark.text for bundle in bundles for remark in unexplained(bundle) if remark.blind}
    for remark in dict.fromkeys(remark for _, remark in read.lint):
        names = [name for name, said in read.lint if said == remark]
        label = f"rubric {names[0]}" if len(names) == 1 else f"rubrics {', '.join(names)}"
        yield serious if remark in blind else "warning", label, remark
    for item, bundle, _ in read.items:
        if UNWRITTEN in item["question"]:
            yield serious, f"question {item['item_id']}", f"its wording still says {UNWRITTEN}"
        if any(UNWRITTEN in text for text in (bundle.text, *(criterion.text for criterion in bundle.criteria))):
            yield serious, f"rubric {item['rubric_id']}", f"it still says {UNWRITTEN}: say what a full answer says"


def _engines(read: StudyToValidate, base: Path) -> Iterator[Finding]:
    """Whether a model reports fewer alternatives of a token than a decision has values, and settings of the study's
    models that do harm on this machine."""
    study = read.study
    engine = study.judge.engine
    most = max((widest(bundle) for _, bundle, _ in read.items), default=0)
    if engine and 0 < engine.logprobs < min(most, MOST_LOGPROBS):
        shortfall = f"{engine.logprobs} alternatives of a decision that has up to {most} values"
        yield "warning", "log-probabilities", f"{shortfall}; set judge.engine.logprobs: {min(most, MOST_LOGPROBS)}"
    models: dict[str, Choice] = {"judge": study.judge, "graph": study.graph}
    models["judge, repairs"] = study.judge.model_copy(update={"engine": study.judge.repair_engine})
    for name, annotator in study.annotation.annotators.items() if study.annotation else ():
        models[f"annotator {name}"] = annotator
    for name, choice in models.items():
        yield from (("warning", name, line) for line in cpu_warnings(choice, base, this_machine()))


def _bundles(read: StudyToValidate, label: str) -> Iterator[Finding]:
    for item, bundle, _ in read.items:
        name = f"{label} {item['item_id']}"
        problems = prove_bundle(bundle, item["question"], item["context"], item["reference_answer"])
        yield from (("wrong", name, problem) for problem in problems)
        if not problems:
            yield "ok", name, f"bundle {bundle.bundle_id[:12]}: prompt, contract and verifier hold"


class StudyToValidate(NamedTuple):
    """Items with their bundles and cases."""

    study: Study
    items: list[tuple[Record, Bundle, list[Case]]]
    lint: list[tuple[str, str]]
    """(rubric, remark)."""
    guessed: bool
    """Whether its rubrics will be made by a model, which is not asked here."""
    warnings: list[str]
    """What is odd about the responses."""
    marked: list[MarkedAnswers]
    """Of every item."""

    @property
    def cases(self) -> list[Case]:
        """Those of all items."""
        return [case for *_, cases in self.items for case in cases]


def _read_study(
    study_file: Path, limit: int | None, judges: Mapping[str, Judge | None], warehouse: Warehouse | None = None
) -> dict[str, StudyToValidate]:
    """The study by each of some judges, by name, ingested once. judges: None for the study's own; warehouse: where its
    run may have locked rubrics that a model made."""
    whole, base = load_study(study_file), study_file.parent
    with TemporaryDirectory() as folder:
        validation = Warehouse.open(Path(folder) / "validation")
        data = ingest.fn(validation.run("ingest"), whole, base, limit)
        read = {}
        for number, (name, judge) in enumerate(judges.items()):
            run, study = validation.run(f"judge-{number}"), whole.model_copy(update={"judge": judge or whole.judge})
            by_model = asks(study.rubrics) and BACKENDS[study.judge.lead.backend].reads_prose
            before: list[Record] = []
            if by_model:
                lead = study.judge.lead.model_copy(update={"backend": "embedded"})
                study = study.model_copy(update={"judge": lead})
                own = plan(study_file, warehouse.root, limit).run if warehouse and judge is None else None
                before = own.table(Bundles, "lock").to_pylist() if own and own.done("lock", "all") else []
            locked = lock.fn(run, study, base, data.items, data.responses, data.gradings, data.judgments)
            if study.releases:
                fit.fn(run, study, base, data.items, data.gradings, locked.bundles)
            bundles = {row["rubric_id"]: row for row in before or run.read(locked.bundles).to_pylist()}
            people = People(data.gradings, data.judgments, study.evaluation.target)
            teaching = teaching_of(run, study.judge.examples, data.items, data.responses, locked.bundles, people)
            items = []
            for item in sorted(run.read(data.items).to_pylist(), key=lambda row: say.in_order(row["item_id"])):
                row = bundles[item["rubric_id"]]
                cases = teaching(cases_of(run, data.responses, item, row))
                items.append((item, Bundle.model_validate_json(row["content"]), cases))
            rubrics = run.read(locked.rubrics).to_pylist()
            read[name] = StudyToValidate(
                study=study,
                items=items,
                lint=[(row["rubric_id"], remark) for row in rubrics for remark in row["lint"]],
                guessed=by_model and not before,
                warnings=warning_sentences(run, data.input_warnings),
                marked=read_marked(run, data.responses, data.gradings, study.evaluation.target),
            )
        return read
