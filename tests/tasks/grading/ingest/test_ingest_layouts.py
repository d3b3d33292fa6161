"""The shipped layouts, on made-up rows and on the real data sets where they lie beside the checkout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Data, Source
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.prepared import asap_aes, asap_sas, physics_partial_credit
from rubricflow.tasks.grading.ingest.sources import LAYOUTS, sources, streams
from rubricflow.tasks.grading.ingest.task import ingest

SHARED = Path(__file__).parents[5] / "shared" / "data"
NAMES = ("asap2", "asap_aes", "asap_sas", "dress", "enem_essays", "gradeagentops", "mohler", "physics_partial_credit")
NAMES += (
    "mocha",
    "sas_bench",
    "summeval",
    "summhf",
    "webnlg",
    "healthbench",
    "paperbench",
    "plawbench",
    "writingbench",
)


class Found(NamedTuple):
    """What ingest makes of a data set."""

    items: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]]
    gradings: list[dict[str, Any]]


@cache
def real(layout: str) -> Found:
    if not (SHARED / layout).is_dir():
        pytest.skip(f"the data set {SHARED / layout} is not there")
    rubrics = {"derive": {"origin": "reference_answer", "scale": {"min": 0, "max": 1}}}
    data = {"layout": layout, "folder": str(SHARED / layout)}
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder) / "house").run("one")
        made = ingest.fn(run, Study.model_validate({"name": "s", "data": data, "rubrics": rubrics}), Path())
        rows = [run.read(ref).to_pylist() for ref in (made.items, made.responses, made.gradings)]
    return Found({row["item_id"]: row for row in rows[0]}, {row["response_id"]: row for row in rows[1]}, rows[2])


def ranges(found: Found, by: Callable[[dict[str, object]], object]) -> dict[object, tuple[float, float, int]]:
    scores = defaultdict(list)
    for row in found.gradings:
        if row["score"] is not None:
            scores[by(row)].append(row["score"])
    return {key: (min(values), max(values), len(values)) for key, values in scores.items()}


def test_the_layouts_are_those_that_are_documented() -> None:
    assert sorted(path.stem for path in LAYOUTS.glob("*.yaml")) == sorted(NAMES)
    assert all(sources(Data(layout=name)) for name in NAMES)


@pytest.mark.parametrize("name", ["none", "../layouts/mohler", "mohler.yaml", ""])
def test_an_unknown_layout_is_named(name: str) -> None:
    data = Data.model_construct(layout=name, folder=".", sources=())
    with pytest.raises(InputError, match="there are asap2, asap_aes, asap_sas, dress"):
        sources(data)


def test_a_studys_own_sources_are_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\n")
    source = Source(file="a.csv", items={"item_id": "id", "question": "id"})
    ((found, chunks, _),) = streams(Data(folder="in", sources=(source,)), tmp_path)
    assert (found, [frame["id"].tolist() for frame in chunks()]) == (source, [["1"]])


def test_asap_sas_marks_of_paragraphs_become_breaks_and_headings_go() -> None:
    answers = asap_sas("answers.parquet", pd.DataFrame({"student_answer": ["one ^p two^P", "2^3"]}))
    assert answers["student_answer"].tolist() == ["one\ntwo\n", "2^3"]
    elements = pd.DataFrame({"key_elements": [["Causes:", "heat", "Other ideas"], None]}, dtype=object)
    assert asap_sas("questions.jsonl", elements)["key_elements"].tolist() == [["heat"], []]


def test_asap_sas_items_carry_the_guide_that_raters_had() -> None:
    titled = "Rubric range: 0-3\n\nScoring Rubric: \n\nScore 0: nothing.\nScore 1: Scoring rubric: no title here."
    frame = {"rubric_text": [titled, " ", None, "0: a"], "possible_answers_text": [None, "x", "x", "white"]}
    frame["key_elements"] = [["Causes:", "heat", "Other ideas"], ["heat"], None, None]
    guides = asap_sas("questions.jsonl", pd.DataFrame(frame, dtype=object))["guide"].tolist()
    said = "Score 0: nothing.\nScore 1: Scoring rubric: no title here."
    assert guides[0] == f"{said}\n\nKey elements:\nCauses:\n- heat\n- Other ideas"
    assert guides[1:] == [None, None, "0: a\n\nwhite"]
    assert asap_sas("q", pd.DataFrame({"key_elements": [None]}))["guide"].tolist() == [None]


def test_physics_problems_carry_their_most_detailed_rubric() -> None:
    kinds, names = ["ProblemBody", "Rubric", "Rubric", "ProblemBody"], ["default", "simple", "detailed", "default"]
    frame = pd.DataFrame({"question_id": ["Q1", "Q1", "Q1", "Q2"], "kind": kinds, "name": names, "text": list("pabq")})
    guides = physics_partial_credit("problem_rubrics.jsonl", frame)["guide"]
    assert guides[0] == "b"
    assert pd.isna(guides[3])


@pytest.mark.parametrize("given", [{"rubric_text": ["Score 1: x", None]}, {}])
def test_asap_aes_sets_may_lack_a_guide(given: dict[str, list[str | None]]) -> None:
    sets = asap_aes("prompts_rubrics.jsonl", pd.DataFrame({"source_text": ["s", None], **given}, dtype=object))
    assert sets["rubric_text"].tolist() == given.get("rubric_text", [None, None])


def test_asap_aes_puts_one_raters_score_on_the_resolved_scale() -> None:
    columns = {f"rater{r}_trait{t}": [1.0, 2.0, 3.0] for r in (1, 2) for t in range(1, 7)}
    essays = pd.DataFrame({"essay": ["a", "b", "c"], "essay_set": [2, 7, 8], **columns})
    essays = essays.assign(rater1_domain1=[4, 10, 20], rater2_domain1=[None, 11, 21])
    found = asap_aes("essays.parquet", essays)
    assert found["rater1_score"].tolist() == [4, 20, 40]
    assert found["rater2_score"].tolist()[1:] == [22, 42]
    assert found["rater2_score"].isna().tolist() == [True, False, False]
    assert found["rater1_style"].dropna().tolist() == [2.0]
    assert found["rater1_ideas"].dropna().tolist() == [2.0, 3.0]
    assert found["rater1_voice"].dropna().tolist() == [3.0]


@pytest.mark.shared
def test_mohler() -> None:
    found = real("mohler")
    assert (len(found.items), len(found.responses)) == (55, 1540)
    assert ranges(found, lambda row: row["rater_id"]) == {"score_me": (0, 5, 1540), "score_other": (0, 5, 1540)}
    assert {item["type"] for item in found.items.values()} == {"short_answer"}
    assert all(item["reference_answer"] for item in found.items.values())


@pytest.mark.shared
def test_asap_sas() -> None:
    found = real("asap_sas")
    assert (len(found.items), len(found.responses)) == (8, 15620)
    counts = {rater: n for rater, (_, _, n) in ranges(found, lambda row: row["rater_id"]).items()}
    assert counts == {"rater1": 15620, "rater2": 12021}
    highest = {item: high for item, (_, high, _) in ranges(found, lambda row: row["item_id"]).items()}
    assert highest == {"2": 3, "3": 2, "4": 2, "5": 3, "6": 3, "7": 2, "8": 2, "9": 2}
    assert {item["item_id"] for item in found.items.values() if item["key_elements"]} == {"2", "5", "6"}
    assert not any("^p" in row["text"] for row in found.responses.values())


@pytest.mark.shared
def test_asap_aes_scores() -> None:
    found = real("asap_aes")
    assert (len(found.items), len(found.responses)) == (6, 2800)
    wanted = {"1": (2, 12), "2": (1, 5), "3": (0, 3), "4": (0, 3), "6": (0, 4), "7": (2, 24)}
    for (item, rater), (low, high, _) in ranges(found, lambda row: (row["item_id"], row["rater_id"])).items():
        assert (low, high) == wanted[item], rater
    assert set(ranges(found, lambda row: row["rater_id"])) == {"resolved", "rater1", "rater2"}


@pytest.mark.shared
def test_asap_aes_traits() -> None:
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in real("asap_aes").gradings:
        names[row["item_id"], row["rater_id"]] |= set(dict(row["trait_scores"]))
    wanted = {("7", rater): {"ideas", "organization", "style", "conventions"} for rater in ("rater1", "rater2")}
    wanted |= {("2", rater): {"language_conventions"} for rater in ("resolved", "rater1", "rater2")}
    plus = {"content", "organization", "word_choice", "sentence_fluency", "conventions"}
    wanted |= {(item, "attributes"): plus for item in ("1", "2")}
    wanted |= {
        (item, "attributes"): {"content", "prompt_adherence", "language", "narrativity"} for item in ("3", "4", "6")
    }
    assert {key: traits for key, traits in names.items() if traits} == wanted


@pytest.mark.shared
def test_physics_partial_credit() -> None:
    found = real("physics_partial_credit")
    assert (len(found.items), len(found.responses)) == (3, 64)
    assert ranges(found, lambda row: row["rater_id"]) == {"human1": (0, 3, 64), "human2": (0, 3, 64)}
    assert all(sum(dict(row["trait_scores"]).values()) == row["score"] for row in found.gradings)


@pytest.mark.shared
def test_summeval() -> None:
    found = real("summeval")
    assert (len(found.items), len(found.responses)) == (70, 840)
    assert ranges(found, lambda row: row["rater_id"]) == {f"expert{n}": (1, 5, 840) for n in (1, 2, 3)}


@pytest.mark.shared
def test_enem_essays() -> None:
    found = real("enem_essays")
    assert len(found.responses) == 475
    assert ranges(found, lambda row: row["rater_id"]) == {"corpus": (0, 1000, 475)}
    assert all(sum(dict(row["trait_scores"]).values()) == row["score"] for row in found.gradings)
