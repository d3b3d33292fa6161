"""The commands that run a flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricflow.flows.command_line import HOUSE
from rubricflow.flows.commands.options import Address, EngineName, Limit, StudyFile, TokenBudget, WarehouseFolder
from rubricflow.flows.terminal import for_people, print_rows
from rubricflow.tasks.core.contracts.errors import UserError


def grade(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    token_budget: TokenBudget = None,
    model: Annotated[
        str | None, typer.Option(help="A language model in place of the study's judge: a name, or a folder of weights.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The OpenAI-compatible server that has it; without it vLLM loads it here.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A further field of what the model is asked, as JSON or text; repeat."),
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(help="A further study file over the same responses whose agreement stands beside.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every table of the summary.")] = False,
    engine: EngineName = None,
    address: Address = None,
) -> None:
    """Grade a study: ingest, lock, judge, calibrate, evaluate. A killed run continues where it stopped."""
    with for_people():
        if dry_run:
            from rubricflow.flows.validate import planned_calls

            print_rows(
                ["item", "responses", "settled without a call", "calls", "prompt tokens, roughly"],
                planned_calls(study, limit),
            )
            return
        from rubricflow.flows.checks import check_extras

        options = _typed(option or [])
        check_extras("grade", study, engine, model, url, beside)
        from rubricflow.flows.grade import grade as flow

        other = str(beside) if beside else None
        flow(
            str(study),
            str(warehouse),
            limit,
            token_budget,
            model,
            url,
            other,
            verbose,
            engine,
            address,
            options,
        )


def _typed(options: list[str]) -> dict[str, Any]:
    """KEY=VALUE by key; a value that is JSON has its type, any other is a text."""
    typed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key.strip() or not equals or key.strip() in typed:
            raise UserError(f"--option {option}: it is KEY=VALUE, each key once")
        try:
            typed[key.strip()] = json.loads(value)
        except ValueError:
            typed[key.strip()] = value
    return typed


def graph(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    token_budget: TokenBudget = None,
    engine: EngineName = None,
    address: Address = None,
) -> None:
    """Build and draw the graphs of a study's rubrics: which criterion licenses which. No response is looked at."""
    with for_people():
        from rubricflow.flows.checks import check_extras

        check_extras("graph", study, engine)
        from rubricflow.flows.graph import graph as flow

        flow(str(study), str(warehouse), limit, token_budget, engine, address)


def reward(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    token_budget: TokenBudget = None,
    engine: EngineName = None,
    address: Address = None,
) -> None:
    """Reward a study's responses with and without the dependencies of the criteria, and say what leaks."""
    with for_people():
        from rubricflow.flows.checks import check_extras

        check_extras("reward", study, engine)
        from rubricflow.flows.reward import reward as flow

        flow(str(study), str(warehouse), limit, token_budget, engine, address)


def serve(
    source: Annotated[Path, typer.Argument(help="The study file (YAML), or a rubric list (JSONL).")],
    aggregation: Annotated[
        str, typer.Option(help="How a reward is put together: gear, flat, hard_verdict, …")
    ] = "gear",
    judge: Annotated[
        str | None, typer.Option(help="Of a rubric list: a model by its server's name for it, or 'embedded'.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The OpenAI-compatible server that has the judge.")] = None,
    record: Annotated[
        str | None, typer.Option(help="Write every batch into this run of the warehouse, for `report`.")
    ] = None,
    judged_twice: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the rollouts that are judged a second time, for the curves.")
    ] = 0.05,
    host: Annotated[
        str, typer.Option(help="The address to bind; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8321,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer whoever can open a connection on this machine.")
    ] = False,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Serve rewards to trainers: one judge, one reply store and one limit for all of them. See rubricflow.client."""
    with for_people():
        from rubricflow.flows.checks import check_aggregation
        from rubricflow.flows.serve import serve as answer

        how = check_aggregation(aggregation)
        answer(source, warehouse, how, host, port, judge, url, record, judged_twice, no_token)


def annotate(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    token_budget: TokenBudget = None,
    engine: EngineName = None,
    address: Address = None,
) -> None:
    """Label the concepts of a study's responses by two annotators, and queue what people should look at."""
    with for_people():
        from rubricflow.flows.checks import check_extras

        check_extras("annotate", study, engine)
        from rubricflow.flows.annotate import annotate as flow

        flow(str(study), str(warehouse), limit, token_budget, engine, address)


def adjudicate(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    token_budget: TokenBudget = None,
    engine: EngineName = None,
    address: Address = None,
) -> None:
    """Settle a study's labels by what people have said until now, and compare raters before and after."""
    with for_people():
        from rubricflow.flows.annotate import settle as flow

        flow(str(study), str(warehouse), limit, token_budget, engine, address)


def train(
    study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None, token_budget: TokenBudget = None
) -> None:
    """Train the bottleneck graders of a study, compare them, and export the first."""
    with for_people():
        from rubricflow.flows.checks import check_extras

        check_extras("train", study)
        from rubricflow.flows.bottleneck import bottleneck as flow

        flow(str(study), str(warehouse), limit, token_budget)


def edit(study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None) -> None:
    """Train a language model to grade by Edit, beside the arms that a study compares it with."""
    with for_people():
        from rubricflow.flows.checks import check_extras

        check_extras("edit", study)
        from rubricflow.flows.edit import edit as flow

        flow(str(study), str(warehouse), limit)


def laboratory(
    folder: Annotated[Path, typer.Argument(help="Where to put it: a new folder.")],
    seed: Annotated[int, typer.Option(help="Another seed is another laboratory.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Of the policy's training; fewer make it worse.")] = None,
) -> None:
    """Make a small world to try `edit` in: questions with exact gold marks, and a decoder that marks hastily."""
    with for_people():
        from rubricflow.flows.laboratory import laboratory as make

        print(f"rubricflow edit {make(folder, seed, steps)}")


def faithful(study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None) -> None:
    """Judge a study's test responses under edits of their mark schemes: do the scores follow the rules?"""
    with for_people():
        from rubricflow.flows.faithful import SHOWN, summary
        from rubricflow.flows.faithful import faithful as flow

        print_rows(SHOWN, summary(warehouse, flow(str(study), str(warehouse), limit)))


def propose(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="Rubric file (YAML) to write, for people to edit.")],
    concepts: Annotated[int, typer.Option(min=1, max=20, help="How many concepts.")] = 8,
    levels: Annotated[int, typer.Option(min=2, max=10, help="Levels of each.")] = 3,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Have the study's first annotator propose concepts for its data, as a rubric file for people to edit."""
    with for_people():
        from rubricflow.flows.propose import propose as ask_for

        for line in ask_for(study, warehouse, to, concepts, levels):
            print(line)


def experiment(
    file: Annotated[Path, typer.Argument(help="The experiment file (YAML).")],
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Run every arm of an experiment and print its tables. Arms that finished are passed over."""
    with for_people():
        from rubricflow.flows.experiment import experiment as flow

        flow(str(file), str(warehouse), limit)


def validate(study: StudyFile, limit: Limit = None, warehouse: WarehouseFolder = HOUSE) -> None:
    """Prove data, rubrics, verifier and prompts of a study without asking any model.

    What its judge takes from the warehouse is looked for there: an earlier run, recorded replies, locked rubrics.
    """
    with for_people():
        from rubricflow.flows.validate import prove

        problems = 0
        for kind, label, message in prove(study, limit, warehouse):
            problems += kind == "wrong"
            print(f"{kind:8} {label}: {message}")
        if problems:
            raise UserError(f"{study}: {problems} problem{'s' if problems > 1 else ''}")


def plan(
    study: StudyFile,
    replicas: Annotated[int, typer.Option(min=1, help="Servers of the model, side by side.")] = 1,
    tokens_per_second: Annotated[
        float, typer.Option(min=1, help="Tokens that each works through a second, prompts and replies together.")
    ] = 2000,
    limit: Limit = None,
) -> None:
    """Say what judging a study takes: calls, tokens, hours, room, and what holds it up. No model is asked."""
    with for_people():
        from rubricflow.flows.validate import study_cases
        from rubricflow.tasks.grading.judge.costs import Servers, costs, workload

        settings, cases = study_cases(study, limit)
        load = workload(cases, settings.judge.samples, replicas)
        servers = Servers(replicas, tokens_per_second, settings.judge.engine)
        print_rows(["what", "how much", "by what"], costs(load, servers))
