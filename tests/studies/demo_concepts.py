"""The demo's concept marks, by rule from its two marking passes: writes data/demo/concept_marks.csv anew.

coverage: gold points hinted at, under a third 0, under four fifths 1, else 2; soundness: a misconception 0, none 1,
none and a gold point said in full 2; core: the level of the heaviest gold point; precision: of the points hinted at
those said in full, none 0, under two thirds 1, else 2; development: words of the response, by the pass's own limits.
"""

import csv
from collections import defaultdict
from pathlib import Path

import yaml

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
WORDS = {"key": (8, 30), "strict": (12, 40)}


def levels_of(rater, marks, gold, text):
    """Concept → level, from one pass's marks of a response; gold: gold point → its weight."""
    points = {name: level for name, level in marks.items() if name in gold}
    wrong = any(level for name, level in marks.items() if name not in gold)
    hinted = [name for name, level in points.items() if level]
    full = [name for name in hinted if points[name] == 2]
    share, exact = len(hinted) / len(points), len(full) / max(1, len(hinted))
    words, (few, many) = len(text.split()), WORDS[rater]
    return {
        "soundness": 0 if wrong else 2 if full else 1,
        "coverage": 0 if share < 1 / 3 else 1 if share < 0.8 else 2,
        "core": points[max(points, key=lambda name: gold[name])],
        "precision": 0 if not full else 1 if exact < 2 / 3 else 2,
        "development": 0 if words < few else 1 if words < many else 2,
    }


def main():
    rubrics = yaml.safe_load((DEMO / "rubrics.yaml").read_text(encoding="utf-8"))["rubrics"]
    gold = {r["rubric_id"]: {c["id"]: c["weight"] for c in r["criteria"] if c["weight"] > 0} for r in rubrics}
    with (DEMO / "responses.csv").open(encoding="utf-8", newline="") as file:
        responses = list(csv.DictReader(file))
    marks = defaultdict(dict)
    with (DEMO / "marks.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            marks[row["response_id"], row["rater_id"]][row["criterion_id"]] = int(row["level"])
    with (DEMO / "concept_marks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["response_id", "rater_id", "criterion_id", "level"])
        for one in responses:
            for rater in WORDS:
                found = levels_of(rater, marks[one["response_id"], rater], gold[one["item_id"]], one["text"])
                writer.writerows([one["response_id"], rater, name, level] for name, level in found.items())


if __name__ == "__main__":
    main()
