"""What the embedded judge agrees with, raw and without labels: python tests/studies/embedded.py [SET...].

Needs ../shared and `embedded`. Beside it stand the largest cosine of a whole sentence to the criterion, which is the
plain baseline and what the judge was before, and length. Of short answers it shows by item QWK and Spearman's
correlation of the raw score with a person's, and what two persons reach; of concepts the correlation of each
criterion's expected level with the person's label on it. Sets are sampled with a fixed seed; ± is a standard error over
items.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Offline
from rubricflow.tasks.core.llm.encoder import Tokens, minilm
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.stats.agreement import qwk, spearman
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest import prepared
from rubricflow.tasks.grading.judge import embedded
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.lock.bundles import lock

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
FORMER = 0.4
"""The centre of the former judge."""


class Item(NamedTuple):
    """Responses to one question. `labels`: (responses, criteria) what a person says of each criterion, NaN for none."""

    name: str
    bundle: Bundle
    question: str
    texts: list[str]
    score: np.ndarray
    second: np.ndarray
    labels: np.ndarray | None = None


def rubrics(file: str) -> dict[str, Rubric]:
    content = yaml.safe_load((ROOT / "data" / "studies" / file).read_text(encoding="utf-8"))["rubrics"]
    return {rubric["rubric_id"]: Rubric.model_validate(rubric) for rubric in content}


def locked(rubric: Rubric, echo: str | None = None) -> Bundle:
    return lock(rubric, Judge(protocol="pointwise", echo=echo).as_protocol())


def derived(answer: str, scale: Scale) -> Bundle:
    """The sentences of a reference answer as gold points, as `rubrics.derive` makes them."""
    points = [answer[unit.start : unit.end] for unit in units(answer) if unit.kind == "sentence"]
    levels = ("absent", "in part", "present")
    criteria = tuple(Criterion(id=f"P{n}", trait="t", text=text, levels=levels) for n, text in enumerate(points, 1))
    trait = Trait(id="t", name="t", min=scale.min, max=scale.max, step=scale.step)
    return locked(Rubric(rubric_id="d", scale=scale, traits=(trait,), criteria=criteria), "allowed")


def of_asap_sas() -> Iterator[Item]:
    known = rubrics("asap_sas_rubrics.yaml")
    asked = [json.loads(line) for line in (DATA / "asap_sas/questions.jsonl").open()]
    answers = prepared.asap_sas("answers", pd.read_parquet(DATA / "asap_sas/answers.parquet"))
    for posed in asked:
        part = answers[answers["question_id"] == posed["question_id"]].sample(100, random_state=0)
        people = (part["score_rater1"].to_numpy(float), pd.to_numeric(part["score_rater2"]).to_numpy(float))
        name = str(posed["question_id"])
        yield Item(name, locked(known[name]), posed["question_text"], part["student_answer"].tolist(), *people)


def of_references(
    frame: pd.DataFrame, reference: Callable[[pd.Series], str], text: str, people: tuple[str, str], scale: Scale, n: int
) -> Iterator[Item]:
    for name, part in frame.groupby("question_id"):
        part = part.sample(min(n, len(part)), random_state=0)
        first, second = (part[person].to_numpy(float) for person in people)
        bundle = derived(reference(part.iloc[0]), scale)
        yield Item(str(name), bundle, part["question"].iloc[0], part[text].tolist(), first, second)


def of_mohler() -> Iterator[Item]:
    frame = pd.read_parquet(DATA / "mohler/answers.parquet")
    people = ("score_me", "score_other")
    scale = Scale(min=0, max=5, step=0.5)
    yield from of_references(frame, lambda row: row["reference_answer"], "student_answer", people, scale, 12)


def of_saf() -> Iterator[Item]:
    frame = pd.read_parquet(DATA / "saf/answers_feedback.parquet").assign(none=np.nan)
    scale = Scale(min=0, max=1, step=0.125)
    people = ("score", "none")
    yield from of_references(frame, lambda row: row["reference_answer"], "student_answer", people, scale, 20)


def of_semeval() -> Iterator[Item]:
    frame = pd.read_parquet(DATA / "semeval2013/answers_3way.parquet")
    frame = frame.assign(right=(frame["label_3way"] == "correct").astype(float), none=np.nan)
    chosen = np.random.default_rng(0).choice(sorted(frame["question_id"].unique()), 40, replace=False)
    frame = frame[frame["question_id"].isin(chosen)]
    people = ("right", "none")

    def first(row: pd.Series) -> str:
        return json.loads(row["reference_answers_json"])[0]["text"]

    yield from of_references(frame, first, "student_answer", people, Scale(min=0, max=1), 20)


def of_physics() -> Iterator[Item]:
    known = rubrics("physics_partial_credit_rubrics.yaml")
    lines = [json.loads(line) for line in (DATA / "physics_partial_credit/problem_rubrics.jsonl").open()]
    asked = {line["question_id"]: line["text"] for line in lines if line["kind"] == "ProblemBody"}
    frame = pd.read_parquet(DATA / "physics_partial_credit/answers_item_labels.parquet")
    for name, part in frame.groupby("question_id"):
        first, second = (part[[f"item{n}_human{who}" for n in (1, 2, 3)]].to_numpy(float) for who in (1, 2))
        people = (first.sum(axis=1), second.sum(axis=1), (first + second) / 2)
        yield Item(name, locked(known[name]), asked[name], part["response"].tolist(), *people)


def of_enem() -> Iterator[Item]:
    themes = pd.read_parquet(DATA / "enem_essays/themes.parquet").set_index("theme_id")["description"]
    frame = pd.read_parquet(DATA / "enem_essays/essays_human_competences.parquet").sample(60, random_state=0)
    bundle = locked(rubrics("enem_concept_rubrics.yaml")["enem"])
    for name, part in frame.groupby("theme_id"):
        labels = part[[f"human_c{n}" for n in range(1, 6)]].to_numpy(float)
        none = np.full(len(part), np.nan)
        yield Item(str(name), bundle, themes[name], part["essay"].tolist(), labels.sum(axis=1), none, labels)


def of_summeval() -> Iterator[Item]:
    frame = pd.read_parquet(DATA / "summeval/summaries_human_scores.parquet")
    bundle = locked(rubrics("summeval_rubrics.yaml")["coherence"])
    for name, part in list(frame.groupby("doc_id"))[:20]:
        experts = part[[f"coherence_expert{n}" for n in (1, 2, 3)]].to_numpy(float)
        labels = np.repeat(experts.mean(axis=1, keepdims=True), len(bundle.criteria), axis=1)
        yield Item(str(name), bundle, "", part["summary"].tolist(), experts[:, 0], experts[:, 1], labels)


class Whole:
    """An encoder whose only token is the whole text, so that the judge compares sentences."""

    def __init__(self):
        encode = minilm()
        self.knows, self._encode = encode.knows, encode

    def ids(self, text):
        return frozenset()

    def tokens(self, texts):
        ones = np.ones(1, np.float32)
        return [Tokens(np.zeros(1, int), ones, vector[None]) for vector in self._encode(texts)]


def judged(item: Item, encoder: object) -> tuple[np.ndarray, np.ndarray]:
    """Raw scores, and the expected shares of the criteria, (responses, criteria)."""
    cases = [
        Case(str(n), item.name, text, tuple(units(text)), item.question, None, item.bundle, item.bundle.bundle_id)
        for n, text in enumerate(item.texts)
    ]
    rater = Rater("e", "encoder", Offline("e", partial(embedded.answer, encoder=encoder)))
    with ReplyStore(":memory:") as replies:
        graded = grade_batch(cases, rater, replies)
    tops = [criterion.top for criterion in item.bundle.criteria]
    expected = np.zeros((len(cases), len(tops)))
    for row, of_case in enumerate(graded.judged):
        for column, decision in enumerate(of_case.decisions):
            likely = of_case.probabilities.get(decision.criterion_id)
            expected[row, column] = 0 if likely is None else likely @ np.arange(len(likely)) / tops[column]
    scores = np.array(
        [np.nan if grading.prepared.score is None else grading.prepared.score for grading in graded.gradings]
    )
    return scores, expected


def agreement(item: Item, scores: np.ndarray) -> dict[str, float | None]:
    low, high, step = item.bundle.scale.bounds
    first, second = (np.round((people - low) / step) * step + low for people in (item.score, item.second))
    scored, twice = ~np.isnan(scores), ~np.isnan(first + second)
    length = np.array([len(text.split()) for text in item.texts], float)
    return {
        "n": len(scores),
        "qwk": qwk(first[scored], scores[scored], low, high, step).value,
        "people": qwk(first[twice], second[twice], low, high, step).value if twice.any() else None,
        "rho": spearman(first[scored], scores[scored]).value,
        "rho of length": spearman(first, length).value,
    }


def concepts(items: list[Item], expected: list[np.ndarray]) -> pd.DataFrame:
    """Criterion by criterion: the correlation with the person's label on it, over all items, and length's."""
    labels, levels = np.concatenate([item.labels for item in items]), np.concatenate(expected)
    length = np.array([len(text.split()) for item in items for text in item.texts], float)
    rows = []
    for at, criterion in enumerate(items[0].bundle.criteria):
        rows.append(
            {
                "criterion": criterion.id,
                "n": len(labels),
                "rho": spearman(labels[:, at], levels[:, at]).value,
                "rho of length": spearman(labels[:, at], length).value,
            }
        )
    return pd.DataFrame(rows).set_index("criterion").astype(float)


SETS = {
    "asap_sas": of_asap_sas,
    "mohler": of_mohler,
    "saf": of_saf,
    "semeval": of_semeval,
    "physics": of_physics,
    "enem": of_enem,
    "summeval": of_summeval,
}


def study(name: str) -> None:
    items, tables, labels = list(SETS[name]()), {}, {}
    for label, encoder, centre in (("whole sentences", Whole(), FORMER), ("embedded", minilm(), embedded.CENTRE)):
        kept, embedded.CENTRE = embedded.CENTRE, centre
        began = time.process_time()
        judgments = [judged(item, encoder) for item in items]
        took = 1000 * (time.process_time() - began) / sum(len(item.texts) for item in items)
        embedded.CENTRE = kept
        rows = [{"item": i.name} | agreement(i, s) for i, (s, _) in zip(items, judgments, strict=True)]
        tables[label] = pd.DataFrame(rows).set_index("item").astype(float)
        if items[0].labels is not None:
            labels[label] = concepts(items, [expected for _, expected in judgments])
        print(f"{name}: {label}, {took:.0f} ms of processor time a response", flush=True)
    shown = pd.concat(tables, axis=1)
    if len(items) <= 10:
        print(shown.round(3).to_string())
    print(f"mean over {len(items)} items, ± standard error")
    print(pd.DataFrame({"mean": shown.mean(), "±": shown.std() / len(items) ** 0.5}).round(3).to_string())
    if labels:
        print(pd.concat(labels, axis=1).round(3).to_string())


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SETS:
        study(chosen)
