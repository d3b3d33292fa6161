"""A language model: how it is reached, how its replies are drawn, and one call to it as a table keeps it."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from rubricflow.tasks.core.contracts.schema import AboveZero, Frozen, Natural, NonNegative, Positive, left_out

# A low-rank adapter (LoRA) on a language model.


class Adapter(Frozen):
    """Its shape; the defaults are those of Edit's appendix B."""

    rank: Positive = 64
    """r."""
    alpha: Positive = 128
    """α."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Of the adapter's input."""


EncoderTraining = Literal["frozen", "tuned", "lora"]
"""What of a text encoder is trained: nothing, all of it, or an adapter on it."""
MOST_LOGPROBS = 20
"""Alternatives of a token that servers report at most."""
ROOM = 1024
"""Tokens that a reply may have where nothing else is said."""


class Sampling(Frozen):
    """How a model draws its reply."""

    temperature: NonNegative = 0.0
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Mass of the nucleus."""
    top_k: Positive | None = None
    """Candidates per token; null for all."""
    seed: int = 42
    """Another seed is another request: repeated samples differ in it."""
    max_tokens: Positive | None = None
    """Longest reply; null for 1,024, or more where a judge is asked for more than that holds."""

    @property
    def longest(self) -> int:
        """`max_tokens` as a number."""
        return self.max_tokens or ROOM


class TokenPrice(Frozen):
    """What a model's tokens cost, per million, where the kept table does not know it or says something else."""

    input: NonNegative
    """Of prompts."""
    output: NonNegative
    """Of replies, with what the model thinks before."""
    cached: NonNegative | None = None
    """Of prompts that the provider's cache holds; null for the price of any other."""
    cache_write: NonNegative | None = None
    """Of prompts that it puts into its cache; null for the price of any other."""
    batch: float = Field(default=1.0, gt=0, le=1)
    """What a batch costs, as a share of these prices."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Of these prices."""
    usd: AboveZero = 1.0
    """US dollars for one unit of it."""
    as_of: date | None = None
    """When they were looked up."""

    @model_validator(mode="after")
    def _can_be_exchanged(self) -> Self:
        if (self.currency == "USD") != ("usd" not in self.model_fields_set):
            raise ValueError(
                f"prices in {self.currency}: 'usd' says how many US dollars one unit of it is; USD has none"
            )
        return self


Provider = Literal["compatible", "openai", "anthropic", "gemini", "bedrock", "vertex"]
Effort = Literal["none", "low", "medium", "high"]


class Engine(Frozen):
    """A language model and how it is reached. The same settings serve `vllm`, `openai` and `hosted`; each takes what
    concerns it. Credentials never stand here: see `key`."""

    model: str
    """The name or folder of the weights (vllm), or the name under which a server serves them (openai)."""
    provider: Provider = left_out("compatible")
    """Whose interface it is reached by: any OpenAI-compatible server (openai), or a provider's own (hosted)."""
    effort: Effort | None = left_out(None)
    """How much the model thinks before it replies; null for its own measure. A reply gets room for it."""
    caching: bool = left_out(True)
    """hosted: whether what prompts begin with alike is marked for the provider's prompt cache."""
    urls: tuple[str, ...] = ("http://127.0.0.1:8000/v1",)
    """openai: base URLs of one or more replicas of the same model."""
    key: str = "RUBRICFLOW_API_KEY"
    """openai: the environment variable that holds the key, or `block:NAME` for a Prefect secret block. Without that
    variable no key is sent."""
    concurrency: Positive = 64
    """openai: requests in flight, over all replicas."""
    requests_per_minute: Positive | None = None
    """openai: most requests begun within a minute."""
    tokens_per_minute: Positive | None = None
    """openai: most tokens (of prompts and longest replies) asked for within a minute."""
    timeout_s: AboveZero = Field(
        default_factory=lambda given: 120.0 if given.get("provider", "compatible") == "compatible" else 600.0
    )
    """Seconds after which a request without an answer is given up: 120 for a server (openai); 600, as the providers'
    own clients have it, for a provider (hosted), whose models may think for long."""
    retries: Natural = 5
    """openai: further tries of a request that met a full or broken server, with growing pauses."""
    patience_s: NonNegative = 300.0
    """openai: seconds for which a server that cannot be reached, or is not ready (503), is waited for: it may be
    loading its model."""
    structured: bool = True
    """Whether the model is held to the contract's JSON Schema; otherwise the artifact is looked for in free text."""
    logprobs: int = Field(default=0, ge=0, le=MOST_LOGPROBS)
    """Likeliest alternatives reported for each token, from which the levels' probabilities come; 0 for none. As many as
    the longest scale has values, 20 at most: what is not among them counts as 0."""
    price: TokenPrice | None = Field(default=None, exclude=True)
    """What its tokens cost; null for what the kept table says. It is left out of the run's identity."""
    options: dict[str, JsonValue] = {}
    """vllm: further engine arguments, such as `dtype` or `max_model_len`. openai: further fields of every body."""

    @model_validator(mode="after")
    def _true_or_false(self) -> Engine:
        for name, value in self.options.items():
            if str(value).casefold() in ("yes", "no", "on", "off"):
                raise ValueError(f"options.{name}: {value} is a text here; write true or false")
        return self


CALLS = {
    "induce": "to induce criteria",
    "paraphrase": "to reword criteria",
    "role": "to tell the roles of criteria",
    "dependency": "to tell what depends on what",
    "contract_repair": "to repair the form",
}
"""What a call about a rubric was for."""


class Call(Frozen):
    """One model call about a rubric."""

    role: Annotated[str, CALLS]
    """What it was for."""
    model: str
    """The model asked."""
    request_digest: str
    """SHA-256 of the request; the key in the reply store."""
    reply: str | None
    """The reply as it came; null where there was none."""
    violations: list[str]
    """What was wrong with it."""


EngineName = Literal["local", "dask", "ray"]
"""What shares the work out."""
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}/?")


class Placement(Frozen):
    """Where a run is worked. It belongs to no run's identity: a study gives the same digests wherever it is worked."""

    engine: EngineName = "local"
    """local: in this process. dask, ray: shard by shard by the workers of such a cluster; each is an
    optional extra of that name."""
    address: str | None = None
    """Of a cluster that runs already: tcp://head:8786 (dask), head:6379 (ray). Without one, a cluster is started on
    this machine and ends with the command."""
    workers: Positive | None = None
    """Pieces of work that are done at once; where not given, as many as this machine has processors or
    the cluster has room for."""
    piece: Positive | None = None
    """Responses that a worker judges at a time; where not given, what takes it some minutes, and less at the end."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        given = (self.address, self.workers, self.piece)
        if self.engine == "local" and any(value is not None for value in given):
            raise ValueError("engine: local works in this process, without address, workers and piece; use dask or ray")
        if self.address is not None and not _ADDRESS.fullmatch(self.address):
            raise ValueError(
                f"'{self.address}' is no address of a cluster; write host:port, such as tcp://head:8786 for dask or "
                "head:6379 for ray, or leave it out to start a cluster on this machine"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether the run is worked in this process alone."""
        return self.engine == "local"

    @property
    def host(self) -> tuple[str, int] | None:
        """Name and port of the cluster's head; None where a cluster is started on this machine."""
        if self.address is None:
            return None
        name, _, port = self.address.rpartition("://")[2].rstrip("/").rpartition(":")
        return name.strip("[]"), int(port)

    @property
    def is_elsewhere(self) -> bool:
        """Whether workers may be on other machines."""
        return self.host is not None and self.host[0] not in ("localhost", "127.0.0.1", "::1")


HERE = Placement()
"""In this process."""
