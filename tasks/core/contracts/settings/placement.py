"""Where a run is worked: on this machine, or by workers of a cluster. Nothing of it can change a result."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from rubricflow.tasks.core.contracts.schema import Frozen

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
    workers: int | None = Field(default=None, ge=1)
    """Shards, or packs of rubrics, that are worked at once; where not given, as many as this machine has processors or
    the cluster has room for."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise ValueError("engine: local works in this process, without address and workers; use dask or ray")
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
