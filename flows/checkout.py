"""Where a Prefect worker finds the files that deployments name: a step of prefect.yaml."""

from __future__ import annotations

import os
from pathlib import Path


def find_checkout() -> dict[str, str]:
    """`directory`: the folder of the checkout on the worker's machine, in which a run's relative paths are read.

    RUBRICFLOW_HOME names it; without that it is the one that this code is imported from. Prefect starts each run in a
    temporary folder, so that the folder in which the worker was started tells nothing. FileNotFoundError where there is
    no prefect.yaml in it: an installed wheel carries neither studies nor data.
    """
    folder = Path(os.environ.get("RUBRICFLOW_HOME") or Path(__file__).resolve().parents[1]).resolve()
    if not (folder / "prefect.yaml").is_file():
        raise FileNotFoundError(f"{folder} is no checkout of rubricflow: name one in RUBRICFLOW_HOME for the worker")
    return {"directory": str(folder)}
