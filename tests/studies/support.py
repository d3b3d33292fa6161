"""Does a second look find false credit and misses on SummHay? `tests/studies/support.py [SAID.parquet [PAGE.html]]`

People said of 933 insights whether a summary covers them; four judges named the bullet that does. Needs ../shared and
`embedded`. A summary is an answer, an insight of its subtopic a criterion, a bullet the quote; other judges are its
jurors. What is chosen by hand was chosen on the subtopics with an odd digest. `new subtopics`: those are marked, the
others held back; `marked subtopics`: of the others half of the summaries are marked, half held back; `half of all`: so
of all. Limits are those that the marks choose. Each judge by itself, as in the pipeline. Intervals resample summaries
(2,000 draws). SAID: summary, insight, start and percent, what a further judge said of the credits it was asked about.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.protocols import SupportRule
from rubricflow.tasks.core.display.page import Grid, Page, Section, rendered
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import support
from rubricflow.tasks.grading.judge.rows import Case

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "summhay"
JUDGES = ("prompted_gpt-4o", "9fs_gpt-4o", "prompted_claude3-opus", "prompted_gemini-1.5-pro")
DRAWS = 2_000


def bundle_of(insights):
    levels = ("not covered", "covered in part", "covered")
    criteria = [Criterion(id=f"i{row.insight_id}", trait="t", text=row.insight, levels=levels) for row in insights]
    trait = Trait(id="t", name="coverage", min=0, max=10)
    protocol = Protocol(name="rulers", final_score="weighted_points", signals=())
    return Bundle(text="", scale=Scale(min=0, max=10), traits=(trait,), criteria=tuple(criteria), protocol=protocol)


def row_of(verdict, text, places):
    known = pd.notna(verdict.bullet) and 0 <= int(verdict.bullet) < len(places)
    start, end = places[int(verdict.bullet)] if known else (0, len(text))
    quote = {"unit_id": None, "quote": text[start:end], "start": start, "end": end, "status": "verified"}
    return {
        "response_id": str(verdict.summary_id),
        "criterion_id": f"i{verdict.insight_id}",
        "rater_id": verdict.judge,
        "sample": 0,
        "decision": int(verdict.level),
        "verified": bool(known) or None,
        "evidence": [quote] if verdict.level else [],
        "level_probabilities": None,
    }


def everything():
    """Looks of all judges, by judge; (summary, insight) → whether people say covered; summary → subtopic."""
    summaries, people, verdicts = (
        pd.read_parquet(DATA / f"{name}.parquet") for name in ("summaries", "criteria_human", "judge_verdicts")
    )
    encode, found = minilm(), {name: [] for name in JUDGES}
    of_people, of_judges = (dict(iter(frame.groupby("summary_id"))) for frame in (people, verdicts))
    cases, rows = [], []
    for summary in summaries.itertuples():
        bullets = [text if isinstance(text, str) else json.dumps(text) for text in json.loads(summary.summary_json)]
        text, places = "", []
        for bullet in bullets:
            places.append((len(text), len(text) + len(bullet)))
            text += f"{bullet}\n\n"
        bundle = bundle_of(list(of_people[summary.summary_id].itertuples()))
        cases.append(Case(str(summary.summary_id), "i", text, tuple(units(text)), "", None, bundle, "b"))
        rows.append([row_of(verdict, text, places) for verdict in of_judges[summary.summary_id].itertuples()])
    needed = sorted(set().union(*(support.texts(case, judged) for case, judged in zip(cases, rows, strict=True))))
    vectors = dict(zip(needed, encode(needed), strict=True))
    for case, judged in zip(cases, rows, strict=True):
        for name in JUDGES:
            own = [row for row in judged if row["rater_id"] == name]
            others = [row for row in judged if row["rater_id"] != name]
            found[name] += support.looks(case, own, others, vectors)
    covered = {(str(r.summary_id), f"i{r.insight_id}"): bool(r.human_level) for r in people.itertuples()}
    return found, covered, dict(zip(summaries.summary_id.astype(str), summaries.subtopic_id, strict=True))


def auc(value, right):
    ranks, n, m = pd.Series(value).rank().to_numpy(), right.sum(), (~right).sum()
    return (ranks[right].sum() - n * (n + 1) / 2) / (n * m) if n and m else np.nan


def interval(statistic, cluster, *columns):
    """A statistic of columns with its 95 % interval over clusters."""
    rng, places = np.random.default_rng(0), pd.Series(range(len(cluster))).groupby(cluster).apply(np.array)
    drawn = []
    for _ in range(DRAWS):
        some = np.concatenate(places.to_numpy()[rng.integers(0, len(places), len(places))])
        drawn.append(statistic(*(column[some] for column in columns)))
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return f"{statistic(*columns):.3f} [{low:.3f}, {high:.3f}]"


def stated(found, covered, name, labelled, held, cluster, said):
    """Prints what is found among the credits of held-back summaries with the marks of the labelled ones."""
    marks = {of: value for of, value in covered.items() if labelled[of[0]]}
    none = sum(not value for of, value in covered.items() if held[of[0]])
    given = sum(value for of, value in covered.items() if held[of[0]])
    frames = []
    for judge in JUDGES:
        looks = [look for look in found[judge] if look.is_credit]
        percent = np.array([said.get((look.response_id, look.criterion_id, look.start), np.nan) for look in looks])
        alone = [look._replace(features=(*look.features[:-3], 0.5, 0.5, 0.5)) for look in looks]
        frame = pd.DataFrame({"judge": judge, "summary": [look.response_id for look in looks]})
        frame["right"] = [covered[look.response_id, look.criterion_id] for look in looks]
        frame["held"] = [held[look.response_id] for look in looks]
        frame["similarity"] = [look.features[0] for look in looks]
        frame["percent"] = percent
        for way, some, extra in (("alone", alone, None), ("jurors", looks, None), ("asked", looks, percent)):
            frame[way] = support.fitted(some, marks, cluster, extra)
            frame[f"{way} fails"] = frame[way] < support.limit_of(some, frame[way], marks, SupportRule())
        frames.append(frame[frame["held"]])
    every = pd.concat(frames)
    of, right = every["summary"].to_numpy(), every["right"].to_numpy()
    print(f"{name}: {len(every)} credits, {(~right).sum()} false, {every['summary'].nunique()} summaries held back")
    some = every[every["percent"].notna()]
    if len(some):
        columns = some["summary"].to_numpy(), some["percent"].to_numpy(), some["right"].to_numpy()
        print(f"  percent of the {len(some)} that were asked about: AUC {interval(auc, *columns)}")
    for way in ("similarity", "alone", "jurors", "asked"):
        own = [f"{auc(frame[way].to_numpy(), frame['right'].to_numpy()):.3f}" for frame in frames]
        print(f"  {way}: AUC {interval(auc, of, every[way].to_numpy(), right)}; by judge {', '.join(own)}")
    for way in ("alone", "jurors", "asked"):
        for judge, frame in zip(JUDGES, frames, strict=True):
            fails, own = frame[f"{way} fails"].to_numpy(), frame["right"].to_numpy()
            before, after, more = (~own).sum() / none, (~own & ~fails).sum() / none, (own & fails).sum() / given
            print(f"  {way}, {judge}: false credit {before:.3f} to {after:.3f}, misses +{more:.3f}")


def missed(found, covered, name, labelled, held, cluster):
    """Prints the misses among ten criteria without credit of held-back summaries, of those shown and of any."""
    marks = {of: value for of, value in covered.items() if labelled[of[0]]}
    rows = []
    for judge in JUDGES:
        looks = [look for look in found[judge] if not look.is_credit]
        similar = np.array([look.features[0] for look in looks])
        chance = support.fitted(looks, marks, cluster)
        likely = similar if chance is None else chance
        here = np.array([held[look.response_id] for look in looks])
        for is_fitted, value in ((False, similar), (True, likely)):
            top = value >= np.quantile(value[here], 1 - support.SHOWN)
            rows += [
                (is_fitted, look.response_id, covered[look.response_id, look.criterion_id], one)
                for look, one, mine in zip(looks, top, here, strict=True)
                if mine
            ]
    frame = pd.DataFrame(rows, columns=["fitted", "summary", "right", "shown"])
    for is_fitted, way in ((False, "similarity"), (True, "fitted")):
        some = frame[frame["fitted"] == is_fitted]
        for words, of in (("of those shown", some[some["shown"]]), ("of any", some)):
            rate = interval(lambda right: 10 * right.mean(), of["summary"].to_numpy(), of["right"].to_numpy())
            print(f"{name}, {way}: misses per ten looks {words} {rate}, {len(of)} looks")


def page_of(found, covered, labelled, held, cluster, said):
    """A page of 50 held-back decisions of each kind: false credit found and not found, right credit doubted, misses."""
    marks, rng, kinds = {of: one for of, one in covered.items() if labelled[of[0]]}, np.random.default_rng(0), {}
    for judge in JUDGES:
        for is_credit in (True, False):
            looks = [look for look in found[judge] if look.is_credit == is_credit]
            percent = np.array([said.get((one.response_id, one.criterion_id, one.start), np.nan) for one in looks])
            chance = support.fitted(looks, marks, cluster, percent if is_credit else None)
            limit = support.limit_of(looks, chance, marks, SupportRule()) if is_credit else 0
            for look, one in zip(looks, chance if chance is not None else np.full(len(looks), np.nan), strict=True):
                right = covered[look.response_id, look.criterion_id]
                kind = ("credit", right, bool(one < limit)) if is_credit else ("none", right, False)
                if held[look.response_id]:
                    row = (judge, look.looked_for.removesuffix(" covered"), look.passage, f"{one:.2f}")
                    kinds.setdefault(kind, []).append(row)
    sections = []
    for kind, words in (
        (("credit", False, True), "Unsupported, by people, and doubted"),
        (("credit", False, False), "Unsupported, by people, and not doubted"),
        (("credit", True, True), "Supported, by people, and doubted"),
        (("credit", True, False), "Supported, by people, and not doubted"),
        (("none", True, False), "Missed: no credit, and people give it"),
    ):
        rows = kinds.get(kind, [])
        some = [rows[place] for place in sorted(rng.permutation(len(rows))[:50])]
        grid = Grid(("judge", "looked for", "passage", "probability"), some)
        sections.append(Section(f"k{len(sections)}", words, f"{len(some)} of {len(rows)}", parts=[grid]))
    return rendered(Page("Study", "summhay", "What quotes support", sections))


def main(said_file=None, page_file=None):
    found, covered, topic_of = everything()
    odd = {text: int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2 == 1 for text in topic_of.values()}
    first = {name: odd[topic] for name, topic in topic_of.items()}
    half = {name: int(hashlib.sha256(f"s{name}".encode()).hexdigest(), 16) % 2 == 1 for name in topic_of}
    itself = {name: name for name in topic_of}
    said = {}
    if said_file:
        for row in pd.read_parquet(said_file).itertuples():
            said[str(row.summary), f"i{row.insight}", row.start] = row.percent
    parts = [{name: half[name] == one and not first[name] for name in half} for one in (True, False)]
    designs = (
        ("new subtopics", first, {name: not first[name] for name in first}, topic_of),
        ("marked subtopics", *parts, itself),
        ("half of all", half, {name: not half[name] for name in half}, itself),
    )
    for name, labelled, held, cluster in designs:
        stated(found, covered, name, labelled, held, cluster, said)
        missed(found, covered, name, labelled, held, cluster)
    if page_file:
        Path(page_file).write_text(page_of(found, covered, *parts, itself, said), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
