"""The mailbox: requests as files, answers in any order and state, and the same study as through a live server."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import loopback
from builders.batch_server import CANCEL, FAIL, LOSE, AnthropicServer, Batch, BatchServer, GeminiServer, OpenAIServer
from builders.command import command, done, last_run
from click.testing import Result
from tiny_study import make_study, with_judge

from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.llm import mailbox_folder, submit
from rubricflow.tasks.core.llm.mailbox_folder import Mailbox

JUDGE = {
    "protocol": "rulers",
    "repair": {"contract": 1, "semantic": 1},
    "samples": 2,
    "sampling": {"max_tokens": 300, "temperature": 0.5},
    "backend": "openai",
}
ANSWERS = 12
ASKED = {"backend": "openai", "engine": {"model": "strong", "urls": ["http://127.0.0.1:1/v1"], "patience_s": 0}}


def reply_to(prompt: str) -> str:
    """A reply that depends on the answer alone; to some the first one breaks the contract."""
    number = int(re.findall(r"answer (\d+)", prompt)[0])
    if number % 5 == 0 and "did not pass its check" not in prompt:
        return '{"decisions":{"P1":{"level":7,"evidence":[]}}}'
    level = number % 3
    quotes = [{"unit": "sentence 1", "quote": f"answer {number}"}] if level else []
    return json.dumps({"decisions": {"P1": {"level": level, "evidence": quotes}}})


def play(n: int, body: dict, reply: Callable[[str], str] = reply_to) -> bytes:
    prompt = "\n".join(turn["content"] for turn in body["messages"] if turn["role"] != "system")
    return loopback.http(200, loopback.body_of(reply(prompt)))


def study_in(folder: Path, urls: list[str] | None = None) -> Path:
    engine = {"model": "strong", "urls": urls or ["http://127.0.0.1:1/v1"]}
    return with_judge(make_study(folder, ANSWERS), JUDGE | {"engine": engine})


def cases(file: Path) -> dict[str, str]:
    """Id → what a case shows, of a plain file."""
    return {
        case["id"]: "\n".join(turn["content"] for turn in case["messages"])
        for case in map(json.loads, file.read_text().splitlines()[1:])
    }


def answered(box: Path, name: str) -> None:
    """Answers a file of requests, in the reverse order."""
    asked = reversed(cases(box / f"{name}.jsonl").items())
    lines = [json.dumps({"id": key, "reply": reply_to(prompt)}) for key, prompt in asked]
    (box / "answers" / f"{name}.jsonl").write_text("\n".join(lines))


def digests(house: Path) -> dict[str, str]:
    run = last_run(house)
    stages = {Rubrics: "lock", Bundles: "lock", Judgments: "judge", Gradings: "judge", Predictions: "calibrate"}
    return {table.__name__: run.ref(table, stage).digest for table, stage in stages.items()}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of the study as a live server grades it."""
    folder, server = tmp_path_factory.mktemp("live"), loopback.Server(play)
    result = command("grade", study_in(folder, [server.url]), "--warehouse", folder / "house")
    server.close()
    assert result.exit_code == 0, result.output
    return digests(folder / "house")


def carried(study: Path, house: Path, box: Path, answer: Callable[[str], None], *more: str) -> Result:
    """The study by a mailbox that somebody carries, to its end."""
    words = ("batch", study, "--warehouse", house, *more)
    result = command(*words, "--to", box)
    while "put the answers" in result.output:
        waves = json.loads((box / "mailbox.json").read_text())["files"]
        for file in waves:
            if file["wave"] == waves[-1]["wave"]:
                answer(file["name"])
        result = command(*words, "--from", box)
    assert result.exit_code == 0, result.output
    return result


def test_the_mailbox_grades_as_a_live_server_does(tmp_path: Path, live: dict[str, str]) -> None:
    box = tmp_path / "box"
    last = carried(study_in(tmp_path / "a"), tmp_path / "house", box, lambda name: answered(box, name))
    assert digests(tmp_path / "house") == live
    assert [line for line in last.stderr.splitlines() if "ingest" in line or "read as" in line] == []


ASKING = {"openai": ("custom_id", "body"), "anthropic": ("custom_id", "params"), "gemini": ("key", "request")}


def worked(box: Path, name: str, server: BatchServer, form: str, chance: random.Random, twice: int = 0) -> list[str]:
    """Brings what a provider would make of a file: its lines of results in any order, some of them twice. Gives the
    custom ids that were asked."""
    (path,) = box.glob(f"{name}.json*")
    text = path.read_text()
    lines = json.loads(text)["requests"] if form == "anthropic" else map(json.loads, text.splitlines())
    key, body = ASKING[form]
    batch = Batch(len(server.batches), {line[key]: line[body] for line in lines}, None, datetime.now(UTC))
    server.batches.append(batch)
    errors = (False, True) if form == "openai" else ()
    files = [server.results(batch, which) for which in errors] or [server.results(batch)]
    for number, results in enumerate(files):
        came = results.decode().splitlines()
        came += [line for line in came if "decisions" in line][:twice]
        chance.shuffle(came)
        (box / "answers" / f"batch_{batch.number}_{number}.jsonl").write_text("\n".join(came))
    return list(batch.requests)


SERVERS = {
    "openai": (OpenAIServer, "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY"),
    "anthropic": (AnthropicServer, "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"),
    "gemini": (GeminiServer, "GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY"),
}


@pytest.mark.parametrize("form", SERVERS)
def test_a_providers_files_are_carried_by_hand_to_the_same_end(form: str, tmp_path: Path, live: dict[str, str]) -> None:
    server, asked, box = SERVERS[form][0](reply_to), Counter[str](), tmp_path / "box"
    server.close()
    fates: dict[str, str] = {}

    def fate(key: str, number: int) -> str | None:
        if number == 0 and len(fates) < 2:
            fates.setdefault(key, ("expired", "error")[len(fates)])
        return fates.get(key) if number == 0 else None

    server.fate = fate
    chance = random.Random(7)
    said: list[str] = []
    words = ("batch", study_in(tmp_path / "a"), "--warehouse", tmp_path / "house")
    said.append(command(*words, "--to", box, "--form", form).output)
    while "put the answers" in said[-1]:
        name = json.loads((box / "mailbox.json").read_text())["files"][-1]["name"]
        asked.update(worked(box, name, server, form, chance, twice=1))
        said.append(command(*words, "--from", box).output)
    assert digests(tmp_path / "house") == live, said[-1]
    assert "2 answers failed, and are asked again:" in said[1]
    assert "1 answers are there twice, the same:" in said[1]
    assert {key for key, count in asked.items() if count == 2} == set(fates)
    assert max(asked.values()) == 2


INDUCED = {
    "rubrics": {"file": "rubrics.yaml", "induce": {"criteria": 2, "seed": 3}},
    "judge": JUDGE | {"samples": 1},
}


def induce_or_judge(prompt: str) -> str:
    """Two checklist items of a rubric, where none is judged; else a decision of each."""
    if not (number := re.findall(r"answer (\d+)", prompt)):
        levels = {"absent": "not said", "partial": "half said", "clear": "said"}
        items = [{"text": f"It says {what}.", "evidence": "local_quote", "levels": levels} for what in ("heat", "cold")]
        return json.dumps({"traits": {"content": {"items": items}}})
    quotes = [{"unit": "sentence 1", "quote": f"answer {number[0]}"}]
    made = {f"I0{n}": {"level": int(number[0]) * n % 3, "evidence": quotes} for n in (1, 2)}
    return json.dumps(
        {"decisions": {name: one if one["level"] else one | {"evidence": []} for name, one in made.items()}}
    )


def test_a_rubric_is_induced_by_mailbox_as_by_a_live_server(tmp_path: Path) -> None:
    def induced_study(folder: Path, url: str) -> Path:
        study = study_in(folder, [url])
        rubrics = yaml.safe_load((folder / "rubrics.yaml").read_text())
        for rubric in rubrics["rubrics"]:
            rubric |= {"text": "A good answer says what heat and cold are."}
            del rubric["criteria"]
        (folder / "rubrics.yaml").write_text(yaml.safe_dump(rubrics))
        settings = yaml.safe_load(study.read_text()) | INDUCED
        settings["judge"]["engine"] = {"model": "strong", "urls": [url]}
        study.write_text(yaml.safe_dump(settings))
        return study

    server = loopback.Server(lambda n, body: play(n, body, induce_or_judge))
    result = command("grade", induced_study(tmp_path / "live", server.url), "--warehouse", tmp_path / "live/house")
    server.close()
    assert result.exit_code == 0, result.output
    box, provider = tmp_path / "box", AnthropicServer(induce_or_judge)
    provider.close()

    def answer(name: str) -> None:
        worked(box, name, provider, "anthropic", random.Random(1))

    study = induced_study(tmp_path / "a", "http://127.0.0.1:1/v1")
    carried(study, tmp_path / "house", box, answer, "--form", "anthropic")
    assert digests(tmp_path / "house") == digests(tmp_path / "live/house")
    rows = last_run(tmp_path / "house").table(Rubrics, "lock").to_pylist()
    assert [[call["role"] for call in row["calls"]] for row in rows] == [["induce"]] * 2
    assert json.loads((box / "mailbox.json").read_text())["files"][0]["wave"] == 1


@pytest.fixture
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """A scripted provider of batches, that its library finds."""
    pytest.importorskip({"gemini": "google.genai"}.get(request.param, request.param), reason="an extra is not there")
    kind, variable, suffix, key = SERVERS[request.param]
    server = kind(reply_to)
    monkeypatch.setenv(variable, server.url + suffix)
    monkeypatch.setenv(key, "secret-key")
    monkeypatch.setattr("rubricflow.tasks.core.llm.submit.LOOK_S", (0.01, 0.02))
    yield request.param, server
    server.close()


BY_OPENAI = pytest.mark.parametrize("provider", ["openai"], indirect=True)


@pytest.mark.parametrize("provider", SERVERS, indirect=True)
def test_a_submitted_study_goes_on_after_faults_and_is_the_same(provider, tmp_path: Path, live: dict[str, str]) -> None:
    name, server = provider
    fates = {"0": "expired", "1": "error", "2": "error"}
    server.fate = lambda key, number: fates.get(key[0]) if number == 0 else None
    server.faults = [LOSE]
    words = ("batch", study_in(tmp_path / "a"), "--warehouse", tmp_path / "house", "--submit", name)
    lost = command(*words, "--to", tmp_path / "box")
    assert (lost.exit_code, len(server.batches)) == (2, 1), lost.output
    done(*words, "--from", tmp_path / "box")
    asked = [key for batch in server.batches for key in batch.requests if not server.fate(key, batch.number)]
    assert len(asked) == len(set(asked))  # what was answered was asked once, the lost batch was found again
    assert digests(tmp_path / "house") == live
    texts = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret-key" not in texts


KINDS: dict[str, dict[str, Any]] = {
    "annotate": {
        "annotation": {
            "annotators": {"first": ASKED, "second": ASKED | {"engine": ASKED["engine"] | {"model": "other"}}}
        }
    },
    "graph": {"graph": ASKED},
    "reward": {
        "judge": {"protocol": "pointwise", **ASKED},
        "graph": ASKED,
        "reward": {"retention": {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}, "draws": 50},
    },
    "faithful": {"judge": {"protocol": "dhs", **ASKED}},
    "train": {
        "split": {"per": "set", "shares": [0.4, 0.3, 0.3]},
        "bottleneck": {"labels": "one", "methods": ["plm"], "seeds": [0], "training": {"epochs": 1}}
        | {"prompted": ASKED | {"shots": [0, 1]}},
    },
    "propose": {},
}


INVENTED = {"evidence": "local_quote", "levels": ["not at all", "in part", "wholly"]}


def instance(schema: Any, path: str = "said") -> Any:
    """The least that keeps a schema."""
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], path)
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return {name: instance(member, f"{path} {name}") for name, member in schema["properties"].items()}
        case "array":
            return [instance(schema["items"], f"{path} {n}") for n in range(schema.get("minItems", 0))]
        case "string":
            return f"Some words on what is {path}"[: schema.get("maxLength", 99)]
    return schema.get("minimum", 0)


@pytest.mark.parametrize("work", KINDS)
def test_every_kind_of_work_asks_by_mailbox(work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, box, house = study_in(tmp_path / "a"), tmp_path / "box", tmp_path / "house"
    study.write_text(yaml.safe_dump(yaml.safe_load(study.read_text()) | KINDS[work]))
    rubrics = yaml.safe_load((study.parent / "rubrics.yaml").read_text())
    if work == "graph":  # of a single criterion nothing is asked
        for rubric in rubrics["rubrics"]:
            rubric["criteria"] += [one | {"id": f"{one['id']}_too"} for one in rubric["criteria"]]
        (study.parent / "rubrics.yaml").write_text(yaml.safe_dump(rubrics))
    schemas: dict[str, Any] = {}
    write_wave = Mailbox.write_wave

    def seen(mailbox: Mailbox, noted: Any, form: str) -> Any:
        schemas.update((key[:16], one.request.schema) for key, one in noted.items())
        return write_wave(mailbox, noted, form)

    def answer(name: str) -> None:
        concepts = [INVENTED | {"id": f"c{n}", "name": f"Of {'abcdefgh'[n]}"} for n in range(8)]
        concepts = [one | {"definition": f"It is about {one['name']} and {one['id']}."} for one in concepts]
        inventory = {"groups": [{"name": "All", "concepts": concepts}]}
        replies = {
            key: inventory if work == "propose" else instance(schemas[key]) for key in cases(box / f"{name}.jsonl")
        }
        lines = [json.dumps({"id": key, "reply": reply}) for key, reply in replies.items()]
        (box / "answers" / f"{name}.jsonl").write_text("\n".join(lines))

    monkeypatch.setattr(Mailbox, "write_wave", seen)
    result = carried(study, house, box, answer, "--work", work)
    assert len(schemas) >= 2 or work == "propose", result.output
    # What the mailbox brought is all that the command itself asks: no server is there.
    monkeypatch.setenv("RUBRICFLOW_REPLIES", str(house / "replies.sqlite"))
    more = ["--to", tmp_path / "mine.yaml"] if work == "propose" else []
    done(work, study, "--warehouse", tmp_path / "other", *more)


@BY_OPENAI
def test_a_submitted_study_stays_within_its_budget_and_a_higher_one_goes_on(
    provider, tmp_path: Path, live: dict[str, str]
) -> None:
    _, server = provider
    server.tokens = (500, 8000)
    study, box = study_in(tmp_path / "a"), tmp_path / "box"
    words = ("batch", study, "--warehouse", tmp_path / "house", "--to", box, "--submit", "openai")
    refused = command(*words, "--budget-usd", 1)
    assert (refused.exit_code, "nobody says what 'strong' costs" in refused.output) == (2, True)
    settings = yaml.safe_load(study.read_text())
    settings["judge"]["engine"]["price"] = {"input": 2, "output": 10, "batch": 0.5}
    study.write_text(yaml.safe_dump(settings))
    counts = []
    # A request may take 0.1 dollars or 25,000 tokens, with its room for thought; it takes less, as the server counts.
    for option, budget, each in (
        ("--token-budget", 25_000, 8500),
        ("--budget-usd", 0.3, (500 * 1 + 8000 * 5) / 1e6),
        ("--budget-usd", 0.3, (500 * 1 + 8000 * 5) / 1e6),
    ):
        stopped = command(*words, option, budget)
        counts.append(sum(len(batch.requests) for batch in server.batches))
        assert stopped.exit_code == 2
        assert "are not asked: the " in stopped.stderr
        assert "with a higher budget the same command continues" in stopped.stderr
        assert counts[-1] * each <= budget
    assert 0 < counts[0] < counts[1] == counts[2] < 30
    done(*words, "--budget-usd", 3)
    assert digests(tmp_path / "house") == live


class Killed(BaseException):
    """What ends a process at once."""


@BY_OPENAI
def test_a_command_killed_before_and_after_every_write_asks_nothing_twice(
    provider, tmp_path: Path, live: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, server), points = provider, set[tuple[str, int, str]]()
    write, written = mailbox_folder.write_atomically, Counter[str]()

    def dying(path: Path, content: bytes) -> None:
        for when in ("before", "after"):
            point = path.name, written[path.name], when
            if point not in points:
                points.add(point)
                raise Killed
            if when == "before":
                write(path, content)
        written[path.name] += 1

    for module in (mailbox_folder, submit):
        monkeypatch.setattr(module, "write_atomically", dying)
    study, box = study_in(tmp_path / "a"), tmp_path / "box"
    for _ in range(40):
        try:
            result = command("batch", study, "--warehouse", tmp_path / "house", "--to", box, "--submit", "openai")
            break
        except Killed:
            continue
    assert result.exit_code == 0, result.output
    assert len(points) >= 16
    asked = [key for batch in server.batches for key in batch.requests]
    assert len(asked) == len(set(asked))
    assert digests(tmp_path / "house") == live


@BY_OPENAI
def test_a_batch_that_is_refused_says_why_and_is_sent_again_by_the_same_command(
    provider, tmp_path: Path, live: dict[str, str]
) -> None:
    _, server = provider
    server.faults = [401, FAIL, CANCEL]
    server.fate = lambda key, number: "expired" if number == 1 and key[0] > "7" else None
    study, box = study_in(tmp_path / "a"), tmp_path / "box"
    words = ("batch", study, "--warehouse", tmp_path / "house", "--to", box, "--submit", "openai")
    said = [command(*words) for _ in range(4)]
    assert [result.exit_code for result in said] == [2, 2, 2, 0]
    assert "Incorrect API key" in said[0].output
    assert "wave-1 failed: Enqueued token limit" in said[1].output
    assert "wave-2 cancelled: " in said[2].output
    assert digests(tmp_path / "house") == live
