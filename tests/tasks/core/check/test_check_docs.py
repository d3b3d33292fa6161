"""Data Docs: what they show, that they need no network and carry no student's markup, and that they are built once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rubricflow.tasks.core.check import suite
from rubricflow.tasks.core.check.docs import build, folder
from rubricflow.tasks.core.check.suite import CheckError
from rubricflow.tasks.core.check.task import checked, data_docs
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Judged = Callable[..., tuple[Run, TableRef]]
HOSTILE = "<script>alert(1)</script> & $template ${x} {{ 7*7 }} <img src=http://evil.test/>"


class Page(HTMLParser):
    """A page as a browser has it: its text, its elements, what it refers to and the marks it shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text, self.tags, self.links, self.marks = "", set[str](), set[str](), list[str]()
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "data")}
        self.marks += [value or "" for name, value in attrs if tag == "i" and name == "class"]

    def handle_data(self, data: str) -> None:
        self.text += data


def stopped(run: Run, ref: TableRef) -> str:
    with pytest.raises((ContractError, CheckError)) as stop:
        checked.fn(run, ref)
    return str(stop.value)


def page(run: Run, of: str) -> Page:
    [path] = (run.folder / "data_docs" / "validations").rglob(f"{of}.html")
    return Page(path)


def test_a_run_has_a_page_for_every_checkpoint_and_a_list_that_leads_to_them(graded: Judged) -> None:
    run, ref = graded()
    checked.fn(run, (run.ref(Items, "ingest"), run.ref(Responses, "ingest")))
    checked.fn(run, ref)
    index = data_docs.fn(run)
    assert index == run.folder / "data_docs" / "index.html"
    led = {(index.parent / link).resolve() for link in Page(index).links if link.startswith("validations/")}
    assert {path.stem for path in led} == {"items", "responses", "gradings"}
    assert all(path.is_file() for path in led)
    assert not Page(index).marks.count("fas fa-times text-danger")


def test_a_broken_rule_is_shown_with_its_counts_and_keys_and_the_stop_names_the_page(graded: Judged) -> None:
    run, ref = graded(faults={3: {"status": "lost"}})
    message = stopped(run, ref)
    assert str(run.folder / "data_docs" / "index.html") in message
    told = page(run, "gradings").text
    assert "status must be one of scored, precheck, unscored; first response_id / rater_id / sample: r3 / m / 0" in told
    assert "1 unexpected values found. ≈16.67% of 6 total rows." in told
    assert "item_id must occur in items.item_id" in told
    assert "Status: Failed" in told


def test_a_warning_does_not_fail_the_page(graded: Judged) -> None:
    run, ref = graded(faults={3: {"score": None}})
    checked.fn(run, ref)
    data_docs.fn(run)
    told = page(run, "gradings").text
    assert "Warning only: score should be there in at least 95% of the rows where rater_kind is not human" in told
    assert "Status: Succeeded" in told


def test_could_not_run_is_shown_apart_from_failed(graded: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ref = graded(faults={3: {"status": "lost"}})
    real = suite.exception

    def raised(info: object) -> str | None:
        rule = sys._getframe(1).f_locals["rule"].rule
        return "out of <order>" if rule == "between" else real(info)  # type: ignore[arg-type]

    monkeypatch.setattr(suite, "exception", raised)
    stopped(run, ref)
    shown = page(run, "gradings")
    assert shown.marks.count("fas fa-exclamation-triangle text-warning") == 2, "sample and confidence"
    assert shown.marks.count("fas fa-times text-danger") == 2, "status, and the page itself"
    assert "raised an exception" in shown.text
    assert "out of <order>" in shown.text


def test_hostile_keys_are_text_and_nothing_comes_from_the_network(graded: Judged) -> None:
    run, ref = graded(faults={3: {"status": HOSTILE, "rater_id": HOSTILE, "item_id": HOSTILE}})
    stopped(run, ref)
    shown = page(run, "gradings")
    assert "<script>alert(1)</script> & $template ${x} {{ 7*7 }}" in shown.text
    for path in (run.folder / "data_docs").rglob("*.html"):
        one = Page(path)
        assert not one.tags & {"script", "img", "link", "iframe", "object"}
        assert not [link for link in one.links if "//" in link]
        assert "url(" not in path.read_text()
        assert "@import" not in path.read_text()


def test_they_are_built_from_the_kept_results_and_once(
    graded: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, ref = graded("house")
    checked.fn(run, (ref, run.ref(Items, "ingest")))
    for left in (".data_docs.tmp", "data_docs"):  # half built
        (run.folder / left).mkdir()
        (run.folder / left / "index.html").write_text("half")
    monkeypatch.setattr(suite, "_validator", None)
    monkeypatch.chdir(tmp_path)
    assert {"gradings", "ingest.items"} <= set(Page(build(Warehouse.open("house").run("one"))).text.split())
    assert not (run.folder / ".data_docs.tmp").exists()
    before = {path: path.stat().st_mtime_ns for path in (run.folder / "data_docs").rglob("*")}
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    build(run)
    assert {path: path.stat().st_mtime_ns for path in (run.folder / "data_docs").rglob("*")} == before


def test_other_results_make_other_pages(graded: Judged) -> None:
    run, ref = graded()
    checked.fn(run, ref)
    build(run)
    checked.fn(run, run.ref(Items, "ingest"))
    assert "ingest.items" in Page(build(run)).text


def test_what_could_not_be_checked_is_not_in_quarantine(graded: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ref = graded(faults={3: {"status": "lost"}})
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    with pytest.raises(CheckError) as stop:
        checked.fn(run, ref)
    assert "quarantine" not in str(stop.value)
    assert "no Data Docs: ModuleNotFoundError" in str(stop.value)
    assert not (run.folder / "quarantine").exists()


def test_a_result_that_cannot_be_rendered_is_an_error(graded: Judged) -> None:
    run, ref = graded()
    checked.fn(run, ref)
    [kept] = folder(run).glob("*.json")
    result = json.loads(kept.read_text())
    result["results"][0]["expectation_config"]["type"] = "expect_nothing_of_the_kind"
    kept.write_text(json.dumps(result))
    with pytest.raises(CheckError, match="0 pages of 1"):
        build(run)
    assert not (run.folder / "data_docs").exists()
