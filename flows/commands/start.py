"""The command with which a class set begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.terminal import for_people
from rubricflow.tasks.core.contracts.errors import UserError


def init(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A table of answers, as you have it or as a learning platform exports it; questions; rubrics."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The study file to write, or the folder for it; the answers' folder if not given."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take what is guessed.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Write a first study and rubric for a table of answers, and look whether they hold. At most five questions."""
    with for_people():
        from rubricflow.flows.init import init as write_study
        from rubricflow.flows.validate import prove

        target = to or files[0].parent
        study = target if target.suffix in (".yaml", ".yml") else target / "study.yaml"
        started = write_study(files, study, _guess if yes else _asked, overwrite)
        print(*started.lines, *(f"written: {path}" for path in started.files), sep="\n")
        try:
            wrong = [message for kind, _, message in prove(study) if kind == "wrong"]
        except UserError as error:
            wrong = [str(error)]
        for line in (*started.to_do, *(f"mend: {message}" for message in wrong)):
            print(f"to do: {line}")
        if wrong:
            raise UserError(f"{study} is written, but `rubricflow validate` refuses it until that is mended")
        print(f"then: rubricflow validate {study}, rubricflow grade {study}")


def _guess(question: str, guess: str) -> str:
    return guess


def _asked(question: str, guess: str) -> str:
    return str(typer.prompt(question, default=guess, show_default=bool(guess)))
