"""Source files: every cell as it stands, or an error that names file, row and rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.settings.data import Source
from rubricflow.tasks.core.store.source import SHOWN, Faults, chunks, read, row_lines

CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def made(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def cells(frame: pd.DataFrame) -> list[list[Any]]:
    return frame.to_numpy().tolist()


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "id,text\n1,a\n", [["1", "a"]]),
        ("a.CSV", "id,text\r\n1,\r\n", [["1", ""]]),
        ("a.csv", "\ufeffid,text\n01,NA\n", [["01", "NA"]]),
        ("a.csv", 'id,text\n1,"a\r\nb, ""c"""\n', [["1", 'a\r\nb, "c"']]),
        ("a.csv", "id,text\n\n1,a\n\n", [["1", "a"]]),
        ("a.csv", "id,text\n1,a\x00b\n", [["1", "a\x00b"]]),
        ("a.csv", "id,text\n1,\u2028\x85\x0b\n", [["1", "\u2028\x85\x0b"]]),
        ("a.csv", "id,text\n", []),
        ("a.tsv", "id\ttext\n1\ta, b\n", [["1", "a, b"]]),
        ("a.jsonl", '\ufeff{"id": 1, "text": "a"}\n\n{"text": null, "id": 2.5}', [[1, "a"], [2.5, None]]),
        ("a.jsonl", '{"id": "\u2028\x85", "text": ["x"]}\r\n', [["\u2028\x85", ["x"]]]),
        ("a.jsonl", '{"id": "a\\u0000b", "text": {"x": 1}}', [["a\x00b", {"x": 1}]]),
    ],
)
def test_cells_are_read_as_they_stand(tmp_path: Path, name: str, content: str, rows: list[list[Any]]) -> None:
    frame = read(made(tmp_path, name, content))
    assert (list(frame.columns), cells(frame)) == (["id", "text"], rows)
    assert set(frame.dtypes) == {pd.Series([], dtype=object).dtype}


def test_a_key_that_a_record_lacks_is_missing(tmp_path: Path) -> None:
    frame = read(made(tmp_path, "a.jsonl", '{"id": 1}\n{"id": 2, "text": "b"}\n'))
    assert frame["text"].isna().tolist() == [True, False]
    assert frame["id"].tolist() == [1, 2]


@pytest.mark.parametrize(("name", "content"), [("a.csv", "id\n1\n\n3\n"), ("a.jsonl", '{"id": "1"}\n\n{"id": "3"}')])
def test_the_index_counts_blank_rows(tmp_path: Path, name: str, content: str) -> None:
    assert read(made(tmp_path, name, content)).index.tolist() == [0, 2]


@settings(max_examples=20)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_any_text_comes_back_from_every_format(texts: list[tuple[str, str]]) -> None:
    import csv
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [("x" + number, text) for number, text in texts]  # a row of blanks is none
        for ending, delimiter in (("csv", ","), ("tsv", "\t")):
            with (folder / f"a.{ending}").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
        lines = [json.dumps(dict(zip(("id", "text"), row, strict=True)), ensure_ascii=False) for row in rows]
        made(folder, "a.jsonl", "\n".join(lines))
        pq.write_table(pa.table({"id": [r[0] for r in rows], "text": [r[1] for r in rows]}), folder / "a.parquet")
        for ending in ("csv", "tsv", "jsonl", "parquet"):
            assert cells(read(folder / f"a.{ending}")) == [list(row) for row in rows], ending


def test_a_huge_cell_is_read(tmp_path: Path) -> None:
    assert len(read(made(tmp_path, "a.csv", f"id,text\n1,{'x' * 2**22}\n"))["text"][0]) == 2**22


def test_parquet_keeps_types_and_ignores_the_names_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "year=2020"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, None], "text": [["a"], None]}), folder / "a.parquet")
    frame = read(folder / "a.parquet")
    assert (list(frame.columns), cells(frame)) == (["id", "text"], [[1, ["a"]], [None, None]])


@pytest.mark.parametrize(
    ("name", "content", "row", "rule"),
    [
        ("a.doc", "", None, "'.doc' is not a known ending; use one of .csv, .tsv, .txt, .xlsx, .xlsm, .jsonl, .json"),
        ("a.xls", "", None, "'.xls' files are not read"),
        ("a.csv", "", None, "is empty; a header is needed"),
        ("a.csv", "\n,\n", None, "is empty; a header is needed"),
        ("a.csv", "id,text,id\n", None, "the header repeats 'id'"),
        ("a.csv", "id,text\n1,a\n\n2\n", 3, "has 1 cells, the header has 2"),
        ("a.csv", "id,text\n1,a,b\n", 1, "has 3 cells, the header has 2"),
        ("a.csv", 'id,text\n1,"a\nb"\n2,"c"d\n', None, "line 4: is not well-formed: "),
        ("a.csv", 'id,text\n1,a\n2,"b\n', None, "line 3: is not well-formed: "),
        ("a.csv", "id,text\n1,é\n".encode() + b"2,\xff\n", None, "is UTF-8 but for line 3, which holds bytes of anoth"),
        ("a.jsonl", "", None, "is empty"),
        ("a.jsonl", "\n \n", None, "is empty"),
        ("a.jsonl", '{"id": 1}\n\n{"id": \n', 3, "is not JSON: "),
        ("a.jsonl", '{"id": 1}\n[1]\n', 2, "is not a JSON object"),
        ("a.jsonl", "[" * 100_000, 1, "is not JSON: "),
        ("a.jsonl", '{"id": ' + "1" * 5000 + "}", 1, "is not JSON: "),
        ("a.jsonl", '{"id": 1}\n{"id": 1, "id": 2}\n', 2, "the key 'id' is given twice"),
        ("a.jsonl", '{"id": NaN}\n', 1, "NaN is no JSON number"),
        ("a.csv", "id,te\0xt\n1,a\n", None, "has NUL characters in its header; is it UTF-16"),
        ("a.jsonl", b'{"id": 1}\n{"id": "\xe9"}', None, "is not UTF-8: .* in line 2"),
        ("a.parquet", "PAR1 not", None, "is not Parquet: "),
        ("a.parquet", "", None, "is not Parquet: "),
    ],
)
def test_an_error_names_file_row_and_rule(
    tmp_path: Path, name: str, content: str | bytes, row: int | None, rule: str
) -> None:
    path = made(tmp_path, name, content)
    with pytest.raises(InputError, match=rule) as stop:
        read(path)
    assert (stop.value.file, stop.value.row) == (path, row)
    assert str(stop.value).startswith(str(path))


@pytest.mark.parametrize("name", ["none.csv", "folder.csv"])
def test_what_is_no_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=rf"{name}: no such file"):
        read(tmp_path / name)


def test_parquet_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"id": broken}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: is not UTF-8: "):
        read(tmp_path / "a.parquet")


def test_parquet_that_is_cut_off_or_overwritten_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [f"text {n}" for n in range(1000)]}), path)
    whole = path.read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], whole[:100] + b"\xff" * 100 + whole[200:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.parquet: (is not Parquet|cannot be read)"):
            read(path)


@pytest.mark.parametrize("limit", ["ROWS", "CHARACTERS"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_chunks_together_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, limit: str) -> None:
    rows = [{"id": f"{n}", "text": "x" * n} for n in range(1, 8)]
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = (
            [json.dumps(row) for row in rows] if ending == "jsonl" else [f"{row['id']},{row['text']}" for row in rows]
        )
        made(tmp_path, path.name, "\n".join(lines if ending == "jsonl" else ["id,text", *lines]))
    whole = read(path)
    monkeypatch.setattr("rubricflow.tasks.core.store.source._BATCH", 2)
    monkeypatch.setattr(f"rubricflow.tasks.core.store.source.{limit}", 2)
    cut = list(chunks(path))
    assert len(cut) > 3
    assert {tuple(part.columns) for part in cut} == {("id", "text")}
    pd.testing.assert_frame_equal(pd.concat(cut), whole)
    assert cells(whole) == [list(row.values()) for row in rows]


def test_a_key_that_comes_late_is_a_column_of_the_first_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricflow.tasks.core.store.source.ROWS", 1)
    first, _ = chunks(made(tmp_path, "a.jsonl", '{"id": 1}\n{"id": 2, "text": "b"}\n'))
    assert first.to_dict("list") == {"id": [1], "text": [None]}


def test_parquet_with_a_repeated_column_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"the header repeats \['id'\]"):
        read(tmp_path / "a.parquet")


# Errors gathered: the first twenty with their lines, the number of the others.


def wrong(row: int, rule: str = "is empty") -> InputError:
    return InputError(rule, file="a.csv", row=row, field="id")


def test_a_single_error_is_itself() -> None:
    faults = Faults()
    faults.add(wrong(1))
    with pytest.raises(InputError, match=r"^a\.csv, row 1, field 'id': is empty$"):
        faults.refuse()


def test_the_first_are_shown_and_the_others_counted() -> None:
    faults = Faults()
    for row in range(1, SHOWN + 4):
        faults.add(wrong(row))
    with pytest.raises(InputErrors) as stop:
        faults.refuse()
    lines = str(stop.value).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("23 errors in the input; the first 20:", "  … and 3 more", 22)
    assert stop.value.count == 23


def test_of_one_cell_the_first_error_counts() -> None:
    faults = Faults()
    faults.add(wrong(1))
    faults.add(wrong(1, "occurs twice"))
    assert faults.count == 1


def test_errors_get_the_lines_of_their_rows_in_their_order() -> None:
    faults = Faults()
    faults.add(wrong(2))
    faults.add(wrong(1))
    faults.locate("a.csv", None, lambda rows: {row: 10 * row for row in rows})
    assert [str(error) for error in faults.first] == [
        "a.csv, line 10 (row 1), column 'id': is empty",
        "a.csv, line 20 (row 2), column 'id': is empty",
    ]


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.csv", 'id,text\n1,"a\nb"\n\n3,c\n', {1: 2, 3: 5}),
        ("a.jsonl", '{"id": 1}\n', {1: 1, 3: 3}),
        ("a.parquet", "", {}),
        ("none.csv", None, {}),
    ],
)
def test_rows_have_lines_where_files_do(tmp_path: Path, name: str, content: str | None, lines: dict[int, int]) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert row_lines(tmp_path / name, {1, 3}, Source(file=name)) == lines
