"""Deterministic splits by id: the same ids and seed give the same split on any machine, in any order of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from tasks.contracts.errors import InputError
from tasks.contracts.study import Split
from tasks.ingest.canonical import Record

_STRICTEST = ("test", "calibration", "train")


def split(responses: Mapping[str, Record], labelled: Collection[str], plan: Split) -> dict[str, str]:
    """response id → 'calibration' or 'test' (or what the source says, which wins where it says anything).

    Within each item (or the whole set, `plan.per`), whole responses, authors or items, ordered by the SHA-256 of seed
    and id, are taken for calibration until they hold `plan.calibration` labelled responses, or half of the labelled.
    A response without a label is drawn only with an author or item that has labels (it calibrates nothing, but stays
    out of the test). By author or item, all of its responses are on one side, in all items: what the source leaves
    free follows what the source says of the others, the test first. InputError for a split by author where a response
    has none.
    """
    given = _given(responses, plan)
    free = {key: row for key, row in responses.items() if key not in given}
    anonymous = next((key for key, row in free.items() if _whole(key, row, plan) is None), None)
    if anonymous is not None:
        rule = f"a split by author needs an author for every response; '{anonymous}' has none"
        raise InputError(rule, field="author_id")
    pools: dict[str, dict[str, list[str]]] = {}
    for key, row in free.items():
        # An author answers several items and an item is whole: only responses can be drawn item by item.
        pool = row["item_id"] if plan.per == "item" and plan.by == "response" else ""
        pools.setdefault(pool, {}).setdefault(str(_whole(key, row, plan)), []).append(key)
    wanted = plan.calibration
    if plan.per == "item" and plan.by != "response":
        wanted *= len({row["item_id"] for row in free.values()})
    known = set(labelled)
    chosen = {key for wholes in pools.values() for key in _draw(wholes, known, wanted, plan.seed)}
    return {key: given.get(key) or ("calibration" if key in chosen else "test") for key in responses}


def _whole(key: str, row: Record, plan: Split) -> str | None:
    """What is kept whole: the id of the response, its author or its item."""
    found: str | None = {"response": key, "author": row["author_id"], "item": row["item_id"]}[plan.by]
    return found


def _given(responses: Mapping[str, Record], plan: Split) -> dict[str, str]:
    """What the source settles: its own splits, and by author or item those of the rest of the same one."""
    sides: dict[str, str] = {}
    for key, row in responses.items():
        whole = _whole(key, row, plan)
        if row["split"] is not None and whole is not None:
            sides[whole] = min(row["split"], sides.get(whole, row["split"]), key=_STRICTEST.index)
    settled = {key: row["split"] or sides.get(_whole(key, row, plan) or "") for key, row in responses.items()}
    return {key: side for key, side in settled.items() if side is not None}


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
