"""Budgets: what is paid for is kept, and nothing is begun that could not be paid for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backend import Offline, Scripted
from rubricflow.tasks.core.llm.budget import (
    Budget,
    Budgeted,
    BudgetSpent,
    SharedCap,
    budget_of,
    kept_budget,
    ledger_of,
    longest,
    most_tokens,
    on_budget,
    present_budget,
    spending,
)
from rubricflow.tasks.core.llm.forms import FORMS
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.prices import Price, Rates
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.store.warehouse import Warehouse


def asking(i, characters=30, reply=10):
    text = f"{i} ".ljust(characters, "x")
    return Request(messages=(Message("user", text),), role="grade", subject=str(i), sampling=Sampling(max_tokens=reply))


def costing(prompt, completion):
    return Scripted(lambda request: Reply(text=request.subject, prompt_tokens=prompt, completion_tokens=completion))


def check(request, reply):
    return Checked(reply.text, ())


def run(requests, backend, cap, store):
    """Values of what was answered; None where the budget ended it."""
    try:
        return [one.value for one in ask(requests, Budgeted(backend, cap), store, check)]
    except BudgetSpent:
        return None


def test_what_is_spent_is_kept_and_the_same_call_continues():
    requests, calls = [asking(i) for i in range(50)], []
    with ReplyStore(":memory:") as store:
        for _ in range(4):
            backend, cap = costing(10, 10), budget_of(15 * 20)
            values = run(requests, backend, cap, store)
            calls.append((backend.calls, cap["tokens"].spent))
        assert calls == [(15, 300), (15, 300), (15, 300), (5, 100)]
        assert values == [str(i) for i in range(50)]


def test_the_message_says_what_was_spent_and_how_to_go_on():
    with ReplyStore(":memory:") as store, pytest.raises(BudgetSpent) as caught:
        ask([asking(i, 3000, 500) for i in range(3)], Budgeted(costing(1000, 500), budget_of(2000)), store, check)
    assert "1,500 of 2,000 tokens are spent" in str(caught.value)
    assert "the same command continues" in str(caught.value)


def test_waiting_for_a_turn_begins_nothing():
    answered = []
    reply = Reply(text="x", prompt_tokens=10, completion_tokens=10)
    backend = Offline("m", lambda batch: [answered.append(data) or reply for data in batch])
    with ReplyStore(":memory:") as store, pytest.raises(BudgetSpent):
        ask([asking(i) for i in range(50)], Budgeted(backend, budget_of(15 * 20)), store, check)
    assert len(answered) == 15


def test_grading_and_mending_share_a_purse():
    cap, grading, mending = budget_of(100), costing(10, 10), costing(30, 10)

    def check_mended(request, reply):
        return Checked(reply.text, () if reply.prompt_tokens == 30 else ("bad",))

    def repair(request, history):
        return asking(f"{request.subject} again")

    with ReplyStore(":memory:") as store:
        asked = ask([asking(1)], Budgeted(grading, cap), store, check_mended, repair, mender=Budgeted(mending, cap))
    assert asked[0].attempts[-1].checked.violations == ()
    assert cap["tokens"].spent == 60


def test_a_backend_that_begins_nothing_of_its_own_accord_is_not_taken_for_a_spent_budget():
    """An error reply costs nothing and the next one is asked."""
    backend = Scripted(lambda request: Reply(error="too_long: no"))
    with ReplyStore(":memory:") as store:
        assert run([asking(i) for i in range(20)], backend, budget_of(45), store) == [None] * 20


# A provider that charges for every call that was begun, answered or not, and runs that are killed and go on.


class Provider:
    """Answers by chance, some calls ahead of those that wait, and writes its own bill."""

    name, model, reads_prose, by_subject, batch_size = "provider", "m", True, False, 7

    def __init__(self, chance: random.Random, rates: Rates, lives: int) -> None:
        self.chance, self.rates, self.lives, self.bill = chance, rates, lives, Fraction(0)

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        waiting, open_, ahead = enumerate(requests), [], self.chance.randint(1, 9)
        while True:
            while len(open_) < ahead and (pair := next(waiting, None)) is not None:
                open_.append((pair[0], self.called(pair[1])))
            if not open_:
                return
            if not self.lives:
                raise KeyboardInterrupt
            self.lives -= 1
            yield open_.pop(self.chance.randrange(len(open_)))

    def called(self, request: Request) -> Reply:
        chance, text = self.chance, "".join(message.content for message in request.messages)
        prompt = chance.randint(len(text) // 5, len(text.encode()) + 900)
        written, reply = chance.randint(0, prompt), chance.choice([9, request.sampling.longest])
        cached = chance.randint(0, prompt - written)
        if chance.random() < 0.05:
            return Reply(error="refused: no")
        parts = (prompt - cached - written, cached, written, reply)
        self.bill += sum(Fraction(rate) * part for rate, part in zip(self.rates, parts, strict=False)) / 1_000_000
        lost = chance.random()
        if lost < 0.1:
            return Reply(error="deadline: no answer in time") if lost < 0.05 else Reply(text="good")
        counts = {"prompt_tokens": prompt, "cached_tokens": cached, "written_tokens": written}
        return Reply(text=chance.choice(["good", "bad"]), completion_tokens=reply, **counts)


def repaired(request: Request, history) -> Request | None:
    more = (*request.messages, Message("user", f"{len(history)}: {history[-1].reply.text}"))
    return Request(messages=more, role="semantic_repair", subject="r", sampling=request.sampling)


def graded(store: ReplyStore, provider: Provider, rates: Rates, budget: Budget, samples: int) -> None:
    """As a judge asks: sample by sample, everything once and what is bad again."""
    texts = ["a plain answer", "eine Antwort mit Umlauten: äöü", "答え" * 40, "🙂" * 20, "x" * 500]
    with spending(budget):
        backend = on_budget(provider, Price((rates,), (rates,), "the test", None))
    for seed in range(samples):
        requests = [
            Request(
                messages=(Message("user", f"{n} {text}"),),
                role="grade",
                subject="s",
                sampling=Sampling(seed=seed, max_tokens=30 + 3_000 * (n % 3)),
            )
            for n, text in enumerate(texts * 2)
        ]
        ask(requests, backend, store, lambda _, reply: Checked(reply.text, ("bad",) * (reply.text == "bad")), repaired)


def cut_down(cap: SharedCap) -> None:
    """A process that is killed gives nothing back."""


@pytest.mark.parametrize("workers", [0, 2])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), usd=st.floats(0.001, 3.0))
def test_a_run_never_costs_more_than_its_budget_whatever_comes(workers: int, seed: int, usd: float) -> None:
    """Runs: prices, lengths, caches, lost replies and kills by chance, by one process and by workers who
    share, one command after the other, the last with a higher budget."""
    chance = random.Random(seed)
    rates = Rates(*(chance.choice([0.05, 1, 3.75, 25, 75]) for _ in range(4)))
    provider = Provider(chance, rates, 0)
    with ReplyStore(":memory:") as store, TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        house = Warehouse.open(Path(folder) / "house")
        for lives, most in ((chance.randint(0, 60), usd), (chance.randint(0, 60), usd), (10**6, usd), (10**6, 2 * usd)):
            provider.lives = lives
            ends = chance.random() < 0.5  # by a signal that nobody can catch
            with suppress(BudgetSpent, KeyboardInterrupt), kept_budget(house, "run", None, most):
                parts: list[Budget] = [present_budget()]
                if workers:
                    ledger = CallLedger(ledger_of(house))
                    parts = [{"usd": SharedCap(ledger, "run usd", chance.randint(1, 10**8))} for _ in range(workers)]
                for part in parts:
                    with suppress(BudgetSpent, KeyboardInterrupt):
                        graded(store, provider, rates, part, samples=2)
                    if workers and provider.lives:
                        part["usd"].give_back()
                if not provider.lives and ends:
                    patched.setattr(SharedCap, "give_back", cut_down)
            patched.undo()
            assert provider.bill <= Fraction(most)
        with closing(CallLedger(ledger_of(house))) as ledger:
            assert Fraction(ledger.drawn("run usd")[0] + 1, 10**9) >= provider.bill


def test_a_call_that_a_broken_backend_did_not_answer_costs_nothing_and_one_that_was_broken_off_all() -> None:
    requests = [asking(i) for i in range(9)]

    class Broken(Scripted):
        ending: BaseException

        def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
            waiting = iter(requests)
            next(waiting), next(waiting)
            yield 1, Reply(text="fine", prompt_tokens=10, completion_tokens=10)
            raise self.ending

    for ending, kept in ((BackendError("gone"), 0), (KeyboardInterrupt(), longest(requests[0]))):
        budget = budget_of(10**6)
        backend = Broken(lambda request: Reply(text=""))
        backend.ending = ending
        with ReplyStore(":memory:") as store, suppress(BackendError, KeyboardInterrupt):
            ask(requests, Budgeted(backend, budget), store, check)
        assert (budget["tokens"].spent, budget["tokens"].reserved) == (20, kept)


def test_dollars_need_a_price_and_the_message_says_what_is_lacking() -> None:
    rates = Rates(2.0, 0.2, 2.5, 10.0)
    with spending(budget_of(usd=0.004)), ReplyStore(":memory:") as store:
        with pytest.raises(InputError, match=r"engine\.price.*nobody says what 'scripted' costs"):
            on_budget(costing(10, 10))
        backend = on_budget(costing(1000, 100), Price((rates,), (rates,), "the test", None))
        with pytest.raises(BudgetSpent, match=r"\$0\.0030 of \$0\.0040 are spent.*up to \$0\.0036"):
            ask([asking(i, reply=100) for i in range(3)], backend, store, check)


def test_no_prompt_has_more_tokens_than_it_is_taken_for() -> None:
    """Bytes bound every tokenizer; the contract travels with the prompt."""
    plain = Request(messages=(Message("user", "答え🙂"),), role="grade", subject="s", sampling=Sampling(max_tokens=7))
    held = replace(plain, schema={"type": "object"})
    assert most_tokens(plain) == (10 + 1_000, 7, 0, 0)
    engine = Engine(model="m", provider="anthropic", effort="low")
    assert most_tokens(plain, engine).reply == FORMS["anthropic"].body(plain, engine)["max_tokens"] > 7
    assert most_tokens(held).prompt == most_tokens(plain).prompt + len('{"type":"object"}')
