"""What a mailbox has cost and may still cost, and how much more of it a budget pays for.

A request counts with its most expensive outcome from when its file is written until its answer is there, and then with
what its provider counted. One that was asked again, as its answer was lost, counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rubricflow.tasks.core.llm.budget import (
    Amounts,
    Budget,
    Unit,
    amount_in_words,
    dearest,
    in_billionths,
    spent_in_words,
    unpriced,
)
from rubricflow.tasks.core.llm.mailbox import Noted
from rubricflow.tasks.core.llm.mailbox_files import Brought
from rubricflow.tasks.core.llm.mailbox_folder import AskedFile, Mailbox, most_in, rates_in
from rubricflow.tasks.core.llm.prices import Price, Rates, TokenCounts, cost_of


class MailboxBudget:
    """A budget for all that is asked by a mailbox; one without caps pays for everything."""

    def __init__(self, mailbox: Mailbox, budget: Budget, noted: Noted) -> None:
        """budget: of which nothing is spent; noted: what is open. InputError where it is in dollars and nobody says the
        price of what was asked."""
        self._caps = budget
        self.lacks: str | None = None
        """What is not paid for, in words."""
        engines = {one.engine.model: one.engine for one in noted.values()}
        self._rates = {file.name: file.rates for file in mailbox.files}
        for file in mailbox.files:  # a price that was named since
            if file.rates is None and file.model in engines:
                self._rates[file.name] = rates_in(file.form, engines[file.model])
        answers, asked = mailbox.answers(), dict[str, list[tuple[AskedFile, TokenCounts]]]()
        for file in mailbox.files if budget else ():
            for key, counts in zip(file.digests, file.most, strict=True):
                asked.setdefault(key, []).append((file, TokenCounts(*counts)))
        for key, times in asked.items():
            for unit, amount in self._spent(times, answers.get(key, []), key).items():
                budget[unit].spent += amount

    def pays_for(self, open_: Noted, form: str) -> Noted:
        """Of the requests, in their order, those whose most expensive outcome fits what is left, which is kept for
        them. InputError where nobody says their price."""
        paid = Noted()
        all_most = [
            self._amounts(one.engine.model, most_in(form, one), rates_in(form, one.engine)) for one in open_.values()
        ]
        for (key, one), most in zip(open_.items(), all_most, strict=True):
            if short := [unit for unit, amount in most.items() if not self._caps[unit].holds(amount)]:
                self._lack(f"{len(open_) - len(paid):,} requests", short[0], all_most[len(paid) :])
                break
            for unit, amount in most.items():
                self._caps[unit].spent += amount
            paid[key] = one
        return paid

    def sends(self, files: Sequence[AskedFile]) -> list[AskedFile]:
        """The files without those, from the last on, that were written under a higher budget and are not sent yet."""
        kept = list(files)
        for file in reversed(files):
            short = [unit for unit, cap in self._caps.items() if cap.spent > cap.limit]
            if short and file.sent is None:
                kept.remove(file)
                all_most = [self._of_file(file, TokenCounts(*counts)) for counts in file.most]
                for unit, cap in self._caps.items():
                    cap.spent -= sum(most[unit] for most in all_most)
                self._lack(f"the {len(file.digests):,} requests of {file.name}", short[0], all_most)
        return kept

    def _lack(self, what: str, unit: Unit, all_most: Sequence[Amounts]) -> None:
        total = amount_in_words(unit, sum(most[unit] for most in all_most))
        words = spent_in_words(unit, *self._caps[unit].drawn(), all_most[0][unit])
        self.lacks = f"{what}, of {total} at most, are not asked: {words}"

    def _amounts(self, model: str, counts: TokenCounts, rates: Sequence[Rates] | None, is_most: bool = True) -> Amounts:
        """What tokens take of each cap. is_most: whether they are the most that a call may take."""
        amounts: Amounts = {"tokens": counts.prompt + counts.reply}
        if "usd" in self._caps:
            if rates is None:
                raise unpriced(f"'{model}'")
            price = Price(tuple(rates), tuple(rates), "", None)
            amounts["usd"] = dearest(counts, price) if is_most else in_billionths(cost_of(counts, price) or 0.0)
        return {unit: amounts[unit] for unit in self._caps}

    def _of_file(self, file: AskedFile, counts: TokenCounts, is_most: bool = True) -> Amounts:
        return self._amounts(file.model, counts, self._rates[file.name], is_most)

    def _spent(self, times: Sequence[tuple[AskedFile, TokenCounts]], answers: Sequence[Brought], key: str) -> Amounts:
        """What a request has taken: counted where it was answered, and the most elsewhere. times: when it was asked,
        and what it took at most."""
        seen = [*(file.before.get(key, 0) for file, _ in times), len(answers)]
        is_answered = [later > earlier for earlier, later in pairwise(seen)]
        most = [self._of_file(file, counts) for file, counts in times]
        # A batch that has ended charges for nothing but its results.
        waits = [
            one
            for (file, _), one, came in zip(times, most, is_answered, strict=True)
            if not came and file.ended is None
        ]
        counted = [answer.tokens() for answer in answers]
        total = Amounts()
        for unit in self._caps:
            # Which of the answers came to which time is not known: the dearest ones count.
            taken = [
                max(one[unit] for one in most)
                if used is None
                else max(self._of_file(file, used, is_most=False)[unit] for file, _ in times)
                for used in counted
            ]
            dearest_first = sorted(taken, reverse=True)[: sum(is_answered)]
            total[unit] = sum(dearest_first) + sum(one[unit] for one in waits)
        return total
