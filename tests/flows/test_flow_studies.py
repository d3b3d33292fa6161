"""The studies of data/studies, on real data where it lies beside the checkout: judges are shown what raters were."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubricflow.flows.validate import prove

ROOT = Path(__file__).parents[2]
STUDIES, SHARED = ROOT / "data" / "studies", ROOT.parent / "shared" / "data"
NAMES = ("asap_sas", "asap_aes_replay", "enem_essays_replay", "physics_partial_credit_replay", "summeval_replay")
UNSAID = ("says of no score", "says of none", "names fewer than two")


def under(protocol: str, name: str, folder: Path) -> Path:
    """The study with a judge of this protocol in place of its own."""
    study: dict[str, Any] = yaml.safe_load((STUDIES / f"{name}.yaml").read_text(encoding="utf-8"))
    data = SHARED / study["data"]["folder"]
    if not data.is_dir():
        pytest.skip(f"the data set {data} is not there")
    study["data"]["folder"] = str(data)
    if "file" in study["rubrics"]:
        study["rubrics"]["file"] = str(STUDIES / study["rubrics"]["file"])
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study | {"judge": {"protocol": protocol}}), encoding="utf-8")
    return path


@pytest.mark.shared
@pytest.mark.parametrize(("name", "protocol"), zip([*NAMES, "mohler", "semeval2013"], cycle(["dhs", "unlocked"])))
def test_a_score_is_asked_for_with_what_it_means(name: str, protocol: str, tmp_path: Path) -> None:
    said = [message for _, _, message in prove(under(protocol, name, tmp_path), 1)]
    assert any("prompt, contract and verifier hold" in message for message in said)
    assert not [message for message in said if any(words in message for words in UNSAID)]


@pytest.mark.shared
def test_subscores_are_asked_for_of_every_subject_and_that_is_said_once(tmp_path: Path) -> None:
    said = list(prove(under("gradeagentops", "asap_sas", tmp_path), 1))
    (remark,) = [what for _, what, message in said if "no subscores are known" in message]
    assert remark.startswith("rubrics ")
    assert not [what for kind, what, _ in said if kind == "wrong"]
