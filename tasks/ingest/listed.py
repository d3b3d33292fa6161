"""The criteria that a source lists with an item, checked one by one."""

from __future__ import annotations

from typing import Any

from tasks.contracts.errors import InputError
from tasks.ingest.lists import cell_list
from tasks.store.cells import as_number, quoted, text_or_none, texts

_KEYS = ("id", "text", "weight", "levels", "parent")


def listed(cell: Any, file: object, row: int, field: str = "criteria") -> list[dict[str, Any]] | None:
    """The cell `criteria` of an item as rows of `Listed`; None where it is missing, blank or an empty list. field: its
    column.

    InputError names the criterion by its place in the list, from 0, its key and the rule: no list of objects, an
    unknown key, an empty id, text, weight or level, a text that is none, a weight that is no finite number, levels that
    are no list, an id given twice, a parent that is not listed.
    """
    given = cell_list(cell, file, row, field) or []
    found = [_criterion(one, file, row, f"{field}.{place}") for place, one in enumerate(given)]
    known: set[str] = set()
    for place, one in enumerate(found):
        if one["id"] in known:
            raise InputError(f"{quoted(one['id'])} is given twice", file=file, row=row, field=f"{field}.{place}.id")
        known.add(one["id"])
    for place, one in enumerate(found):
        if one["parent"] is not None and one["parent"] not in known:
            rule = f"{quoted(one['parent'])} is not listed"
            raise InputError(rule, file=file, row=row, field=f"{field}.{place}.parent")
    return found or None


def _criterion(one: Any, file: object, row: int, at: str) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise InputError("is not an object", file=file, row=row, field=at)
    if unknown := sorted(set(map(str, one)) - set(_KEYS)):
        rule = f"{quoted(unknown[0])} is no key of a criterion; there are {', '.join(_KEYS)}"
        raise InputError(rule, file=file, row=row, field=at)
    given = cell_list(one.get("levels"), file, row, f"{at}.levels") or []
    levels = list(map(text_or_none, texts(given, file, [row] * len(given), f"{at}.levels")))
    if None in levels:
        raise InputError("holds an empty level", file=file, row=row, field=f"{at}.levels")
    name, text, parent = (texts([one.get(key)], file, [row], f"{at}.{key}")[0] for key in ("id", "text", "parent"))
    found = {
        "id": text_or_none(name),
        "text": text_or_none(text),
        "weight": as_number(one.get("weight"), file, row, f"{at}.weight"),
        "levels": levels,
        "parent": text_or_none(parent),
    }
    for key in ("id", "text", "weight"):
        if found[key] is None:
            raise InputError("is empty", file=file, row=row, field=f"{at}.{key}")
    return found
