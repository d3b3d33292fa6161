"""The recorded real judges as frames of one shape, read by this project's own readers.

A frame has one row per recorded reply: `judge`, `item`, `response_id`, `sample`, `reply` (raw), `text` (what was
judged), `ours` (the score as we read it, on the judge's scale), `how` (the tolerance needed, or why there is none),
`recorded` (what the source read, NaN where it recorded nothing), `human`, `human2` (two persons, on the judge's scale,
NaN where absent). The patterns were written while looking at these replies: their rates are of this data, not of
replies to come.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # many small fits: threads would only wait for each other

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.settings.judge import Reader
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.foreign import read_score

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ONE_TO_FIVE = r"(?<![\d.])([1-5](?:\.\d+)?|one|two|three|four|five)(?![\d%]|\.\d)"
WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
PROSE = Reader(
    pattern=rf"(?i)\b(?:final|overall|fluency|coherence|consistency|relevance)\s+(?:score|rating)\b[\s:*(=\"“]*"
    rf"(?:(?:of|is|as|would be)\s+)?(?:an?\s+)?{ONE_TO_FIVE}\b",
    otherwise=(
        rf"(?i){ONE_TO_FIVE}\s*(?:/|out\s+of)\s*(?:5|five)\b",
        rf"(?i){ONE_TO_FIVE}[\s-]*stars?\b",
        rf"(?i)\bscor(?:e[sd]?|ing)\b[^.\d]{{0,40}}?\b{ONE_TO_FIVE}\b",
        rf"(?i)\b(?:rat(?:e|ed|ing)|gets?|receives?|earns?|deserves?|give|making\s+it|is)\b[^.\d]{{0,40}}?\b{ONE_TO_FIVE}"
        r"(?=\W*(?:\Z|,|\.\s|\(|in\s|for\s|star))",
        r"\(([1-5](?:\.\d)?)\)",
        r"([1-5](?:\.\d)?)\W*\Z",
        r"\A\W*([1-5](?:\.\d)?)\b",
    ),
    values=WORDS,
)
LETTER = Reader(pattern=r"\A\W*([A-Ea-e])\b", values={"A": 1, "B": 2, "C": 3, "D": 4, "E": 5})
STARS = Reader(pattern=r"(?i)\A\W*(\w+|[*★]+)\s*(?:-|\s)?stars?\b", otherwise=(r"\A\W*([1-5])\b",), values=WORDS)
POINTS = Reader(pattern=r"(?i)\A\W*(\d+(?:\.\d+)?)\s*points?\b", otherwise=(r"(?i)\b(\d+(?:\.\d+)?)\s*points?\b",))
NUMBER_FIRST = Reader(pattern=r"\A\W*(\d+(?:\.\d+)?)\b", otherwise=(r"(?i)\A[\s\-*]*\w+\s*:\s*(\d+(?:\.\d+)?)",))
RATING = Reader(pattern=r"(?i)\brating\b\W{0,3}(?:is\s+|of\s+)?(\d+(?:\.\d+)?)", otherwise=(r"\A\W*(\d+(?:\.\d+)?)\b",))
VECTOR = Reader(pattern=r"[{\[(]\s*(\d)\s*,\s*(\d)\s*,\s*(\d)\s*[}\])]", take="last")
AES_SETS = {1: (1.0, 6.0), 2: (1.0, 6.0), 3: (0.0, 3.0), 4: (0.0, 3.0), 6: (0.0, 4.0), 7: (0.0, 12.0)}
"""Set → ends of the scale that the judge was given: that of one rater."""
AES_KEYS = {7: ("Ideas", "Organization", "Style", "Conventions")}


@dataclass(frozen=True)
class Recorded:
    """A recorded set. `scale`: (low, high, step) of the judge's score by item."""

    name: str
    frame: pd.DataFrame
    scale: Callable[[str], tuple[float, float, float]]


def need(*parts: str) -> Path:
    """A file of the real data; ends the script where it is missing."""
    path = DATA.joinpath(*parts)
    if not path.is_file():
        sys.exit(
            f"needs {'/'.join(parts)} in shared/data beside the checkout; only this project's own machines have it"
        )
    return path


def frame(
    found: pd.DataFrame, read: Callable[[pd.Series], tuple[float | None, str]], **columns: object
) -> pd.DataFrame:
    """The common columns; what a set lacks is empty. `read` gives score and how of a row."""
    made = found.assign(**columns)
    for name, empty in (
        ("sample", 0),
        ("recorded", np.nan),
        ("human", np.nan),
        ("human2", np.nan),
        ("text", ""),
    ):
        if name not in made:
            made[name] = empty
    made["reply"] = made["reply"].map(lambda reply: reply if isinstance(reply, str) else "")
    scores = [read(row) for row in made[["judge", "item", "reply"]].itertuples(index=False)]
    made["ours"], made["how"] = [np.nan if s is None else s for s, _ in scores], [how for _, how in scores]
    kept = ["judge", "item", "response_id", "sample", "reply", "text"]
    kept += ["ours", "how", "recorded", "human", "human2"]
    made["item"], made["response_id"] = made["item"].astype(str), made["response_id"].astype(str)
    return made[kept].reset_index(drop=True)


def by(reader: Reader) -> Callable[[pd.Series], tuple[float | None, str]]:
    """Reading by a reader; how: which of its patterns read."""
    plain = [reader.model_copy(update={"pattern": one, "otherwise": ()}) for one in (reader.pattern, *reader.otherwise)]

    def read(row: pd.Series) -> tuple[float | None, str]:
        for number, one in enumerate(plain, 1):
            if (score := read_score(row.reply, one)) is not None:
                return score, f"pattern {number}"
        return None, "empty" if not row.reply.strip() else "unreadable"

    return read


def asap_aes() -> Recorded:
    """Essays, JSON asked for, two judges and four wordings; on the scale of one rater."""
    found = pd.read_parquet(need("asap_aes", "judge_outputs.parquet"))
    essays = pd.read_parquet(need("asap_aes", "essays.parquet"))
    people = essays[["essay_id", "essay", "domain1_score"]]
    two = [f"rater{n}_domain1" for n in (1, 2)]
    found = found.merge(people, on="essay_id").merge(essays[["essay_id", *two]], on="essay_id")

    def read(row: pd.Series) -> tuple[float | None, str]:
        keys = AES_KEYS.get(int(row.item), ("total_score",))
        artifact, how = extract(row.reply, frozenset(keys))
        if artifact is None:
            return None, f"none: {how}"
        score = read_score(row.reply, Reader(json_keys=keys))
        return score, (how or "strict") if score is not None else "none: no number"

    made = frame(
        found,
        read,
        judge=found["judge"] + " " + found["prompt_variant"],
        item=found["essay_set"],
        response_id=found["essay_id"],
        reply=found["raw_output"],
        text=found["essay"],
        recorded=found["source_total_score"],
        human=found[two[0]],
        human2=found[two[1]],
    )
    made["resolved"] = found["domain1_score"].to_numpy()
    return Recorded("asap_aes", made, lambda item: (*AES_SETS[int(item)], 1.0))


def _sas_answers() -> pd.DataFrame:
    answers = pd.read_parquet(need("asap_sas", "answers.parquet"))
    return answers[["answer_id", "student_answer", "score_rater1", "score_rater2"]]


def _sas_top(item: str) -> tuple[float, float, float]:
    return 0.0, 3.0 if item in {"1", "2", "5", "6"} else 2.0, 1.0


def sas_sampled() -> Recorded:
    """Short answers, ten samples of gpt-3.5 each: 'N points; rationale with quotes'."""
    found = pd.read_parquet(need("asap_sas", "judge_gpt35_sampled10.parquet")).merge(_sas_answers(), on="answer_id")
    made = frame(
        found,
        by(POINTS),
        judge="gpt-3.5 sampled",
        item=found["question_id"],
        response_id=found["answer_id"],
        sample=found["sample_index"],
        reply=found["raw_output"],
        text=found["student_answer"],
        recorded=found["leading_score"].astype(float),
        human=found["score_rater1"],
        human2=found["score_rater2"].astype(float),
    )
    return Recorded("asap_sas sampled10", made, _sas_top)


def sas_freeform() -> Recorded:
    """Short answers, one free text of gpt-3.5 for each of two wordings, read as the study file reads it."""
    import yaml

    study = yaml.safe_load((Path(__file__).resolve().parents[2] / "data/studies/asap_sas_replay.yaml").read_text())
    found = pd.read_parquet(need("asap_sas", "judge_gpt35_freeform.parquet")).merge(_sas_answers(), on="answer_id")
    made = frame(
        found,
        by(Reader.model_validate(study["judge"]["foreign"]["reader"])),
        judge="gpt-3.5 " + found["instruction_style"].str.removesuffix("_instruction"),
        item=found["question_id"],
        response_id=found["answer_id"],
        reply=found["raw_output"],
        text=found["student_answer"],
        recorded=found["recorded_score"].astype(float),
        human=found["score_rater1"],
        human2=found["score_rater2"].astype(float),
    )
    return Recorded("asap_sas freeform", made, _sas_top)


def summeval() -> Recorded:
    """Summaries, four dimensions, five judges, seven methods: prose, letters and stars. Items are dimensions."""
    found = pd.read_parquet(need("summeval", "judge_outputs.parquet"))
    people = pd.read_parquet(need("summeval", "summaries_human_scores.parquet"))
    parts = []
    for dimension in ("coherence", "consistency", "fluency", "relevance"):
        columns = [f"{dimension}_expert{n}" for n in (1, 2, 3)]
        part = people[["doc_id", "system", "summary", *columns]].rename(columns={columns[0]: "e1", columns[1]: "e2"})
        parts.append(part.rename(columns={columns[2]: "e3"}).assign(dimension=dimension))
    found = found.merge(pd.concat(parts), on=["doc_id", "system", "dimension"], how="left")
    prose, letter, stars = by(PROSE), by(LETTER), by(STARS)

    def read(row: pd.Series) -> tuple[float | None, str]:
        method = row.judge.rsplit(" ", 1)[1]
        return (letter if "mcq" in method else stars if method == "stareval" else prose)(row)

    made = frame(
        found,
        read,
        judge=found["judge"] + " " + found["method"],
        item=found["dimension"],
        response_id=found["doc_id"] + ":" + found["system"] + ":" + found["dimension"],
        reply=found["raw_output"],
        text=found["summary"].fillna(""),
        human=found["e1"],
        human2=found["e2"],
    )
    made["mean"] = found[["e1", "e2", "e3"]].mean(axis=1).to_numpy()
    made["cluster"] = found["doc_id"].to_numpy()
    return Recorded("summeval", made, lambda item: (1.0, 5.0, 1.0))


def topical_chat() -> Recorded:
    """Dialogue turns, five dimensions, ten samples for each of three wordings. Items are dimensions."""
    found = pd.read_parquet(need("topical_chat", "judge_gpt35_sampled10.parquet"))
    people = pd.read_parquet(need("topical_chat", "responses_human_scores.parquet"))
    columns = {f"human_{name}": name for name in found["dimension"].unique()}
    long = people.rename(columns=columns).melt("item_id", list(columns.values()), "dimension", "human")
    found = found.merge(long, on=["item_id", "dimension"])
    number, rating = by(NUMBER_FIRST), by(RATING)
    made = frame(
        found,
        lambda row: (number if row.judge == "gpt-3.5 geval" else rating)(row),
        judge="gpt-3.5 " + found["prompt_variant"],
        item=found["dimension"],
        response_id=found["item_id"] + ":" + found["dimension"],
        sample=found["sample_index"],
        reply=found["raw_output"],
    )
    made["mean"] = made["human"]
    made["human"] = np.nan  # a mean of three, not a person
    made["cluster"] = found["dialogue_id"].to_numpy()
    return Recorded("topical_chat", made, lambda item: (0.0, 1.0, 1.0) if item == "groundedness" else (1.0, 3.0, 1.0))


def physics() -> Recorded:
    """Explanations of three problems, three binary rubric items; the reply ends in a vector, whose sum is the score."""
    found = pd.read_parquet(need("physics_partial_credit", "judge_outputs.parquet"))
    people = pd.read_parquet(need("physics_partial_credit", "answers_item_labels.parquet"))
    for person in (1, 2):
        people[f"h{person}"] = people[[f"item{n}_human{person}" for n in (1, 2, 3)]].sum(axis=1)
    found = found.merge(people[["question_id", "student", "response", "h1", "h2"]], on=["question_id", "student"])
    recorded = found["source_extracted_vector"].str.count("1").astype(float)
    made = frame(
        found,
        by(VECTOR),
        judge=found["model"] + " " + found["prompt_style"],
        item=found["question_id"],
        response_id=found["question_id"] + ":" + found["student"],
        sample=found["run"],
        reply=found["raw_output"],
        text=found["response"],
        recorded=recorded,
        human=found["h1"],
        human2=found["h2"],
    )
    made["cluster"] = found["student"].to_numpy()
    return Recorded("physics_partial_credit", made, lambda item: (0.0, 3.0, 1.0))


SETS: dict[str, Callable[[], Recorded]] = {
    "asap_aes": asap_aes,
    "sas_sampled": sas_sampled,
    "sas_freeform": sas_freeform,
    "summeval": summeval,
    "topical_chat": topical_chat,
    "physics": physics,
}
