"""The criteria that a source lists with an item, checked one by one."""

from __future__ import annotations

from typing import Any

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_number, quoted, text_or_none, texts
from rubricflow.tasks.grading.ingest.lists import cell_list

_KEYS = ("id", "text", "weight", "levels", "parent")


def listed(cell: Any, file: object, row: int, field: str = "criteria") -> list[dict[str, Any]] | None:
    """The cell `criteria` of an item as rows of `Listed`; None where it is missing, blank or an empty list. field: its
    column.

    InputError names the criterion by its place in the list, from 0, its key and the rule: no list of objects, an
    unknown key, an empty id, text, weight or level, a text that is none, a weight that is no finite number, levels that
    are no list, an id given twice, a parent that is not listed.
    """
    elements = cell_list(cell, file, row, field) or []
    criteria = [_criterion(criterion, file, row, f"{field}.{place}") for place, criterion in enumerate(elements)]
    ids: set[str] = set()
    for place, criterion in enumerate(criteria):
        if criterion["id"] in ids:
            raise InputError(
                f"{quoted(criterion['id'])} is given twice", file=file, row=row, field=f"{field}.{place}.id"
            )
        ids.add(criterion["id"])
    for place, criterion in enumerate(criteria):
        if criterion["parent"] is not None and criterion["parent"] not in ids:
            rule = f"{quoted(criterion['parent'])} is not listed"
            raise InputError(rule, file=file, row=row, field=f"{field}.{place}.parent")
    return criteria or None


def _criterion(element: Any, file: object, row: int, field: str) -> dict[str, Any]:
    if not isinstance(element, dict):
        raise InputError("is not an object", file=file, row=row, field=field)
    if unknown := sorted(set(map(str, element)) - set(_KEYS)):
        rule = f"{quoted(unknown[0])} is no key of a criterion; there are {', '.join(_KEYS)}"
        raise InputError(rule, file=file, row=row, field=field)
    level_cells = cell_list(element.get("levels"), file, row, f"{field}.levels") or []
    levels = list(map(text_or_none, texts(level_cells, file, [row] * len(level_cells), f"{field}.levels")))
    if None in levels:
        raise InputError("holds an empty level", file=file, row=row, field=f"{field}.levels")
    name, text, parent = (
        texts([element.get(key)], file, [row], f"{field}.{key}")[0] for key in ("id", "text", "parent")
    )
    criterion = {
        "id": text_or_none(name),
        "text": text_or_none(text),
        "weight": as_number(element.get("weight"), file, row, f"{field}.weight"),
        "levels": levels,
        "parent": text_or_none(parent),
    }
    for key in ("id", "text", "weight"):
        if criterion[key] is None:
            raise InputError("is empty", file=file, row=row, field=f"{field}.{key}")
    return criterion
