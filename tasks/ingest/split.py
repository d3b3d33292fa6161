"""Deterministic splits by id: the same ids and seed give the same split on any machine, in any order of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from tasks.contracts.errors import InputError
from tasks.contracts.study import Split
from tasks.ingest.canonical import Record


def split(responses: Mapping[str, Record], labelled: Collection[str], plan: Split) -> dict[str, str]:
    """response id → 'calibration' or 'test' (or what the source says, which wins where it says anything).

    Within each item (or the whole set, `plan.per`), whole responses, authors or items, ordered by the SHA-256 of seed and
    id, are taken for calibration until they hold `plan.calibration` labelled responses, or half of the labelled ones.
    A response without a label never calibrates. By author or item, all of its responses are on one side, in all items.
    InputError for a split by author where a response has none.
    """
    given = {key: row["split"] for key, row in responses.items() if row["split"] is not None}
    free = {key: row for key, row in responses.items() if key not in given}
    if plan.by == "author" and any(row["author_id"] is None for row in free.values()):
        first = next(key for key, row in free.items() if row["author_id"] is None)
        raise InputError(f"a split by author needs an author for every response; '{first}' has none", field="author_id")
    pools: dict[str, dict[str, list[str]]] = {}
    for key, row in free.items():
        whole = {"response": key, "author": row["author_id"], "item": row["item_id"]}[plan.by]
        # An author answers several items and an item is whole: only responses can be drawn item by item.
        pool = row["item_id"] if plan.per == "item" and plan.by == "response" else ""
        pools.setdefault(pool, {}).setdefault(whole, []).append(key)
    wanted = plan.calibration
    if plan.per == "item" and plan.by != "response":
        wanted *= len({row["item_id"] for row in free.values()})
    chosen: set[str] = set()
    for wholes in pools.values():
        chosen |= _draw(wholes, set(labelled), wanted, plan.seed)
    return {key: given.get(key) or ("calibration" if key in chosen else "test") for key in responses}


def _draw(wholes: Mapping[str, list[str]], labelled: set[str], wanted: int, seed: int) -> set[str]:
    total = sum(key in labelled for keys in wholes.values() for key in keys)
    limit = min(wanted, total // 2)
    chosen: set[str] = set()
    count = 0
    for whole in sorted(wholes, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()):
        labels = [key for key in wholes[whole] if key in labelled]
        if labels and count + len(labels) <= limit:
            # Unlabelled responses of a chosen author or item stay out of the test as well.
            chosen |= set(wholes[whole])
            count += len(labels)
    return chosen
