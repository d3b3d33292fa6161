"""Which responses a table of recorded replies can grade: the others can calibrate nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.llm.foreign import foreign_rows, foreign_score, is_off_scale
from rubricflow.tasks.core.store.cells import quoted
from rubricflow.tasks.grading.ingest.survey import Survey


def gradable(surveyed: Survey, foreign: Foreign, base: Path) -> bytearray:
    """Whether each response, by its place, is within the limit and has a reply that reads as a score on the judge's
    own scale, where the study gives one.

    InputError names the table and the rule: see `foreign_rows`, and where no reply is about a response of the data, or
    none can be read.
    """
    replies = {row["response_id"]: row["reply"] for row in foreign_rows(foreign, base)}
    about = [name for name in surveyed.places if replies.get(name) is not None]
    if not about and surveyed.places:
        rule = f"no reply is about a response of the data, such as {quoted(next(iter(surveyed.places)))}"
        hint = f"the first is about {quoted(next(iter(replies)))}"
        raise InputError(rule, file=foreign.file, field="response_id", hint=hint)

    def can(name: str) -> bool:
        item_id = surveyed.item_id[surveyed.places[name]]
        score = foreign_score(foreign, item_id, name, replies[name])
        return score is not None and not is_off_scale(score, foreign, item_id)

    able = bytearray(len(surveyed.places))
    for name in about:
        able[surveyed.places[name]] = surveyed.kept[surveyed.places[name]] and can(name)
    if about and not any(able) and not any(map(can, about)):
        rule = f"none of {len(about)} replies reads as a score; the first begins {quoted(replies[about[0]])}"
        raise InputError(rule, file=foreign.file, field="judge.foreign.reader", hint=_looked_for(foreign))
    return able


def _looked_for(foreign: Foreign) -> str:
    keys = ["/".join([key] if isinstance(key, str) else key) for key in foreign.reader.json_keys]
    return f"looked for {' + '.join(keys) or 'the pattern'}"


def drawn(surveyed: Survey, able: bytearray, side_of: Sequence[str | None]) -> str:
    """What calibrates, in words, and what it was drawn from; side_of: the split of each response, by its place."""
    labelled = [bool(has and side) for has, side in zip(surveyed.labelled, side_of, strict=True)]
    usable = [has and bool(can) for has, can in zip(labelled, able, strict=True)]
    count = sum(of and side in CALIBRATES for of, side in zip(usable, side_of, strict=True))
    without = sum(labelled) - sum(usable)
    return (
        f"split: {count} of {sum(usable)} labelled responses with a readable recorded reply calibrate; "
        f"{without} labelled ones have none"
    )
