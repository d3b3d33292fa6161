"""Does the encoder tell a quote of its criterion from a quote of another? python tests/studies/relevance.py

The demo's answers with the marks of both passes, where these agree; needs `embedded`. A pair is a sentence of an answer
and a criterion of its question. Alone: both passes credit the answer for exactly one criterion (full level), so its
sentences are evidence of that one, and every sentence is a pair with it. Shared words: the sentence of the answer that
shares most rare words with a criterion credited in full. Neither set is chosen by the encoder. Against them stand the
same sentences with each criterion that both passes say is absent from that answer (level 0): sentences that stand in
the answer word for word, and are evidence of something else.

AUC is the probability that a right pair is above a wrong one; its 95% interval resamples answers (2,000 draws).
"""

import math
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
DRAWS = 2_000


def agreed():
    """(response, criterion) → level, where both marking passes say the same."""
    marks = pd.read_csv(DEMO / "marks.csv").pivot_table(
        index=["response_id", "criterion_id"], columns="rater_id", values="level"
    )
    same = marks.dropna()[lambda m: m.nunique(axis=1) == 1]
    return same.iloc[:, 0].astype(int).to_dict()


def rubrics():
    """Item → its criteria."""
    of = {r["rubric_id"]: r["criteria"] for r in yaml.safe_load((DEMO / "rubrics.yaml").read_text())["rubrics"]}
    return {row.item_id: of[row.rubric_id] for row in pd.read_csv(DEMO / "items.csv").itertuples()}


def wanted(criterion):
    return f"{criterion['text']} {criterion['levels'][-1]}"


def closest(criterion, criteria, sentences):
    """The sentence that shares most rare words with a criterion."""
    frequency = Counter(word for one in criteria for word in set(tokens(one["text"])))
    weight = {word: math.log((1 + len(criteria)) / frequency[word]) for word in set(tokens(criterion["text"]))}
    shared = [sum(of for word, of in weight.items() if word in tokens(sentence)) for sentence in sentences]
    return [sentences[int(np.argmax(shared))]] if max(shared) > 0 else []


def pairs():
    """Rows (kind, response, item, criterion, quote, right)."""
    levels, of, rows = agreed(), rubrics(), []
    for row in pd.read_csv(DEMO / "responses.csv", keep_default_na=False).itertuples():
        criteria = of[row.item_id]
        known = {c["id"]: levels.get((row.response_id, c["id"])) for c in criteria}
        full = [c for c in criteria if known[c["id"]] == len(c["levels"]) - 1]
        absent = [c for c in criteria if known[c["id"]] == 0]
        sentences = [row.text[u.start : u.end] for u in units(row.text) if u.kind == "sentence"]
        sentences = [sentence for sentence in sentences if len(tokens(sentence)) > 3]
        if not sentences:
            continue
        quotes = [("shared words", c, q) for c in full for q in closest(c, criteria, sentences)]
        if len(full) == 1 and len(absent) == len(criteria) - 1:
            quotes += [("alone", full[0], sentence) for sentence in sentences]
        for kind, right, quote in quotes:
            rows += [(kind, row.response_id, row.item_id, c["id"], quote, c is right) for c in [right, *absent]]
    return pd.DataFrame(rows, columns=["kind", "response", "item", "criterion", "quote", "right"])


def statistics(rows):
    """What tells right from wrong, each higher where more relevant: name → value per row."""
    of, encode = rubrics(), minilm()
    texts = dict(pd.read_csv(DEMO / "responses.csv", keep_default_na=False).set_index("response_id").text)
    spans = {
        r: [texts[r][u.start : u.end] for u in units(texts[r]) if u.kind == "sentence"] for r in set(rows.response)
    }
    needed = {*rows.quote, *(wanted(c) for criteria in of.values() for c in criteria)}
    needed |= {span for found in spans.values() for span in found}
    vector = dict(zip(needed, encode(list(needed)), strict=True))
    found = []
    for row in rows.itertuples():
        own = next(c for c in of[row.item] if c["id"] == row.criterion)
        quote, mine = vector[row.quote], vector[wanted(own)]
        others = np.array([vector[wanted(c)] @ quote for c in of[row.item] if c is not own])
        best, cosine = max(vector[span] @ mine for span in spans[row.response]), float(mine @ quote)
        found.append(
            {
                "cosine": cosine,
                "beside the mean of other criteria": cosine - others.mean(),
                "beside the best other criterion": cosine - others.max(),
                "beside the best span of the answer": cosine - best,
                "share of exp(10 cosine) among criteria": float(1 / (1 + np.exp(10 * (others - cosine)).sum())),
                "cosine + beside the best other": 2 * cosine - others.max(),
            }
        )
    return pd.DataFrame(found, index=rows.index)


def auc(value, right):
    ranks = pd.Series(value).rank().to_numpy()
    n, m = right.sum(), (~right).sum()
    return (ranks[right].sum() - n * (n + 1) / 2) / (n * m) if n and m else math.nan


def interval(value, right, cluster):
    draw, groups = random.Random(0), {}
    for place, name in enumerate(cluster):
        groups.setdefault(name, []).append(place)
    names, drawn = list(groups), []
    for _ in range(DRAWS):
        places = [place for name in draw.choices(names, k=len(names)) for place in groups[name]]
        drawn.append(auc(value[places], right[places]))
    return np.nanpercentile(drawn, [2.5, 97.5])


def main():
    rows = pairs()
    values = statistics(rows)
    for kind, some in rows.groupby("kind"):
        right, cluster = some.right.to_numpy(bool), some.response.to_numpy()
        print(f"{kind}: {right.sum()} right pairs, {(~right).sum()} wrong ones, {some.response.nunique()} answers")
        for name in values:
            value = values.loc[some.index, name].to_numpy()
            low, high = interval(value, right, cluster)
            shares = []
            for alarm in (0.01, 0.05, 0.1):
                least = np.quantile(value[right], alarm)
                shares.append(f"{alarm:.0%} at {least:.2f} finds {(value[~right] < least).mean():.0%}")
            print(f"  {name}: AUC {auc(value, right):.3f} ({low:.3f} to {high:.3f}); false alarms {'; '.join(shares)}")


if __name__ == "__main__":
    main()
