"""Answers that are compared, from a file of pairs to the figures that the command prints: live, resumed, by files, with
recorded verdicts of another system, and as rewards of a group."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import loopback
from builders.files import write_csv

from rubricflow.flows.grade import grade
from rubricflow.flows.group_rewards import GroupReward
from rubricflow.flows.trainers import RubricReward
from rubricflow.flows.validate import planned_calls, prove
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Comparisons, Gradings
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

RUBRICS = """
rubrics:
  - rubric_id: r
    text: The larger number is better.
    scale: {min: 0, max: 1, step: 0.01}
    traits: [{id: t, name: T, min: 0, max: 1, step: 0.01}]
    criteria: [{id: C1, trait: t, text: The number is large.}]
"""
PAIRS = 24


def study_in(folder: Path, **judge: Any) -> Path:
    """Pairs of numbers of which people prefer the larger; the words say nothing."""
    rows = [[f"q{n}", "Which?", f"It is worth {n % 7}.", f"It is worth {(3 * n + 1) % 7}."] for n in range(PAIRS)]
    labels = [(n % 7) - ((3 * n + 1) % 7) for n in range(PAIRS)]
    words = ["B" if gap < 0 else "A" if gap > 0 else "tie" for gap in labels]
    header = ["id", "question", "one", "other", "better"]
    write_csv(folder / "pairs.csv", header, [[*row, word] for row, word in zip(rows, words, strict=True)])
    (folder / "rubrics.yaml").write_text(RUBRICS)
    source = {
        "file": "pairs.csv",
        "items": {"item_id": "id", "question": "question", "rubric_id": {"const": "r"}},
        "pairs": {"item_id": "id", "text_a": "one", "text_b": "other", "winner": "better"},
        "winners": {"A": "a", "B": "b", "tie": "tie"},
    }
    study = {"name": "pairs", "data": {"sources": [source]}, "rubrics": {"file": "rubrics.yaml"}, "judge": judge}
    (folder / "study.yaml").write_text(yaml.safe_dump(study | {"evaluation": {"draws": 100}}))
    return folder / "study.yaml"


def larger(n: int, body: dict[str, Any]) -> bytes:
    """The judge that knows; of two that are as good it takes the first."""
    prompt = body["messages"][-1]["content"]
    worth = [int(number) for number in re.findall(r"\| It is worth (\d)", prompt)]
    if "scores" in body["messages"][0]["content"].splitlines()[-1]:
        said: dict[str, Any] = {"scores": {str(at): number / 10 for at, number in enumerate(worth, 1)}}
    else:
        said = {"winner": "1" if worth[0] >= worth[1] else "2"}
    return loopback.http(200, loopback.body_of(json.dumps({"comparison": "c", **said})))


def figures(run: Run) -> dict[tuple[str, str], float | None]:
    rows = run.table(Metrics, "evaluate").to_pylist()
    return {(row["metric"], row["value_of"]): row["value"] for row in rows if row["metric"].startswith("pair")}


def live(server: loopback.Server, protocol: str = "pairwise", **more: Any) -> dict[str, Any]:
    return {"backend": "openai", "protocol": protocol, "engine": {"model": "m", "urls": [server.url]}, **more}


def test_pairs_are_asked_in_both_orders_measured_printed_and_resumed_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(loopback.Server(larger)) as server:
        study = study_in(tmp_path, **live(server))
        assert planned_calls(study)[-1][3] == 2 * PAIRS
        assert not [finding for finding in prove(study) if finding[0] == "wrong"]
        run = Warehouse.open(tmp_path / "house").run(grade(study, tmp_path / "house"))
        asked = len(server.calls)
        (tmp_path / "house" / run.run_id / "manifest.json").unlink()
        grade(study, tmp_path / "house")
        assert len(server.calls) == asked <= 2 * PAIRS
    out = capsys.readouterr().out
    found = figures(run)
    ties = sum((n % 7) == (3 * n + 1) % 7 for n in range(PAIRS))
    assert (found["pair_accuracy", "all"], found["pair_agreed", "all"]) == (1.0, 1.0)
    assert found["pair_first", "all"] == 0.5  # people's ties are left out
    assert f"1.000 [1.000, 1.000], n {PAIRS - ties}" in out
    rows = run.table(Comparisons, "judge").to_pylist()
    assert len(rows) == len(run.table(Attempts, "judge").to_pylist()) == 2 * PAIRS
    page = (run.folder / "report.html").read_text()
    (headline,) = re.findall("<h1[^>]*>(.*?)</h1>", page, re.DOTALL)
    assert re.findall(r"\d+", headline)[:2] == ["100", str(PAIRS - ties)]  # of scores nothing is said
    assert 'id="preferences"' in page
    assert not re.findall('id="(?:use|agreement|raters|answers)"', page)
    assert not re.search(f"of {2 * PAIRS} (?:scores|answers)", out)


def test_groups_are_scored_in_several_orders(tmp_path: Path) -> None:
    with closing(loopback.Server(larger)) as server:
        study = study_in(tmp_path, **live(server, "groupwise", samples=3))
        run = Warehouse.open(tmp_path / "house").run(grade(study, tmp_path / "house"))
    found = figures(run)
    assert found["pair_accuracy", "all"] == 1.0
    gradings = run.table(Gradings, "judge").to_pylist(maps_as_pydicts="strict")
    assert len({row["signals"]["place"] for row in gradings if row["response_id"] == "q0:a"}) == 2
    assert not run.stages(Comparisons)


def test_recorded_verdicts_of_another_system_are_read_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one prompt the verdict is always the first shown, of the other it is right; one reply says nothing."""
    rows = []
    for n in range(PAIRS):
        worth = n % 7, (3 * n + 1) % 7
        best = "A" if worth[0] > worth[1] else "B" if worth[0] < worth[1] else "neither"
        for shown in ("AB", "BA"):
            rows += [[f"q{n}", shown, "lazy", shown[0]], [f"q{n}", shown, "keen", best if n != 5 else "?"]]
    write_csv(tmp_path / "verdicts.csv", ["pair", "order", "prompt", "said"], rows)
    foreign = {
        "file": "verdicts.csv",
        "response_id": "pair",
        "sample": "prompt",
        "reply": "said",
        "reader": {"pattern": "^(A|B|neither)$", "values": {"A": 1, "B": 2, "neither": 0}},
        "order": {"column": "order", "first": {"AB": "a", "BA": "b"}, "names": "pair"},
    }
    study = study_in(tmp_path, backend="replay", protocol="pairwise", samples=2, foreign=foreign)
    run = Warehouse.open(tmp_path / "house").run(grade(study, tmp_path / "house"))
    found = figures(run)
    assert (found["pair_accuracy", "0"], found["pair_accuracy", "1"]) == (1.0, 0.5)  # keen, lazy
    assert (found["pair_agreed_share", "1"], found["pair_agreed", "0"]) == (0.0, 1.0)
    lost = [row for row in run.table(Comparisons, "judge").to_pylist() if row["winner"] is None]
    counted = f"{len(lost)} of {4 * PAIRS} comparisons"
    assert counted in capsys.readouterr().out
    assert counted in (run.folder / "report.html").read_text()
    assert [(row["item_id"], row["sample"], row["unscored_reason"]) for row in lost] == [
        ("q5", 0, "unreadable_reply")
    ] * 2


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ({"protocol": "pairwise", "backend": "embedded"}, "prose"),
        ({"protocol": "rulers", "compare": {"opponents": 4}}, "compare belongs to protocol: groupwise, pairwise"),
        ({"protocol": "pairwise", "compare": {"opponents": 3}}, "multiple of 2"),
        (
            {"protocol": "pairwise", "backend": "replay"}
            | {"foreign": {"file": "f.csv", "response_id": "id", "reply": "r", "reader": {"pattern": "(.)"}}},
            "foreign.order",
        ),
    ],
)
def test_what_no_comparing_judge_can_be_is_refused(tmp_path: Path, judge: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        grade(study_in(tmp_path, **judge), tmp_path / "house")


# Rewards.


@pytest.fixture
def rewarding(tmp_path: Path) -> Callable[..., GroupReward]:
    def reward(server: loopback.Server, by: Any = "score", protocol: str = "pairwise", **options: Any) -> GroupReward:
        return GroupReward.of_study(study_in(tmp_path, **live(server, protocol)), tmp_path / "house", by, **options)

    return reward


def worth(*numbers: int) -> list[str]:
    return [f"It is worth {number}." for number in numbers]


@pytest.mark.parametrize("protocol", ["pairwise", "groupwise"])
def test_a_groups_rewards_are_in_the_order_of_its_judge(rewarding: Callable[..., GroupReward], protocol: str) -> None:
    with closing(loopback.Server(larger)) as server, rewarding(server, protocol=protocol) as reward:
        found = reward(None, worth(1, 5, 3, 2, 9), item_id=["q0", "q0", "q0", "q1", "q1"])
        assert all(0 <= one <= 1 for one in found)
        assert found[0] < found[2] < found[1]
        assert found[3] < found[4]
        asked = len(server.calls)
        assert reward.score([]) == []
        again = pickle.loads(pickle.dumps(reward))(None, worth(1, 5, 3), item_id=["q0"] * 3)
        assert again[0] < again[2] < again[1]
        if protocol == "pairwise":
            assert asked == 6 + 2
            assert len(server.calls) == asked  # the same pairs are asked once


def test_ranks_are_even_whatever_the_strengths(rewarding: Callable[..., GroupReward]) -> None:
    with closing(loopback.Server(larger)) as server, rewarding(server, "rank") as reward:
        assert reward(None, worth(1, 5, 3, 9), item_id=["q0"] * 4) == pytest.approx([0, 2 / 3, 1 / 3, 1])
        data = [{"item_id": "q1"}] * 2
        assert reward.verl_scores(["d"] * 2, worth(4, 2), [None] * 2, data, unscored=0.0) == [1, 0]


def expected(group: list[int | None], by: str) -> list[float | None]:
    """The share of the others that each stands above, ties by half, by plain pairs; None is a rollout without words."""
    order = [-1 if one is None else one for one in group]
    above = [sum((a > b) + (a == b) / 2 for b in order) - 0.5 for a in order]
    shares: list[float | None] = [share / max(1, len(group) - 1) for share in above]
    return [None] * len(group) if len(group) < 2 else shares


@pytest.mark.parametrize("protocol", ["pairwise", "groupwise"])
@pytest.mark.parametrize(
    "group", [[7, None, None, None], [None, None], [None], [None, 7], [5, 1, None], [9, 2, 5, None]]
)
def test_rollouts_without_words_lose_and_one_with_words_beside_them_wins_unasked(
    rewarding: Callable[..., GroupReward], group: list[int | None], protocol: str
) -> None:
    texts = ["" if one is None else f"It is worth {one}." for one in group]
    with closing(loopback.Server(larger)) as server:
        with rewarding(server, "rank", protocol) as reward:
            assert reward(None, texts, item_id=["q0"] * len(group)) == pytest.approx(expected(group, "rank"))
            with_words = sum(one is not None for one in group)
            assert bool(server.calls) == (with_words > 1)
        with rewarding(server, "score", protocol) as reward:
            scores = reward(None, texts, item_id=["q0"] * len(group))
    if len(group) == 1:
        assert scores == [None]
        return
    assert [score for score, one in zip(scores, group, strict=True) if one is None] == [0.0] * (len(group) - with_words)
    if with_words == 1:
        assert max(scores) == 1.0
    assert sorted(range(len(group)), key=scores.__getitem__) == sorted(
        range(len(group)), key=lambda place: -1 if group[place] is None else group[place] or 0
    )


def test_one_alone_has_no_reward_and_a_judge_that_is_down_ends_the_training(
    rewarding: Callable[..., GroupReward],
) -> None:
    with closing(loopback.Server(larger)) as server, rewarding(server, on_failure="none") as reward:
        assert reward(None, worth(1), item_id=["q0"]) == [None]
        assert reward.unscored == {"not_compared": 1}
    with (
        closing(loopback.Server(lambda n, body: loopback.HANG)) as server,
        rewarding(server, deadline=0.3) as reward,
        pytest.raises(BackendError, match="deadline"),
    ):
        reward(None, worth(1, 2), item_id=["q0"] * 2)


def test_what_cannot_reward_a_group_is_refused(tmp_path: Path, rewarding: Callable[..., GroupReward]) -> None:
    with closing(loopback.Server(larger)) as server:
        with pytest.raises(InputError, match="further_calls"):
            rewarding(server, further_calls=1.0)
        with pytest.raises(InputError, match="by"):
            rewarding(server, by="strength")
        with pytest.raises(InputError, match="compares no answers"):
            rewarding(server, protocol="checked_score")
        with pytest.raises(InputError, match="reward"):
            RubricReward.of_study(study_in(tmp_path, **live(server)), tmp_path / "house")
