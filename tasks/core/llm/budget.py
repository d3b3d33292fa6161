"""A token budget: when it is spent, the run stops; nothing that was paid for is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.llm.backend import Backend, BackendWrapper
from rubricflow.tasks.core.llm.request import Reply, Request

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger

_CHARACTERS_PER_TOKEN = 3
"""Fewer than most texts have, so that a prompt is rather taken for longer than it is."""


class BudgetSpent(UserError):
    """The tokens that a run was given are spent."""


@dataclass
class TokenBudget:
    """Tokens that may be spent, by all backends that share it."""

    tokens: int
    """Prompts and replies together, as the engines count them."""
    spent: int = 0

    def holds(self, tokens: int) -> bool:
        """Whether so many more could be spent."""
        return self.spent + tokens <= self.tokens

    def in_words(self) -> str:
        """How much is spent."""
        return f"{self.spent:,} of {self.tokens:,} tokens are spent"


class SharedTokenBudget(TokenBudget):
    """A worker's part of a budget that a ledger keeps for several: drawn in steps, and the rest given back."""

    def __init__(self, ledger: CallLedger, name: str, step: int) -> None:
        """step: tokens that are drawn together, where there are so many."""
        super().__init__(tokens=0)
        self._ledger, self._name, self._step = ledger, name, step

    def holds(self, tokens: int) -> bool:
        """Whether so many more could be spent; draws what is lacking."""
        lacking = self.spent + tokens - self.tokens
        return lacking <= 0 or self._drew(max(lacking, self._step)) or self._drew(lacking)

    def give_back(self) -> None:
        """What was drawn and not spent."""
        self._ledger.draw(self._name, self.spent - self.tokens)
        self.tokens = self.spent

    def in_words(self) -> str:
        """How much all together have spent, or drawn to spend it."""
        drawn, tokens = self._ledger.drawn(self._name)
        return f"{drawn:,} of {tokens:,} tokens are spent or kept for calls under way"

    def _drew(self, tokens: int) -> bool:
        drew = self._ledger.draw(self._name, tokens)
        self.tokens += tokens if drew else 0
        return drew


class Budgeted(BackendWrapper):
    """A backend that asks only what the budget can pay for.

    A request is begun only if the longest reply to it, and to all that are under way, still fits. Where the next one
    does not fit any more, those under way are waited for, and then `BudgetSpent` ends the run. A backend takes the
    requests one after the other as it has room, so none is begun that was not reckoned with.
    """

    def __init__(self, backend: Backend, budget: TokenBudget) -> None:
        super().__init__(backend)
        self._budget = budget

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does; BudgetSpent when the next request cannot be paid for."""
        budget, done = self._budget, 0
        while done < len(requests):
            affordable = _Affordable(requests[done:], budget)
            for index, reply in self._backend.answer(affordable):
                budget.spent += (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)
                affordable.returned += longest(requests[done + index])
                yield done + index, reply
            if not affordable.begun:
                raise BudgetSpent(
                    f"the token budget is used up: {budget.in_words()}, and the next "
                    "request may take more than the rest; every reply is kept, and the same command continues"
                )
            done += affordable.begun


class _Affordable(Sequence[Request]):
    """Requests that end where the budget does. A backend may go through them in another thread: each number has one
    thread that changes it."""

    def __init__(self, requests: Sequence[Request], budget: TokenBudget) -> None:
        self._requests, self._budget = requests, budget
        self.begun = 0
        self.reserved = self.returned = 0
        """Longest sizes of those begun and of those answered."""

    def __iter__(self) -> Iterator[Request]:
        for request in self._requests:
            under_way = self.reserved - self.returned
            if not self._budget.holds(under_way + longest(request)):
                return
            self.begun += 1
            self.reserved += longest(request)
            yield request

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]


def longest(request: Request) -> int:
    """Tokens that a request may take: its prompt, roughly, and the longest reply."""
    characters = sum(len(message.content) for message in request.messages)
    return characters // _CHARACTERS_PER_TOKEN + request.sampling.longest
