"""Deterministic splits by id: the same ids and seed give the same split on any machine, in any order of the rows."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tasks.contracts.study import Split


def split(
    response_id: Sequence[str],
    item_id: Sequence[str],
    author_id: Sequence[str | None],
    given: Sequence[str | None],
    labelled: Sequence[int],
    plan: Split,
) -> list[str]:
    """'calibration' or 'test' for each response (or what the source says, `given`, which wins where it says anything).

    Within each item (or the whole set, `plan.per`), whole responses, authors or items, ordered by the SHA-256 of seed
    and id, are taken for calibration until they hold `plan.calibration` labelled responses, or half of the labelled.
    A response without a label is drawn only with an author or item that has labels (it calibrates nothing, but stays
    out of the test). By author or item, all of its responses are on one side, in all items: what the source leaves
    free follows what the source says of the others, which is one side for each author or item.
    """
    wholes: Sequence[str | None] = {"response": response_id, "author": author_id, "item": item_id}[plan.by]
    said = {whole: side for whole, side in zip(wholes, given, strict=True) if side is not None}
    sides = [
        side or (said.get(whole) if whole is not None else None) for whole, side in zip(wholes, given, strict=True)
    ]
    free = [at for at, side in enumerate(sides) if side is None]
    # An author answers several items and an item is whole: only responses can be drawn item by item.
    apart = plan.per == "item" and plan.by == "response"
    pools: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for at in free:
        pools[item_id[at] if apart else ""][str(wholes[at])] += bool(labelled[at])
    wanted = plan.calibration
    if plan.per == "item" and plan.by != "response":
        wanted *= len({item_id[at] for at in free})
    chosen = {whole for labels in pools.values() for whole in _draw(labels, wanted, plan.seed)}
    return [
        side or ("calibration" if str(whole) in chosen else "test") for whole, side in zip(wholes, sides, strict=True)
    ]


def _draw(labels: Mapping[str, int], wanted: int, seed: int) -> Iterable[str]:
    """What is drawn of a pool; labels: response, author or item → its labelled responses."""
    limit = min(wanted, sum(labels.values()) // 2)
    count = 0
    for whole in sorted(labels, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()):
        if labels[whole] and count + labels[whole] <= limit:
            count += labels[whole]
            yield whole
