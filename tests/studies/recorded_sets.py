"""The recorded real judges as frames of one shape, read by this project's own readers.

A frame has one row per recorded reply: `judge`, `item`, `response_id`, `sample`, `reply` (raw), `text` (what was
judged), `material` (question, rubric or source that the judge saw beside it), `ours` (the score as we read it, on the
judge's scale), `how` (the tolerance needed, or why there is none), `recorded` (what the source read, NaN where it
recorded nothing), `human`, `human2` (two persons, on the judge's scale, NaN where absent). The patterns were written
while looking at these replies: their rates are of this data, not of replies to come.
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
FIXED = Reader(pattern=r"(?i)score:\s*([1-5])")
"""The pattern that the data's notes report rates for."""
LETTER = Reader(pattern=r"\A\W*([A-Ea-e])\b", values={"A": 1, "B": 2, "C": 3, "D": 4, "E": 5})
STARS = Reader(pattern=r"(?i)\A\W*(\w+|[*★]+)\s*(?:-|\s)?stars?\b", otherwise=(r"\A\W*([1-5])\b",), values=WORDS)
POINTS = Reader(pattern=r"(?i)\A\W*(\d+(?:\.\d+)?)\s*points?\b", otherwise=(r"(?i)\b(\d+(?:\.\d+)?)\s*points?\b",))
CONTINUED = Reader(
    # Its own continuation of the student's answer comes first, so that only what follows words of grading counts.
    pattern=r"(?i)final\s+answer\s+is\W{0,6}(?:boxed\W{0,3})?([0-3])\b",
    otherwise=(
        r"(?i)\\boxed\{([0-3])\}",
        r"(?im)^[\s#*>\-|]*(?:[\w']+\s+){0,4}(?:scor(?:e|ing)|rat(?:e|ing)|grad(?:e|ing)|answer|report|result)\b"
        r"(?:\s*(?:and|/|&|-)\s*(?:rationale|score|rating|explanation)|\s+(?:the\s+)?response)?\s*(?:is\b)?"
        r"[\s:=#*\-`\"'(?|]*(?:(?:score|rating)[\s:=*\-]*)?([0-3])(?![\d/.]*\d)(?!\s*(?:-|–|to|or)\s*\d)",
        r"(?i)\b(?:scor(?:e|ed|es|ing)|rat(?:e|ed|ing)|grade)\b\W{0,4}(?:(?:of|is|as|at|would|be|a|an|the|this|response"
        r"|student|receives?|it|to|should)\W{1,3}){0,6}([0-3])(?![\d/]*\d)(?!\s*(?:-|–|to|or)\s*\d)",
        r"(?i)\b(?:receives?|earns?|award\w*|deserves?|warrant\w*|merits?)\b[^.\d]{0,30}?\b([0-3])\b",
        r"(?m)^[\s#*`]*([0-3])[\s*`]*$",
        r"(?m)^[\s#*|]*([0-3])[.*|]{0,3}\s",
        r"(?i)\b([0-3])\s*(?:out\s+of\s+\d|/\s*[23]\b)",
    ),
)
NUMBER_FIRST = Reader(pattern=r"\A\W*(\d+(?:\.\d+)?)\b", otherwise=(r"(?i)\A[\s\-*]*\w+\s*:\s*(\d+(?:\.\d+)?)",))
RATING = Reader(pattern=r"(?i)\brating\b\W{0,3}(?:is\s+|of\s+)?(\d+(?:\.\d+)?)", otherwise=(r"\A\W*(\d+(?:\.\d+)?)\b",))
VECTOR = Reader(pattern=r"[{\[(]\s*(\d)\s*,\s*(\d)\s*,\s*(\d)\s*[}\])]", take="last")
VERDICT = Reader(
    pattern=r"\[\[([AB][>=]{1,2}[AB])\]\]",
    take="last",
    values={"A>>B": 1, "A>B": 1, "A=B": 0, "B=A": 0, "B>A": -1, "B>>A": -1, "A<B": -1},
)
AES_SETS = {1: (1.0, 6.0), 2: (1.0, 6.0), 3: (0.0, 3.0), 4: (0.0, 3.0), 6: (0.0, 4.0), 7: (0.0, 12.0)}
"""Set → ends of the scale that the judge was given: that of one rater."""
AES_KEYS = {7: ("Ideas", "Organization", "Style", "Conventions")}


@dataclass(frozen=True)
class Recorded:
    """A recorded set. `scale`: (low, high, step) of the judge's score by item; `has_people`: whether persons scored."""

    name: str
    frame: pd.DataFrame
    scale: Callable[[str], tuple[float, float, float]]
    has_people: bool = True


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
        ("material", ""),
    ):
        if name not in made:
            made[name] = empty
    made["reply"] = made["reply"].map(lambda reply: reply if isinstance(reply, str) else "")
    scores = [read(row) for row in made[["judge", "item", "reply"]].itertuples(index=False)]
    made["ours"], made["how"] = [np.nan if s is None else s for s, _ in scores], [how for _, how in scores]
    kept = ["judge", "item", "response_id", "sample", "reply", "text", "material"]
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


def _sas_material() -> dict[int, str]:
    questions = pd.read_json(need("asap_sas", "questions.jsonl"), lines=True)
    told = (
        questions["question_text"]
        + "\n"
        + questions["rubric_text"]
        + "\n"
        + questions["marking_rubric_short"].fillna("")
    )
    elements = questions["key_elements"].map(lambda found: "\n".join(found) if isinstance(found, list) else "")
    return dict(zip(questions["question_id"], told + "\n" + elements, strict=True))


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
        material=found["question_id"].map(_sas_material()),
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
        material=found["question_id"].map(_sas_material()),
        recorded=found["recorded_score"].astype(float),
        human=found["score_rater1"],
        human2=found["score_rater2"].astype(float),
    )
    return Recorded("asap_sas freeform", made, _sas_top)


def sas_llama() -> Recorded:
    """Short answers, completions of Llama-3.1-405B that often begin by going on with the student's answer."""
    found = pd.read_parquet(need("asap_sas", "judge_llama31_405b_base_style.parquet")).drop(columns="score_rater1")
    found = found.merge(_sas_answers(), on="answer_id")
    made = frame(
        found,
        by(CONTINUED),
        judge="llama-3.1-405b",
        item=found["question_id"],
        response_id=found["answer_id"],
        reply=found["raw_output"],
        text=found["student_answer"],
        material=found["question_id"].map(_sas_material()),
        recorded=found["number_extracted_by_source"],
        human=found["score_rater1"],
        human2=found["score_rater2"].astype(float),
    )
    return Recorded("asap_sas llama405b", made, _sas_top)


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
    documents = pd.read_parquet(need("summeval", "documents.parquet"))
    texts = dict(zip(documents["doc_id"], documents["source_text"], strict=True))
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
        material=found["doc_id"].map(texts),
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
    shown = pd.read_json(need("physics_partial_credit", "problem_rubrics.jsonl"), lines=True)
    texts = shown.groupby("question_id")["text"].agg("\n".join).to_dict()
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
        material=found["question_id"].map(texts),
        recorded=recorded,
        human=found["h1"],
        human2=found["h2"],
    )
    made["cluster"] = found["student"].to_numpy()
    return Recorded("physics_partial_credit", made, lambda item: (0.0, 3.0, 1.0))


def enem() -> Recorded:
    """Portuguese essays, five competences of 0-200; only parsed scores were recorded, summed here."""
    found = pd.read_parquet(need("enem_essays", "judge_competence_scores.parquet"))
    people = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet"))
    found = found.merge(people[["essay_id", "theme_id", "essay", "human_total"]], on="essay_id")
    themes = pd.read_parquet(need("enem_essays", "themes.parquet"))
    texts = dict(zip(themes["theme_id"], themes["description"].fillna(""), strict=True))
    total = found[[f"llm_c{n}" for n in range(1, 6)]].sum(axis=1, skipna=False)
    made = frame(
        found,
        lambda row: (None, "no raw reply"),
        judge=found["model"] + " " + found["strategy"],
        item="total",
        response_id=found["essay_id"],
        reply="",
        text=found["essay"],
        material=found["theme_id"].map(texts),
        recorded=total,
        human=found["human_total"],
    )
    made["ours"] = total.to_numpy()
    made["cluster"] = found["theme_id"].to_numpy()
    for n in range(1, 6):
        made[f"explanation_c{n}"] = found[f"explanation_c{n}"].to_numpy()
    return Recorded("enem_essays", made, lambda item: (0.0, 1000.0, 40.0))


def prometheus() -> Recorded:
    """Responses of models, three judgements of GPT-4 each on 1-5; the score was recorded beside the feedback."""
    found = pd.read_parquet(need("prometheus_rubric_eval", "gpt4_judgements.parquet"))
    keys = ["bench", "instruction_idx", "response_source"]
    items = pd.read_parquet(need("prometheus_rubric_eval", "items.parquet"))[[*keys, "response"]]
    found = found.merge(items.drop_duplicates(keys), on=keys)
    made = frame(
        found,
        by(NUMBER_FIRST),
        judge="gpt-4",
        item=found["bench"],
        response_id=found[keys[0]] + ":" + found[keys[1]] + ":" + found[keys[2]],
        sample=found["sample_index"],
        reply=found["gpt4_score"].astype(str),
        text=found["response"],
        recorded=pd.to_numeric(found["gpt4_score"], errors="coerce"),
    )
    made["feedback"] = found["gpt4_feedback"].to_numpy()
    return Recorded("prometheus", made, lambda item: (1.0, 5.0, 1.0), has_people=False)


def healthbench() -> Recorded:
    """Yes or no on one criterion, JSON asked for, usually fenced; no person's label is in the source."""
    found = pd.read_parquet(need("healthbench", "meta_judge_outputs.parquet"))

    def read(row: pd.Series) -> tuple[float | None, str]:
        artifact, how = extract(row.reply, frozenset({"criteria_met"}))
        met = artifact and artifact["criteria_met"]
        return (float(met), how or "strict") if isinstance(met, bool) else (None, f"none: {how}")

    strict = found["strict_criteria_met"].map(lambda met: np.nan if met is None else float(str(met) == "True"))
    made = frame(
        found,
        read,
        item="criterion",
        response_id=found["item_id"],
        reply=found["raw_output"],
        recorded=strict,
    )
    return Recorded("healthbench meta", made, lambda item: (0.0, 1.0, 1.0), has_people=False)


def judgebench() -> Recorded:
    """Which of two responses is better, in both orders; 1 for A, -1 for B, 0 for neither; label: objective."""
    found = pd.read_parquet(need("judgebench", "judge_outputs.parquet"))
    pairs = pd.read_parquet(need("judgebench", "pairs.parquet"))[["pair_id", "label"]]
    found = found.merge(pairs.drop_duplicates("pair_id"), on="pair_id")
    made = frame(
        found,
        by(VERDICT),
        judge=found["judge_model"],
        item="pair",
        response_id=found["pair_id"],
        sample=found["game"],
        reply=found["raw_output"],
        recorded=found["recorded_decision"].map({"A>B": 1.0, "B>A": -1.0, "A=B": 0.0}),
    )
    made["label"] = found["label"].map({"A>B": 1.0, "B>A": -1.0}).to_numpy()
    return Recorded("judgebench", made, lambda item: (-1.0, 1.0, 1.0), has_people=False)


SETS: dict[str, Callable[[], Recorded]] = {
    "asap_aes": asap_aes,
    "sas_sampled": sas_sampled,
    "sas_freeform": sas_freeform,
    "sas_llama": sas_llama,
    "summeval": summeval,
    "topical_chat": topical_chat,
    "physics": physics,
    "enem": enem,
    "prometheus": prometheus,
    "healthbench": healthbench,
    "judgebench": judgebench,
}
