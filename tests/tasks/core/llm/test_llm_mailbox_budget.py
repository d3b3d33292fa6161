"""A budget for a mailbox: whatever its providers charge, answered or not, wave after wave, it is not passed."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling, TokenPrice
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.budget import budget_of, most_tokens
from rubricflow.tasks.core.llm.mailbox import Collector, NotedRequest, Outbox, WaitingForReplies
from rubricflow.tasks.core.llm.mailbox_folder import AskedFile, Mailbox, opened
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Request, digest
from rubricflow.tasks.core.llm.submit import MailboxBudget

PRICE = TokenPrice(input=3.0, output=15.0, cached=0.3, cache_write=3.75, batch=0.5)
LONGEST = 200


def asking(n: int, text: str) -> Request:
    turns = Message("system", "Grade."), Message("user", f"{n} {text}")
    return Request(messages=turns, role="grade", subject="s", sampling=Sampling(max_tokens=LONGEST))


TEXTS = ["a plain answer", "eine Antwort mit Umlauten: äöü", "答え" * 40, "🙂" * 20, "x" * 500] * 2
REQUESTS = [asking(n, text) for n, text in enumerate(TEXTS)]


def repaired(request: Request, history: Any) -> Request | None:
    if len(history) > 2:
        return None
    more = (*request.messages, Message("user", f"{len(history)}: {history[-1].reply.text}"))
    return Request(messages=more, role="semantic_repair", subject="r", sampling=request.sampling)


class Provider:
    """Works files of requests by chance and writes its own bill."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance, self.folder, self.bill, self.files = chance, folder, Fraction(0), 0

    def work(self, file: AskedFile, noted: dict[str, NotedRequest]) -> None:
        """Answers most of the requests; some in two files, some twice."""
        lines = [line for key in file.digests for line in self.answered(file.form, key, noted[key])]
        self.chance.shuffle(lines)
        cut = self.chance.randint(0, len(lines))
        for some in (lines[:cut], lines[cut:]):
            self.files += 1
            (self.folder / "answers" / f"{self.files}.jsonl").write_text("\n".join(some))

    def answered(self, form: str, key: str, one: NotedRequest) -> list[str]:
        chance, fate = self.chance, self.chance.random()
        if fate < 0.1:  # it is not charged
            error = {"type": "errored", "error": {"error": {"type": "overloaded_error", "message": "Overloaded"}}}
            return [json.dumps({"custom_id": key, "result": error})] if form == "anthropic" else []
        most = most_tokens(one.request, one.engine.model_copy(update={"provider": "openai"} if form != "plain" else {}))
        prompt = chance.randint(most.prompt // 8, most.prompt - 50)
        reply = chance.choice([9, most.reply])
        written = chance.randint(0, prompt)
        cached = chance.randint(0, prompt - written)
        rates = (PRICE.input, PRICE.cached, PRICE.cache_write, PRICE.output)
        parts = (prompt - written - cached, cached, written, reply)
        share = 1 if form == "plain" else Fraction(1, 2)
        self.bill += share * sum(Fraction(rate or 0) * part for rate, part in zip(rates, parts, strict=True)) / 10**6
        if fate < 0.2:  # it is charged, and lost on the way
            return []
        text = chance.choice(["good", "bad", "bad"])
        if form == "plain":
            return [json.dumps({"id": key, "reply": text})]
        usage: dict[str, Any] = {"cache_creation_input_tokens": written, "cache_read_input_tokens": cached}
        usage |= {"input_tokens": prompt - written - cached, "output_tokens": reply}
        message = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}
        message |= {"usage": {}} if fate < 0.25 else {"content": None} if fate < 0.4 else {}  # asked again, and charged
        line = json.dumps({"custom_id": key, "result": {"type": "succeeded", "message": message}})
        return [line] * chance.choice([1, 1, 1, 2])


def collected(mailbox: Mailbox, store: ReplyStore, engine: Engine) -> dict[str, NotedRequest]:
    """What is open after all answers were taken in."""
    while True:
        outbox = Outbox(mailbox.errors)
        try:
            model = Collector(outbox, "strong", engine)
            ask(REQUESTS, model, store, lambda _, r: Checked(r.text, ("bad",) * (r.text == "bad")), repaired)
        except WaitingForReplies:
            if mailbox.take(outbox.noted, store):
                continue
        return outbox.noted


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), first=st.floats(0.001, 0.5), form=st.sampled_from(["anthropic", "plain"]))
def test_a_mailbox_never_costs_more_than_its_budget(seed: int, first: float, form: str) -> None:
    """Mailboxes: lengths, caches, repairs, lost and uncounted answers, files that wait, rising budgets."""
    chance, usd = random.Random(seed), first
    engine = Engine(model="strong", provider="anthropic" if form == "anthropic" else "compatible", price=PRICE)
    with TemporaryDirectory() as place, ReplyStore(":memory:") as store:
        provider, waiting = Provider(chance, Path(place)), dict[str, tuple[AskedFile, dict[str, NotedRequest]]]()
        for _ in range(40):
            with opened(Path(place)) as mailbox:
                noted = collected(mailbox, store, engine)
                if not noted:
                    break
                budget = MailboxBudget(mailbox, budget_of(usd=usd), noted)
                paid = budget.pays_for(mailbox.to_ask(noted), form)
                assert (len(paid) == len(mailbox.to_ask(noted))) == (budget.lacks is None)
                waiting |= {file.name: (file, noted) for file in mailbox.write_wave(paid, form)}
            for name in [name for name in waiting if chance.random() < 0.8]:
                provider.work(*waiting.pop(name))
            assert provider.bill <= Fraction(usd)
            if not waiting:
                usd *= chance.choice([1, 1.5, 3])
        assert provider.bill <= Fraction(usd)


def test_what_was_written_under_a_higher_budget_is_not_sent_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    engine = Engine(model="strong", provider="anthropic", price=PRICE)
    noted = {digest(one, "strong"): NotedRequest(one, "strong", engine) for one in REQUESTS}
    with opened(tmp_path) as mailbox:
        (file,) = mailbox.write_wave(noted, "anthropic")
        enough, little = (MailboxBudget(mailbox, budget_of(usd=usd), noted) for usd in (5, 0.2))
        assert (enough.sends([file]), enough.lacks) == ([file], None)
        assert little.sends([file]) == []
        assert str(little.lacks).startswith("the 10 requests of wave-1, of $1.2")
        sent = mailbox.note(file, sent="2026-11-24T00:00:00+00:00", batch="b")
        assert little.sends([sent]) == [sent]
        assert MailboxBudget(mailbox, budget_of(tokens=9), noted).pays_for(noted, "anthropic") == {}
    with opened(tmp_path) as mailbox:  # a batch that was refused costs nothing
        mailbox.note(sent, ended="failed")
        after = MailboxBudget(mailbox, budget_of(usd=0.3), noted)
        paid = after.pays_for(noted, "anthropic")
        assert list(paid) == list(noted)[: len(paid)]
        assert len(paid) == 2
        assert str(after.lacks).startswith("8 requests, of $")


def test_a_budget_in_dollars_needs_a_price_and_takes_one_that_is_named_later(tmp_path: Path) -> None:
    (one,) = REQUESTS[:1]
    unpriced, priced = (Engine(model="mine", price=price) for price in (None, PRICE))
    noted = {digest(one, "mine"): NotedRequest(one, "mine", unpriced)}
    with opened(tmp_path) as mailbox:
        with pytest.raises(InputError, match="nobody says what 'mine' costs"):
            MailboxBudget(mailbox, budget_of(usd=1), noted).pays_for(noted, "openai")
        mailbox.write_wave(noted, "openai")
    with opened(tmp_path) as mailbox:
        with pytest.raises(InputError, match="nobody says what 'mine' costs"):
            MailboxBudget(mailbox, budget_of(usd=1), noted)
        later = {key: entry._replace(engine=priced) for key, entry in noted.items()}
        assert MailboxBudget(mailbox, budget_of(usd=1), later).lacks is None
