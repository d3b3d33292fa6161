"""Deterministic splits by id: the same ids and seed give the same split on any machine, in any order of the rows."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rubricflow.tasks.core.contracts.settings.study import Split


def split(
    response_id: Sequence[str],
    item_id: Sequence[str],
    author_id: Sequence[str | None],
    given: Sequence[str | None],
    labelled: Sequence[int],
    plan: Split,
) -> list[str]:
    """'train', 'calibration', 'crossed' or 'test' for each response (or what the source says, `given`, which wins where
    it says anything); 'train' only where the plan names shares, and 'crossed' where it crosses.

    With shares, whole responses, authors or items, ordered by the SHA-256 of seed and id, fill train, then calibration,
    up to their shares of the free responses; the rest is test.

    Otherwise within each item (or the whole set, `plan.per`), whole responses, authors or items, ordered by the SHA-256
    of seed and id, are taken for calibration until they hold `plan.calibration` labelled responses, or half of the
    labelled; the rest is test. A response without a label is drawn only with an author or item that has labels (it
    calibrates nothing, but stays out of the test). By author or item, all of its responses are on one side, in all
    items: what the source leaves free follows what the source says of the others, which is one side for each author or
    item. A response whose label was chosen is on neither side, and says nothing of others.

    Where the plan crosses, every free response with a label is 'crossed'; the rest is test.
    """
    wholes: Sequence[str | None] = {"response": response_id, "author": author_id, "item": item_id}[plan.by]
    said = {whole: side for whole, side in zip(wholes, given, strict=True) if side not in (None, "chosen")}
    sides = [
        side or (said.get(whole) if whole is not None else None) for whole, side in zip(wholes, given, strict=True)
    ]
    if plan.cross:
        return [side or ("crossed" if has else "test") for side, has in zip(sides, labelled, strict=True)]
    free = [at for at, side in enumerate(sides) if side is None]
    if plan.shares:
        return [side or drawn for side, drawn in zip(sides, _shared(wholes, sides, plan), strict=True)]
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


def _shared(wholes: Sequence[str | None], sides: Sequence[str | None], plan: Split) -> list[str]:
    """A side for each response by the plan's shares of those that are free."""
    assert plan.shares is not None
    sizes = Counter(str(whole) for whole, side in zip(wholes, sides, strict=True) if side is None)
    total, before = sum(sizes.values()), 0
    train, calibration, _ = plan.shares
    drawn = {}
    for whole in sorted(sizes, key=lambda name: hashlib.sha256(f"{plan.seed}:{name}".encode()).digest()):
        # What lies by its middle before a boundary is on that side: no side is short by a whole author.
        middle = (before + sizes[whole] / 2) / total
        drawn[whole] = "train" if middle < train else "calibration" if middle < train + calibration else "test"
        before += sizes[whole]
    return [drawn.get(str(whole), "test") for whole in wholes]


def _draw(labels: Mapping[str, int], wanted: int, seed: int) -> Iterable[str]:
    """What is drawn of a pool; labels: response, author or item → its labelled responses."""
    limit = min(wanted, sum(labels.values()) // 2)
    count = 0
    for whole in sorted(labels, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()):
        if labels[whole] and count + labels[whole] <= limit:
            count += labels[whole]
            yield whole
