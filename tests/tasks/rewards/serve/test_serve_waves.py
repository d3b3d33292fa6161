"""Joint batches: room, order, and what hangs next to what is judged."""

import asyncio
import time
from concurrent.futures import Future
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_scene import paid

from rubricflow.tasks.rewards.serve import waves as waves_module
from rubricflow.tasks.rewards.serve.waves import TooBusyError, Unfinished, Waves

HANGS: Future[None] = Future()


def words(rollouts, until, is_last):
    return [paid("a", float(rollout)) for rollout in rollouts]


def rewards(answers):
    return [answer and answer["reward"] for answer in answers]


def running(play):
    """What a play with waves comes to, on a loop of its own."""

    async def all_of_it():
        waves = Waves(play.judge, play.most_open)
        try:
            return await play(waves)
        finally:
            await waves.finish()

    return asyncio.run(all_of_it())


class Play:
    """Plays on waves with a judge."""

    def __init__(self, act, judge=words, most_open=100):
        self.act, self.judge, self.most_open = act, judge, most_open

    async def __call__(self, waves):
        return await self.act(waves)


@pytest.mark.parametrize(("count", "fits"), [(99, True), (100, True), (101, False)])
def test_room_is_full_when_one_more_rollout_would_be_too_many(count, fits):
    async def act(waves):
        waves.open = 40
        if fits:
            waves.admit(count - 40)
        else:
            with pytest.raises(TooBusyError):
                waves.admit(count - 40)
        waves.open = 0
        waves.admit(1000)  # one request alone is always taken

    running(Play(act))


def late(seconds):
    return time.monotonic() + seconds


def test_what_hangs_costs_neither_its_batch_nor_a_neighbours():
    reply = Future()

    def judge(rollouts, until, is_last):
        return [
            Unfinished(rollout, [reply]) if rollout == "hangs" and not reply.done() else paid("a", 1.0)
            for rollout in rollouts
        ]

    async def act(waves):
        hanging = asyncio.create_task(waves.answers(["hangs", 1, 2], late(600)))
        neighbour = asyncio.create_task(waves.answers([3, 4], late(600)))
        assert rewards(await neighbour) == [1.0, 1.0]
        assert not hanging.done()
        reply.set_result(None)
        assert rewards(await hanging) == [1.0, 1.0, 1.0]
        assert waves.open == 0

    running(Play(act, judge))


def test_a_judge_that_answers_nobody_leaves_every_rollout_open_at_the_deadline():
    over = Event()

    def judge(rollouts, until, is_last):
        over.wait()
        return [paid("a", 1.0) for _ in rollouts]

    async def act(waves):
        try:
            assert await waves.answers([1, 2], late(0.1)) == [None, None]
        finally:
            over.set()
        assert waves.open == 0

    running(Play(act, judge))


def test_the_last_time_comes_before_the_deadline_and_says_so(monkeypatch):
    seen, clock, late_s = [], time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late_s[0])
    monkeypatch.setattr(waves_module, "MARGIN_S", 60.0)

    def judge(rollouts, until, is_last):
        seen.append((is_last, time.monotonic()))
        late_s[0] = 550.0  # what is left of 600 is less than the margin
        return [
            Unfinished(rollout, [HANGS]) if rollout == "hangs" and not is_last else paid("a", float(is_last))
            for rollout in rollouts
        ]

    async def act(waves):
        end = late(600)
        assert rewards(await waves.answers(["hangs", 1], end)) == [1.0, 0.0]
        assert seen[-1][1] < end

    running(Play(act, judge))
    assert [is_last for is_last, _ in seen] == [False, True]


def test_an_error_is_that_of_all_requests_of_the_batch_and_of_no_later_one():
    faults = [ValueError("broken")]

    def judge(rollouts, until, is_last):
        if faults:
            raise faults.pop()
        return words(rollouts, until, is_last)

    async def act(waves):
        both = [asyncio.create_task(waves.answers([n], late(30))) for n in (1, 2)]
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(one) for one in found] == [ValueError, ValueError]
        assert rewards(await waves.answers([3], late(30))) == [3.0]

    running(Play(act, judge))


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=6))
def test_every_rollout_gets_its_own_answer_after_however_many_passes(requests):
    """A number says how often a rollout comes back unfinished before it is judged."""

    def judge(rollouts, until, is_last):
        done = Future()
        done.set_result(None)
        return [
            Unfinished((name, passes - 1), [done]) if passes else paid(name, float(name)) for name, passes in rollouts
        ]

    async def act(waves):
        names = [
            [(100 * number + place, passes) for place, passes in enumerate(of)] for number, of in enumerate(requests)
        ]
        found = await asyncio.gather(*(waves.answers(of, late(60)) for of in names))
        assert [rewards(one) for one in found] == [[float(name) for name, _ in of] for of in names]
        assert waves.open == 0

    running(Play(act, judge))
