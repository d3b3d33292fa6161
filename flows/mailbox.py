"""The command `batch`: a run whose requests are written to files, and whose replies somebody brings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
    arguments,
)
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.llm.budget import BudgetSpent, budget_of
from rubricflow.tasks.core.llm.mailbox import Noted, Outbox, WaitingForReplies, collecting
from rubricflow.tasks.core.llm.mailbox_files import PLAIN
from rubricflow.tasks.core.llm.mailbox_folder import ANSWERS, Mailbox, in_words, opened
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.llm.submit import Batches, MailboxBudget, open_batches
from rubricflow.tasks.core.llm.submit import submit as send_all
from rubricflow.tasks.core.monitor.runs import credential
from rubricflow.tasks.core.store.warehouse import Warehouse

Work = Literal[
    "grade", "annotate", "graph", "reward", "faithful", "train", "edit", "propose", "check", "revise", "rehearse"
]
Provider = Literal["openai", "anthropic", "gemini"]
FormName = Literal["plain", "openai", "anthropic", "gemini"]


_FILES = {"train": "bottleneck", "check": "rubric", "revise": "rubric"}
"""A kind of work → its file in flows, where that is not called as the work is."""
_FUNCTIONS = {"train": "bottleneck"}
"""The same of its function."""
_WITH_ENGINE = ("grade", "annotate", "graph", "reward")
"""Whose functions take who waits for models."""


def batch(
    study: StudyFile,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Write what the run would ask next into this folder.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Take the answers in that lie there, and write what is open then."
        ),
    ] = None,
    form: Annotated[
        FormName | None, typer.Option(help="In whose form requests are written; as before, or plain, if not given.")
    ] = None,
    submit: Annotated[
        Provider | None,
        typer.Option(help="Send the requests as batches, wait for them, take them in, and so on to the run's end."),
    ] = None,
    work: Annotated[Work, typer.Option(help="The command whose requests these are.")] = "grade",
    model: Annotated[
        str | None, typer.Option(help="The model in place of the study's judge, by its provider's name; grading only.")
    ] = None,
    limit: Limit = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> None:
    """Writes requests, takes answers in, and finishes the run when nothing is open. UserError for a folder that is not
    named, or named twice; BudgetSpent where nothing is under way and no more is paid for."""
    folder = from_ or to
    if folder is None or (from_ and to and from_ != to):
        raise UserError("name one folder: --to FOLDER for a new mailbox, --from FOLDER where answers are")
    if from_ is not None and not from_.is_dir():
        raise InputError("there is no such mailbox", file=from_, hint="rubricflow batch STUDY --to FOLDER makes one")
    if submit is not None and form not in (None, submit):
        raise UserError(f"--form {form} is not what {submit} takes: leave it out")
    run = _run_of(work, study, folder, warehouse, limit, model)
    batches: Batches | None = None
    while True:
        with opened(folder) as mailbox, open_replies(Warehouse.open(warehouse).replies) as replies:
            noted = _taken_in(run, mailbox, replies)
            last = mailbox.files[-1].form if mailbox.files else PLAIN
            budget = MailboxBudget(mailbox, budget_of(token_budget, budget_usd), noted)
            written_in = submit or form or last
            paid = budget.pays_for(mailbox.to_ask(noted), written_in)
            for file in mailbox.write_wave(paid, written_in):
                print(f"{folder / file.name}: {in_words(file, noted)}")
            under_way = mailbox.under_way(noted)
            to_send = budget.sends([file for file in under_way if file.form == submit])
            if not noted or submit is None or not to_send:
                break
            if batches is None:
                engine = noted[to_send[0].digests[0]].engine
                # The key of another server is nothing for this provider.
                batches = open_batches(submit, credential(engine.key) if engine.provider == submit else None)
            send_all(mailbox, to_send, submit, batches, print)
    if budget.lacks and (submit or not under_way):
        raise BudgetSpent(budget.lacks)
    if budget.lacks:
        print(budget.lacks)
    if noted:
        given: dict[str, object] = {"--work": work if work != "grade" else None, "--model": model, "--from": folder}
        given |= {"--token-budget": token_budget, "--budget-usd": budget_usd}
        words = [f"{name} {value}" for name, value in given.items() if value is not None]
        next_command = " ".join(["rubricflow batch", arguments(study, warehouse, limit), *words])
        print(f"put the answers into {folder / ANSWERS}, then: {next_command}")


def _taken_in(run: Callable[[], Any], mailbox: Mailbox, replies: Replies) -> Noted:
    """What is open after the run was given all answers that are there; nothing where it has come to its end. Says what
    is odd about them, and what is waited for."""
    outbox = _collected(run, mailbox)
    while outbox and mailbox.take(outbox.noted, replies):
        outbox = _collected(run, mailbox)
    noted = outbox.noted if outbox else {}
    for line in mailbox.notes(noted, replies):
        print(line)
    for name, count in mailbox.missing(noted).items():
        print(f"{name}: {count:,} of its requests have no answer, and are asked again")
    for file in mailbox.under_way(noted):
        print(f"{file.name}: no answer yet to its {len(file.digests):,} requests")
    return noted


def _collected(run: Callable[[], Any], mailbox: Mailbox) -> Outbox | None:
    """What the run asks now; None where it has come to its end."""
    outbox = Outbox(mailbox.errors)
    try:
        with collecting(outbox):
            run()
    except WaitingForReplies:
        return outbox
    return None


def _run_of(
    work: Work, study: str, folder: Path, warehouse: str, limit: int | None, model: str | None
) -> Callable[[], Any]:
    """The command's function with what it takes. InputError for what it does not take."""
    given: Record = {"warehouse": warehouse}
    if work in ("propose", "revise"):
        given["to"] = folder / "proposed.yaml"
    if work in ("check", "revise"):
        given["ask"] = True
    if work != "propose":
        given["limit"] = limit
    if work in _WITH_ENGINE:
        given["engine"] = "local"
    elif load_study(Path(study)).run.engine != "local":
        raise InputError("a mailbox is filled by one process; take engine: local", file=study, field="run.engine")
    if model is not None:
        if work != "grade":
            raise InputError(f"--work {work} asks whom the study names", field="--model")
        given |= {"model": model, "url": Engine(model=model).urls[0]}
    file = import_module(f"rubricflow.flows.{_FILES.get(work, work)}")
    return partial(getattr(file, _FUNCTIONS.get(work, work)), study, **given)
