"""The command `rubricflow`: its commands by name; the file of one is imported when it is used."""

from __future__ import annotations

import ast
import inspect
import os
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from rubricflow.flows.command_line import ReplyStore, for_people
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import BackendError


class Entry(NamedTuple):
    function: str
    """`file:function` in flows; a flow's parameters are its options."""
    help: str


COMMANDS = {
    "init": Entry(
        "init:command",
        "Write a first study and rubric for a table of answers, and look whether they hold. At most five questions.",
    ),
    "grade": Entry(
        "grade:command",
        "Grade a study: ingest, lock, judge, calibrate, evaluate. A killed run continues where it stopped.",
    ),
    "batch": Entry(
        "mailbox:batch",
        """Write what a run would ask into files, take in the answers that somebody brings, and go on so to its end.

        What is answered is kept with the other replies: asked live afterwards, it costs nothing.""",
    ),
    "graph": Entry(
        "graph:graph",
        "Build and draw the graphs of a study's rubrics: which criterion licenses which. No response is looked at.",
    ),
    "reward": Entry(
        "reward:reward",
        "Reward a study's responses with and without the dependencies of the criteria, and say what leaks.",
    ),
    "serve": Entry(
        "serve:serve",
        "Serve rewards to trainers: one judge, one reply store and one limit for all of them. See rubricflow.client.",
    ),
    "annotate": Entry(
        "annotate:annotate",
        "Label the concepts of a study's responses by two annotators, and queue what people should look at.",
    ),
    "review": Entry(
        "review:review",
        "Open the page on which people vote on what an annotated study queued, or a graded one did not release.",
    ),
    "next": Entry(
        "next_labels:propose_next",
        """Propose which responses of a graded study people should score next, and what the labels support now.

        Some are chosen because they teach the mapping most, the others drawn by chance: only those count for the
        promise.""",
    ),
    "votes": Entry(
        "votes:votes",
        "Take the queue to a spreadsheet or to Label Studio, and bring votes back; without either, list what was said.",
    ),
    "grades": Entry(
        "gradebook:grades",
        "Write the grades of a graded study, with what people decided; what waits for a person has no grade.",
    ),
    "feedback": Entry(
        "gradebook:feedback",
        "Write a page of feedback for every student of a graded study, and a list of them all for the teacher.",
    ),
    "adjudicate": Entry(
        "annotate:settle",
        "Settle a study's labels by what people have said until now, and compare raters before and after.",
    ),
    "train": Entry(
        "bottleneck:bottleneck", "Train the bottleneck graders of a study, compare them, and export the first."
    ),
    "pipeline": Entry(
        "pipeline:pipeline",
        """Annotate, wait for people, train, grade: by one command that is run again, or by a Prefect run that waits.

        Where people are asked it stops and says for what; the same command goes on when they have answered.""",
    ),
    "edit": Entry(
        "edit:edit", "Train a language model to grade by Edit, together with the arms that a study compares it with."
    ),
    "laboratory": Entry(
        "laboratory:command",
        "Make a small world to try `edit` in: questions with exact gold marks, and a decoder that marks hastily.",
    ),
    "faithful": Entry(
        "faithful:faithful",
        "Judge a study's test responses under edits of their mark schemes: do the scores follow the rules?",
    ),
    "propose": Entry(
        "propose:propose",
        "Have the study's first annotator propose concepts for its data, as a rubric file for people to edit.",
    ),
    "experiment": Entry(
        "experiment:experiment", "Run every arm of an experiment and print its tables. Arms that finished are skipped."
    ),
    "rehearse": Entry(
        "rehearse:rehearse",
        """Try on a few labelled answers how many criteria to ask for in a call, and whether to ask for the score alone.

        What is asked is kept: the study, or a larger rehearsal, pays for it no more.""",
    ),
    "calibrate": Entry(
        "calibrate:calibrate",
        """Say how far the judge of another tool's log can be trusted, by some labels of people. No model is asked.

        Reads logs of inspect_ai, promptfoo, DeepEval, lm-eval and others, and plain tables of id, verdict and
        explanation. With --with an earlier calibration scores a new log of the same judge.""",
    ),
    "mean": Entry(
        "mean:mean",
        """Say which log or run scores higher in truth, by people's labels on some of its answers. No model is asked.

        The mean by the judge alone is biased, that by labels alone wide; the corrected one is never wider than that.
        """,
    ),
    "drift": Entry(
        "drift:command",
        """Say whether a judge or what it judges moved between old and new logs, looked at as often as one likes.

        Ends with 0 where nothing moved, 3 where something did, 2 for a wrong input. In a year of daily looks at
        everything together a false alarm comes with a chance of at most 1%.""",
    ),
    "label": Entry(
        "label:label",
        """Open the page on answers of a log, or of a graded study, that people are to label.

        Some are drawn by chance, so that their labels vouch for all, some chosen because they teach most. The judge's
        verdict stays hidden until a vote. What is written is what `calibrate` and `mean` take as --labels.""",
    ),
    "validate": Entry(
        "validate:validate",
        """Prove data, rubrics, verifier and prompts of a study without asking any model.

        What its judge takes from the warehouse is looked for there: an earlier run, recorded replies, locked rubrics.
        """,
    ),
    "plan": Entry(
        "validate:plan_costs",
        """Say what judging a study takes: calls, tokens, hours, parallel calls, what holds it up. No model is asked.

        With --error or --budget-usd: which cascade of the judges that have graded it keeps that, and how sure that is.
        """,
    ),
    "rubric check": Entry(
        "rubric:check",
        """Say what is the matter with a study's rubrics: what can be seen of them, what a judge and what marks say.

        Where the study was graded and people scored answers of its calibration split, each criterion is held against
        these scores. No rubric is changed.""",
    ),
    "rubric revise": Entry(
        "rubric:revise",
        """Propose better rubrics for a study in a file of their own, each change with its reason, and a study of them.

        What code can mend is mended without a model. Half of the calibration split is held back: on it
        `rubric check --against` says whether the proposal agrees better with people.""",
    ),
    "sql": Entry(
        "sql:sql",
        """Ask a run in SQL. Prints a table, or CSV where the output is not a terminal.

        Only SELECT is run, and it reads the run's tables and no other file.
        In CSV an apostrophe goes before what a spreadsheet would run as a formula; the tables themselves are Parquet
        files. All finished runs together are in the warehouse's warehouse.duckdb, for any client of DuckDB.""",
    ),
    "columns": Entry("sql:columns", "List the tables' columns: type, whether null is allowed, what they hold."),
    "report": Entry(
        "reports:report", "Write a finished run's reports (HTML to look at) anew and say where they are, or show them."
    ),
    "verify": Entry(
        "verify:verify",
        "Look at every byte of runs, replies and votes: is it what was written? Lists all that is wrong.",
    ),
    "fetch": Entry(
        "fetch:fetch",
        """Bring a finished run from a bucket into a folder, where review, grades and feedback go on with it.

        Every file is held against its done-mark. Votes, marks and settled scores stay in that folder.""",
    ),
    "compare": Entry(
        "compare:compare",
        """Compare two runs on a page: agreement with people and with each other, and the answers that changed most.

        Prints the paired bootstrap of the difference b - a in agreement, on the responses that both hold out.""",
    ),
    "replies": Entry(
        "replies:replies",
        "Record what models said to a finished run in one file, which `backend: replay` with `replies: FILE` reads.",
    ),
}
PANELS = {
    "Grade a class": "init validate plan rehearse grade review grades feedback next rubric batch votes",
    "Train and reward": "reward serve graph annotate adjudicate propose train pipeline edit laboratory",
    "Trust a judge": "calibrate mean drift",
    "Study methods": "experiment faithful compare replies",
    "Look and operate": "report sql columns verify fetch",
}
"""Heading of the help → its commands, in order."""
GROUPS = {"rubric": "Find what is the matter with a study's rubrics, and propose better ones."}
"""First word of several commands → what they are for."""
WAYS_IN = """Grade open-ended text with rubrics. Four ways in:

  grade a class       rubricflow init answers.xlsx --to week3
  train with rewards  rubricflow reward data/demo/reward.yaml
  study methods       rubricflow experiment data/experiments/gradeagentops.yaml
  trust a judge       rubricflow calibrate logs/ --labels labels.csv

What stands in data/ comes with the repository, not with an installed package. rubricflow --help lists all commands,
rubricflow COMMAND --help says what one does, and rubricflow --install-completion lets the shell complete them."""


class Commands(TyperGroup):
    """`COMMANDS`. For a list of them their names and help suffice; one that is used is imported."""

    within = ""
    """What stands before the names of this group's commands, with a blank."""

    def list_commands(self, ctx: Any) -> list[str]:
        if self.within:
            return [name.removeprefix(self.within) for name in COMMANDS if name.startswith(self.within)]
        return " ".join(PANELS.values()).split()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command without its options, or the group of this name; None where there is neither."""
        name = f"{self.within}{cmd_name}"
        panel = next((panel for panel, names in PANELS.items() if name in names.split()), None)
        if any(other.startswith(f"{name} ") for other in COMMANDS):
            group = Commands(name=cmd_name, help=GROUPS[name], no_args_is_help=True, rich_help_panel=panel)
            group.within = f"{name} "
            return group
        entry = COMMANDS.get(name)
        return entry and TyperCommand(cmd_name, help=inspect.cleandoc(entry.help), rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is used, whole."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if isinstance(found, Commands) else load(f"{self.within}{name}"), rest

    def invoke(self, ctx: Any) -> Any:
        """Errors of the user, and signals, end every command in the same way."""
        with for_people():
            return super().invoke(ctx)


def load(name: str) -> Any:
    """A command with the options of its function, whose file is imported when it runs; where it works on a warehouse,
    with an option for where replies are kept."""
    file, _, function = COMMANDS[name].function.partition(":")

    def run(kept_in: str | None = None, **given: Any) -> None:
        if kept_in is not None:
            os.environ["RUBRICFLOW_REPLIES"] = kept_in
        _work(name, file, function)(**given)

    options = options_of(file, function)
    if any(option.name == "warehouse" for option in options):
        options.append(
            inspect.Parameter("kept_in", inspect.Parameter.KEYWORD_ONLY, annotation=ReplyStore, default=None)
        )
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    single = typer.Typer(add_completion=False)
    single.command(name.split()[-1], help=COMMANDS[name].help)(run)
    return typer.main.get_command(single)


def _work(name: str, file: str, function: str) -> Any:
    """What a command runs; BackendError where it needs an extra that is missing."""
    try:
        return getattr(import_module(f"rubricflow.flows.{file}"), function)
    except ModuleNotFoundError as error:
        from rubricflow.tasks.core.contracts.backends import LIBRARIES, require  # a help waits for none of it

        extras = [extra for extra, libraries in LIBRARIES.items() if str(error.name).split(".")[0] in libraries]
        if not extras:
            raise
        require([(extras[0], f"rubricflow {name}")])
        raise BackendError(f"rubricflow {name}: {error}") from error


def options_of(file: str, function: str) -> list[inspect.Parameter]:
    """The parameters of a function in flows, from its source: what its body needs takes seconds to import, and a help
    or a mistyped option needs none of it. Only what the parameters name is imported."""
    path = Path(__file__).with_name(f"{file}.py")
    needed = {function}
    kept = list[ast.stmt]()
    for statement in reversed(ast.parse(path.read_text(encoding="utf-8")).body):  # each names what stands above it
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statement.names = [alias for alias in statement.names if (alias.asname or alias.name) in needed]
            wanted = bool(statement.names)
        elif isinstance(statement, ast.FunctionDef) and statement.name in needed:
            statement.body, statement.returns = [ast.Pass()], None
            statement.decorator_list = [call for call in statement.decorator_list if "extends" in ast.unparse(call)]
            wanted = True
        else:
            wanted = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in needed
        if wanted:
            kept.insert(0, statement)
            needed |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    names: Record = {}
    exec(compile(ast.fix_missing_locations(ast.Module(kept, [])), str(path), "exec"), names)
    return list(inspect.signature(names[function], eval_str=True).parameters.values())


app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rubricflow {version('rubricflow')}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help="Grade open-ended text with rubrics.")
def ways_in(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version, and end.")
    ] = False,
) -> None:
    """Where one begins, if no command is named."""
    if context.invoked_subcommand is None:
        print(WAYS_IN)


if __name__ == "__main__":
    app()
