"""prefect.yaml names a flow that exists, with parameters that it takes."""

from __future__ import annotations

from pathlib import Path

import yaml
from prefect.flows import load_flow_from_entrypoint

HOUSE = Path(__file__).resolve().parents[2]


def test_every_deployment_loads_and_takes_its_parameters() -> None:
    for deployment in yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]:
        flow = load_flow_from_entrypoint(str(HOUSE / deployment["entrypoint"]))
        flow.validate_parameters(deployment["parameters"])
        assert (HOUSE / deployment["parameters"]["study"]).is_file()
