"""The token budget: what is paid for is kept, and nothing is begun that could not be paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backends.scripted import Offline, Scripted
from rubricflow.tasks.core.llm.budget import Budgeted, BudgetSpent, TokenBudget, longest
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request


def asking(i, characters=30, reply=10):
    text = f"{i} ".ljust(characters, "x")
    return Request(messages=(Message("user", text),), role="grade", subject=str(i), sampling=Sampling(max_tokens=reply))


def costing(prompt, completion):
    return Scripted(lambda request: Reply(text=request.subject, prompt_tokens=prompt, completion_tokens=completion))


def check(request, reply):
    return Checked(reply.text, ())


def run(requests, backend, purse, store):
    """Values of what was answered; None where the budget ended it."""
    try:
        return [one.value for one in ask(requests, Budgeted(backend, purse), store, check)]
    except BudgetSpent:
        return None


def test_the_longest_size_is_prompt_and_longest_reply():
    assert longest(asking(1, characters=30, reply=10)) == 30 // 3 + 10


def test_a_budget_that_suffices_changes_nothing():
    backend = costing(10, 10)
    with ReplyStore(":memory:") as store:
        assert run([asking(i) for i in range(50)], backend, TokenBudget(50 * 20), store) == [str(i) for i in range(50)]
    assert backend.calls == 50


def test_what_is_spent_is_kept_and_the_same_call_continues():
    requests, calls = [asking(i) for i in range(50)], []
    with ReplyStore(":memory:") as store:
        for _ in range(4):
            backend, purse = costing(10, 10), TokenBudget(15 * 20)
            values = run(requests, backend, purse, store)
            calls.append((backend.calls, purse.spent))
        assert calls == [(15, 300), (15, 300), (15, 300), (5, 100)]
        assert values == [str(i) for i in range(50)]


def test_waiting_for_a_turn_begins_nothing():
    answered = []
    reply = Reply(text="x", prompt_tokens=10, completion_tokens=10)
    backend = Offline("m", lambda batch: [answered.append(data) or reply for data in batch])
    with ReplyStore(":memory:") as store, pytest.raises(BudgetSpent):
        ask([asking(i) for i in range(50)], Budgeted(backend, TokenBudget(15 * 20)), store, check)
    assert len(answered) == 15


def test_the_message_says_what_was_spent_and_how_to_go_on():
    with ReplyStore(":memory:") as store, pytest.raises(BudgetSpent) as caught:
        ask([asking(i, 3000, 500) for i in range(3)], Budgeted(costing(1000, 500), TokenBudget(2000)), store, check)
    assert "1,500 of 2,000 tokens are spent" in str(caught.value)
    assert "the same command continues" in str(caught.value)


def test_a_request_that_never_fits_is_not_asked():
    backend = costing(10, 10)
    with ReplyStore(":memory:") as store:
        assert run([asking(1, reply=1000)], backend, TokenBudget(500), store) is None
    assert backend.calls == 0


def test_grading_and_mending_share_a_purse():
    purse, grading, mending = TokenBudget(100), costing(10, 10), costing(30, 10)

    def check_mended(request, reply):
        return Checked(reply.text, () if reply.prompt_tokens == 30 else ("bad",))

    def repair(request, history):
        return asking(f"{request.subject} again")

    with ReplyStore(":memory:") as store:
        asked = ask([asking(1)], Budgeted(grading, purse), store, check_mended, repair, mender=Budgeted(mending, purse))
    assert asked[0].attempts[-1].checked.violations == ()
    assert purse.spent == 60


def test_a_backend_that_begins_nothing_of_its_own_accord_is_not_taken_for_a_spent_budget():
    """An error reply costs nothing and the next one is asked."""
    backend = Scripted(lambda request: Reply(error="too_long: no"))
    with ReplyStore(":memory:") as store:
        assert run([asking(i) for i in range(20)], backend, TokenBudget(45), store) == [None] * 20


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=30),
    st.integers(0, 400),
    st.integers(1, 7),
)
def test_never_more_is_spent_than_given_and_every_reply_is_kept(costs, tokens, batch):
    """With prompts as long as reckoned at most and replies within their limit."""
    script = [Reply(text=str(i), prompt_tokens=p, completion_tokens=c) for i, (p, c) in enumerate(costs)]
    backend, purse = Scripted(script, batch_size=batch), TokenBudget(tokens)
    with ReplyStore(":memory:") as store:
        values = run([asking(i) for i in range(len(costs))], backend, purse, store)
        assert len(store) == backend.calls
    assert purse.spent <= tokens
    assert (values is None) == (backend.calls < len(costs))
    assert purse.spent == sum(p + c for p, c in costs[: backend.calls])
