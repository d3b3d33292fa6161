"""What a resumed run costs: python tests/bench/bench_resume.py [RESPONSES].

The study has so many responses over ITEMS questions, answered by recorded replies. It is graded once, and then again
in a fresh process in which a call to the judge would be an error.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests"), str(HOUSE / "tests" / "flows")]

ITEMS = 20
ANSWER = "heat is the motion of particles and it flows from warm bodies to cold ones"
STUDY = """
name: resumed
data:
  sources:
    - file: items.csv
      items: {item_id: id, question: question}
    - file: answers.csv
      responses: {response_id: id, item_id: item, author_id: author, text: text}
      scores: [{rater: one, score: one}, {rater: two, score: two}]
rubrics: {derive: {origin: reference_answer, scale: {min: 0, max: 4}}}
split: {per: set, calibration: 1000}
judge:
  protocol: dhs
  backend: replay
  foreign: {file: replies.csv, response_id: id, reply: reply, reader: {json_keys: [score]}, scale: {min: 0, max: 4}}
evaluation: {target: one, draws: 200}
"""
GRADE = """
import sys
sys.path.insert(0, sys.argv[1])
from rubricflow.flows import cli
from rubricflow.tasks.grading.judge import task
if sys.argv[4] == "resumed":
    def asked(*_):
        raise AssertionError("a finished run asked for its judge")
    task.rater = asked
cli.app(["grade", sys.argv[2], "--warehouse", sys.argv[3]])
"""


def make_study(folder, responses):
    """Files of the study: answers of 40 words with two human scores, and a reply to each."""
    (folder / "study.yaml").write_text(STUDY.replace("{item_id: id,", "{item_id: id, reference_answer: answer,"))
    with (folder / "items.csv").open("w") as items:
        items.write("id,question,answer\n")
        items.writelines(f"q{n:02d},What is heat number {n}?,Heat is the motion of particles.\n" for n in range(ITEMS))
    words = ANSWER.split()
    with (folder / "answers.csv").open("w") as answers, (folder / "replies.csv").open("w") as replies:
        answers.write("id,item,author,text,one,two\n")
        replies.write("id,reply\n")
        for n in range(responses):
            quality, text = (n * 7) % 5, " ".join(words[(n * k) % len(words)] for k in range(1, 41))
            answers.write(f"r{n},q{n % ITEMS:02d},a{n // 7},{text} {n}.,{quality},{max(0, quality - n % 2)}\n")
            replies.write(f'r{n},"{{""score"": {min(4, quality + (n % 3 == 0))}}}"\n')
    return folder / "study.yaml"


def timed(code, *words):
    """Seconds that a fresh process takes: by the clock, of processor time; and what it printed."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, used, done.stdout


def outcome(house):
    """Digests of the finished run."""
    [path] = house.glob("*/manifest.json")
    manifest = json.loads(path.read_bytes())
    return manifest["grade_digest"], manifest["tables"]


if __name__ == "__main__":
    responses = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder:
        study, house = make_study(Path(folder), responses), Path(folder) / "house"
        first, _, _ = timed(GRADE, HOUSE, study, house, "first")
        before = outcome(house)
        resumed, resumed_cpu, said = timed(GRADE, HOUSE, study, house, "resumed")
        assert outcome(house) == before
        assert "judge: " not in said
    print(f"{responses:,} responses: graded in {first:.1f} s; again without a call, and all digests are equal:")
    print(f"resumed: {resumed:.1f} s (processor {resumed_cpu:.1f} s)")
