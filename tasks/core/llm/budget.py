"""Budgets in tokens and in US dollars: when one is spent, the run stops; nothing that was paid for is lost.

The second half is what the processes of one run have in common while they ask a model: a ledger, a budget.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from rubricflow.tasks.core.contracts.errors import BackendError, InputError, UserError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backend import Answers, Backend, BackendWrapper
from rubricflow.tasks.core.llm.forms import room
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.prices import Price, TokenCounts, cost_of
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonObject, compact

if TYPE_CHECKING:
    from rubricflow.tasks.core.store.warehouse import Warehouse

Unit = Literal["tokens", "usd"]
"""What a budget is counted in. Dollars are counted in billionths, so that sums are exact."""
Amounts = dict[Unit, int]
"""How much of each."""
_CHARACTERS_PER_TOKEN = 3
"""Fewer than most texts have, so that a prompt is rather taken for longer than it is."""
_OWN_TOKENS = 1_000
"""Of a prompt, that a provider's own words around messages and contract take at most."""
_BILLION = 1_000_000_000
_UNPAID = ("too_long", "refused", "busy", "unreachable", "starting", "not_recorded")
"""Errors of calls for which no provider charges. Any other may have been computed in vain."""


class BudgetSpent(UserError):
    """What a run may spend is spent."""


@dataclass
class Cap:
    """What may be spent in one unit, by all backends that share it. Threads may share one."""

    limit: int
    """Tokens of prompts and replies together, as the engines count them; or billionths of a US dollar."""
    spent: int = 0
    reserved: int = 0
    """Kept for calls that are begun and not answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def begin(self, amount: int) -> bool:
        """Keeps so much for a call, where there is so much."""
        with self._lock:
            holds = self.holds(amount)
            self.reserved += amount if holds else 0
        return holds

    def settle(self, amount: int, taken: int) -> None:
        """A call for which so much was kept took `taken`."""
        with self._lock:
            self.reserved -= amount
            self.spent += taken

    def holds(self, amount: int) -> bool:
        """Whether so much more could be spent."""
        return self.spent + self.reserved + amount <= self.limit

    def drawn(self) -> tuple[int, int]:
        """What is spent, or kept for calls under way, and what there was, of all who share it."""
        return self.spent + self.reserved, self.limit

    def give_back(self) -> None:
        """Gives back what is neither spent nor kept, where it is shared."""


class SharedCap(Cap):
    """The part of a cap that is drawn from a ledger, in steps, and given back as far as it is not spent. Who is killed
    gives nothing back: what it drew counts as spent, as providers may charge for the calls that were under way."""

    def __init__(self, ledger: CallLedger, name: str, step: int) -> None:
        """step: what is drawn together, where there is so much."""
        super().__init__(limit=0)
        self.name = name
        self._ledger, self._step = ledger, step

    def holds(self, amount: int) -> bool:
        lacking = self.spent + self.reserved + amount - self.limit
        return lacking <= 0 or self._drew(max(lacking, self._step)) or self._drew(lacking)

    def give_back(self) -> None:
        with self._lock:
            self._drew(self.spent + self.reserved - self.limit)

    def drawn(self) -> tuple[int, int]:
        return self._ledger.drawn(self.name)

    def _drew(self, amount: int) -> bool:
        drew = self._ledger.draw(self.name, amount)
        self.limit += amount if drew else 0
        return drew


Budget = Mapping[Unit, Cap]
"""What may be spent: nothing more where any cap holds no more. Empty where nothing limits it."""
_budget: ContextVar[Budget] = ContextVar("budget", default={})  # noqa: B039 - nobody changes it


def budget_of(tokens: int | None = None, usd: float | None = None) -> Budget:
    """A budget of which nothing is spent; see `kept_budget` for that of a run."""
    limits: dict[Unit, int | None] = {"tokens": tokens, "usd": None if usd is None else math.floor(usd * _BILLION)}
    return {unit: Cap(limit) for unit, limit in limits.items() if limit is not None}


def spending(budget: Budget) -> AbstractContextManager[None]:
    """Backends that are opened within the block spend no more than the budget."""
    return scoped(_budget, budget)


def present_budget() -> Budget:
    """What backends that are opened here may spend."""
    return _budget.get()


def on_budget(backend: Backend, price: Price | None = None, engine: Engine | None = None) -> Backend:
    """The backend, as far as the present budget pays for it. InputError where its price is to be kept to and nobody
    says it. engine: whose model may think before it replies."""
    budget = _budget.get()
    if "usd" in budget and price is None:
        raise unpriced(f"'{backend.model}'")
    return Budgeted(backend, budget, price, engine) if budget else backend


def unpriced(who: str, limit: str = "--budget-usd", instead: str = "--token-budget") -> InputError:
    """Why no limit in dollars can be kept."""
    rule = f"nobody says what {who} costs, so that {limit} cannot be kept"
    hint = f"price: {{input: 2.5, output: 10}} next to the model, in US dollars a million tokens; or {instead}"
    return InputError(rule, field="engine.price", hint=hint)


class Budgeted(BackendWrapper):
    """A backend that asks only what the budget can pay for.

    A request is begun only if the longest reply to it, and to all that are under way, still fits. Where the next one
    does not fit any more, those under way are waited for, and then `BudgetSpent` ends the run. A backend takes the
    requests one after the other as it has room, so none is begun that was not reckoned with. What is kept for calls
    stays kept where they are broken off; a BackendError ends the run when all of them have ended, unpaid if unanswered.
    """

    def __init__(
        self, backend: Backend, budget: Budget, price: Price | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(backend)
        self._budget, self._price, self._engine = budget, price, engine

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields as the backend does; BudgetSpent when the next request cannot be paid for."""
        done = 0
        while done < len(requests):
            affordable = _Affordable(requests[done:], self._budget, self._most)
            try:
                for index, reply in self._backend.answer(affordable):
                    affordable.settle(index, self._taken(requests[done + index], reply))
                    yield done + index, reply
            except BackendError:
                for index in list(affordable.open):
                    affordable.settle(index, {})
                raise
            if not affordable.begun:
                most = self._most(requests[done])
                unit = next(unit for unit, amount in most.items() if not self._budget[unit].holds(amount))
                self._budget[unit].give_back()
                raise BudgetSpent(spent_in_words(unit, *self._budget[unit].drawn(), most[unit]))
            done += affordable.begun

    def _most(self, request: Request) -> Amounts:
        """What a request may take of each cap."""
        most = {"tokens": longest(request, self._engine)}
        if self._price is not None:
            most["usd"] = most_cost(request, self._price, self._engine)
        return {unit: most[unit] for unit in self._budget}

    def _taken(self, request: Request, reply: Reply) -> Amounts:
        """What it took; the most that it may have cost where nobody counted its tokens."""
        taken: Amounts = {"tokens": (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)}
        if self._price is not None:
            cost = cost_of(reply, self._price)
            is_unpaid = reply.error is not None and reply.error.startswith(_UNPAID)
            most = 0 if is_unpaid else most_cost(request, self._price, self._engine)
            taken["usd"] = most if cost is None else in_billionths(cost)
        return taken


class _Affordable(Sequence[Request]):
    """Requests that end where the budget does. A backend may go through them in another thread."""

    def __init__(self, requests: Sequence[Request], budget: Budget, most_of: Callable[[Request], Amounts]) -> None:
        self._requests, self._budget, self._most_of = requests, budget, most_of
        self.begun = 0
        self.open: dict[int, Amounts] = {}
        """What is kept for those begun and not answered, by their place."""

    def __iter__(self) -> Iterator[Request]:
        for place, request in enumerate(self._requests):
            most = self._most_of(request)
            self.open[place] = {}
            for unit, amount in most.items():
                if not self._budget[unit].begin(amount):
                    self.settle(place, {})
                    return
                self.open[place][unit] = amount
            self.begun += 1
            yield request

    def settle(self, place: int, taken: Amounts) -> None:
        """A call is over, and took so much."""
        for unit, amount in self.open.pop(place).items():
            self._budget[unit].settle(amount, taken.get(unit, 0))

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]


def spent_in_words(unit: Unit, drawn: int, limit: int, most: int) -> str:
    """Why nothing more is asked. most: what the next request may take."""
    words, spent = ("token budget", f"{drawn:,}") if unit == "tokens" else ("budget", amount_in_words(unit, drawn))
    return (
        f"the {words} is used up: {spent} of {amount_in_words(unit, limit)} are spent, or kept for calls that were "
        f"begun, by all commands of this run, and the next request may take more than the rest, up to "
        f"{amount_in_words(unit, most)}; every reply is kept: with a higher budget the same command continues"
    )


def amount_in_words(unit: Unit, amount: int) -> str:
    """As people say it: 1,500 tokens, $0.0125."""
    return f"{amount:,} tokens" if unit == "tokens" else f"${amount / _BILLION:,.4f}"


def longest(request: Request, engine: Engine | None = None) -> int:
    """Tokens that a request may take: its prompt, roughly, and the longest reply."""
    return request.prompt_length // _CHARACTERS_PER_TOKEN + room(request, engine)


def most_tokens(request: Request, engine: Engine | None = None) -> TokenCounts:
    """What a call takes at most: no tokenizer makes more tokens of a text than it has bytes."""
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in request.messages)
    size += 0 if request.schema is None else _contract_size(request.schema)
    return TokenCounts(size + _OWN_TOKENS, room(request, engine))


@cached_by_identity
def _contract_size(schema: JsonObject) -> int:
    return len(compact(schema).encode("utf-8", "surrogatepass"))


def most_cost(request: Request, price: Price, engine: Engine | None = None) -> int:
    """Billionths of a US dollar that a call costs at most."""
    return dearest(most_tokens(request, engine), price)


def dearest(counts: TokenCounts, price: Price) -> int:
    """Billionths of a US dollar for so many tokens, whatever of the prompt is cached or not. One more than that, as the
    sums of a cost are rounded."""
    rates = price.rates(counts.prompt)
    usd = counts.prompt * max(rates.input, rates.cached, rates.cache_write) + counts.reply * rates.output
    return math.ceil(usd * (_BILLION / 1_000_000)) + 1


def in_billionths(usd: float) -> int:
    return math.ceil(usd * _BILLION)


@dataclass
class Sharing:
    """What a worker shares with the others of its run: calls at once, evenly among lanes, each of which works one piece
    after the other. One process may work several lanes; all of it may change while it asks."""

    lanes: Sequence[int] = (0,)
    """Those that work now, of all workers."""
    mine: set[int] = field(default_factory=lambda: {0})
    """Those of them that this process works."""
    ledger: CallLedger | None = None
    """Where calls are counted together; None where there is one process."""
    drains: bool = False
    """Whether this process is about to be ended: it begins no call, and keeps the replies to those under way."""

    def part(self, concurrency: int) -> int:
        """Of so many calls at once those of this process; at least one."""
        each, more = divmod(concurrency, len(self.lanes) or 1)
        return max(1, sum(each + (place < more) for place, lane in enumerate(self.lanes) if lane in self.mine))


_ALONE = Sharing()
_sharing: ContextVar[Sharing] = ContextVar("sharing", default=_ALONE)


def shared(sharing: Sharing) -> AbstractContextManager[None]:
    """Clients that are opened within the block share so."""
    return scoped(_sharing, sharing)


def sharing() -> Sharing:
    """How a client that is opened here shares."""
    return _sharing.get()


_PARTS = 100
"""Of a budget, in which one process draws it: what is lost where it is killed, besides its calls under way."""


def ledger_of(warehouse: Warehouse) -> Path | str:
    """In the database of the replies, else in a file next to them."""
    replies = warehouse.replies
    return str(replies) if is_database(replies) else Path(replies).absolute().with_name("ledger.sqlite")


@contextmanager
def kept_budget(warehouse: Warehouse, name: str, tokens: int | None, usd: float | None) -> Iterator[None]:
    """Within the block no more is spent than a budget that holds for all commands of that name together: what they
    spent stands in the ledger, also that of one that was killed. name: a run's id."""
    limits = budget_of(tokens, usd)
    if not limits:
        yield
        return
    with closing(CallLedger(ledger_of(warehouse))) as ledger:
        ledger.make()
        caps = {unit: SharedCap(ledger, f"{name} {unit}", max(1, cap.limit // _PARTS)) for unit, cap in limits.items()}
        for unit, cap in caps.items():
            ledger.fill(cap.name, limits[unit].limit)
        try:
            with spending(caps):
                yield
        finally:
            for cap in caps.values():
                cap.give_back()
