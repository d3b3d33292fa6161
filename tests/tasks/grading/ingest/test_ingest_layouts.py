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


# Files of pairs: answers become responses, and what people prefer becomes preferences.


HEAD = "id,question,one,other,label"
ROWS = ["q1,Why?,Heat.,Cold.,A>B", "q2,How?,Slowly.,Fast.,B>A", "q3,When?,Now.,Later.,A=B", "q4,Who?,She.,He.,"]
SOURCE: dict[str, Any] = {
    "file": "pairs.csv",
    "items": {"item_id": "id", "question": "question"},
    "pairs": {"item_id": "id", "text_a": "one", "text_b": "other", "winner": "label"},
    "winners": {"A>B": "a", "B>A": "b", "A=B": "tie"},
}


def read(folder: Path, lines: list[str], limit: int | None = None, **changes: Any) -> tuple[list[Any], list[Any]]:
    """Responses and preferences."""
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    source = SOURCE | changes
    study = {"name": "s", "data": {"sources": [source]}, "rubrics": {"file": "rubrics.yaml"}}
    run = Warehouse.open(folder / "warehouse").run("one")
    data = ingest.fn(run, Study.model_validate(study), folder, limit)
    assert data.preferences is not None
    return run.read(data.responses).to_pylist(), run.read(data.preferences).to_pylist()


def test_a_pair_is_two_responses_and_a_preference(tmp_path: Path) -> None:
    responses, preferences = read(tmp_path, [HEAD, *ROWS])
    assert {row["response_id"]: (row["item_id"], row["text"]) for row in responses} == {
        **{"q1:a": ("q1", "Heat."), "q1:b": ("q1", "Cold."), "q2:a": ("q2", "Slowly."), "q2:b": ("q2", "Fast.")},
        **{"q3:a": ("q3", "Now."), "q3:b": ("q3", "Later."), "q4:a": ("q4", "She."), "q4:b": ("q4", "He.")},
    }
    said = [(row["response_a"], row["response_b"], row["winner"], row["rater_id"]) for row in preferences]
    assert said == [
        ("q1:a", "q1:b", "a", "preferences"),
        ("q2:a", "q2:b", "b", "preferences"),
        ("q3:a", "q3:b", "tie", "preferences"),
    ]


def test_an_answer_of_several_pairs_and_raters_is_one_response(tmp_path: Path) -> None:
    head = "id,question,x,one,y,other,label,who"
    lines = ["q,Why?,m1,Heat.,m2,Cold.,a,ann", "q,Why?,m1,Heat.,m2,Cold.,b,bo", "q,Why?,m2,Cold.,m3,Wind.,a,ann"]
    pairs = SOURCE["pairs"] | {"response_a": "x", "response_b": "y", "rater_id": "who"}
    responses, preferences = read(tmp_path, [head, *lines], pairs=pairs, winners={})
    assert sorted(row["response_id"] for row in responses) == ["m1", "m2", "m3"]
    assert [(row["response_a"], row["winner"], row["rater_id"]) for row in preferences] == [
        *[("m1", "a", "ann"), ("m1", "b", "bo"), ("m2", "a", "ann")]
    ]


def test_a_pair_that_lost_an_answer_to_the_limit_is_left_out(tmp_path: Path) -> None:
    responses, preferences = read(tmp_path, [HEAD, *ROWS], limit=1)
    assert (len(responses), preferences) == (4, [])


@pytest.mark.parametrize(
    ("lines", "changes", "words"),
    [
        (["q1,Why?,Heat.,Cold.,C"], {}, r"row 1.*'label'.*'C' names no winner; there are A>B, B>A, A=B"),
        ([*ROWS, "q1,Why?,Light.,Dark.,A>B"], {}, r"row 5.*'q1:a' is given twice with different words.*pair_id"),
        ([*ROWS, "q1,Why?,Heat.,Cold.,B>A"], {}, r"row 5.*'preferences' prefers one of 'q1:a' and 'q1:b' twice"),
        (
            ["q1,Why?,Heat.,Cold.,A>B", "q1,Why?,Cold.,Heat.,A>B"],
            {"pairs": SOURCE["pairs"] | {"response_a": "one", "response_b": "other"}},
            r"row 2.*'preferences' prefers one of 'Cold.' and 'Heat.' twice",
        ),
        (
            ["q1,Why?,Heat.,Heat.,A>B"],
            {"pairs": SOURCE["pairs"] | {"response_a": "one", "response_b": "other"}},
            r"row 1.*'Heat.' is paired with itself",
        ),
        (["q1,Why?,Heat.,Cold.,A>B"], {"pairs": SOURCE["pairs"] | {"text_b": "nothing"}}, "nothing"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_place(
    tmp_path: Path, lines: list[str], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, [HEAD, *lines], **changes)


@pytest.mark.parametrize(
    "changes",
    [{"pairs": {"item_id": "id"}}, {"scores": [{"rater": "r", "score": "s"}]}, {"winners": {"x": "c"}}],
)
def test_what_no_source_of_pairs_can_say_is_refused(changes: dict[str, Any]) -> None:
    study = {"name": "s", "data": {"sources": [SOURCE | changes]}, "rubrics": {"file": "r.yaml"}}
    with pytest.raises(ValueError, match=r"names no column|no responses, scores|winners"):
        Study.model_validate(study)
