"""PDF: whatever a page does to a sentence, it is one again, and a judge's quote of it stands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.tables.data import UNREAD
from rubricflow.tasks.core.store.document_reader import DocumentReader
from rubricflow.tasks.core.store.pdf import UnreadableDocument, pdf_text
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import Subject, ground
from tests.builders.documents import Placed, column, pdf

CRITERION = Criterion(id="C", trait="t", text="c", levels=("absent", "present"))
ESSAY = (
    "Soap is a mol\u00adecule with two ends that be\u00adhave differ\u00adently: one of them dis\u00adsolves in water, "
    "and the other one holds on to fat. When we rub our hands, the ends that like fat stick to the oil and the water "
    "car\u00adries them away. This is why the well-known habit of washing hands helps against germs even where the "
    "water is cold, which many peo\u00adple do not be\u00adlieve. The ﬁrst ef\u00adfect is one of chem\u00adistry, and "
    "the second one, the rub\u00adbing, is pure me\u00adchanics that any cloth would do as well."
)
PLAIN = ESSAY.replace("\u00ad", "").replace("ﬁ", "fi")
SENTENCES = [PLAIN[unit.start : unit.end] for unit in units(PLAIN) if unit.kind == "sentence"]


def verified(quote: str, text: str) -> bool:
    """Whether a judge's quote of a whole sentence stands in one sentence of the text."""
    subject = Subject(text, units(text))
    cited = [unit.unit_id for unit in units(text) if unit.kind == "sentence"]
    return any(ground(quote, unit_id, CRITERION, subject).status == "verified" for unit_id in cited)


def all_stand(text: str) -> bool:
    return all(verified(sentence, text) for sentence in SENTENCES)


def shifted(lines: list[Placed], x: float, y: float) -> list[Placed]:
    return [(left + x, up + y, *rest) for left, up, *rest in lines]


def two_columns(width: int, gutter: float, lines: list[Placed], size: float = 10) -> list[Placed]:
    """Lines of a column in two, side by side."""
    half = (len(lines) + 1) // 2
    return lines[:half] + shifted(lines[half:], width * 0.6 * size + gutter, 1.2 * size * half)


@settings(max_examples=8)
@given(st.integers(24, 80), st.sampled_from([9, 10, 12]))
def test_sentences_across_the_ends_of_lines_are_whole(width: int, size: float) -> None:
    text = pdf_text(pdf(column(ESSAY, width, size=size), size=size))
    assert text == PLAIN
    assert all_stand(text)


@settings(max_examples=8)
@given(st.integers(26, 36), st.floats(11, 40), st.booleans(), st.floats(-5, 5))
def test_sentences_across_columns_are_whole(width: int, gutter: float, titled: bool, offset: float) -> None:
    lines = two_columns(width, gutter, column(ESSAY, width))
    half = (len(lines) + 1) // 2
    lines = lines[:half] + shifted(lines[half:], 0, offset)
    title = [(70.0, 800.0, "What soap does, told in two columns by a student of 7b")] if titled else []
    text = pdf_text(pdf(title + lines))
    assert text.split()[-len(PLAIN.split()) :] == PLAIN.split()
    assert all_stand(text)


@settings(max_examples=15)
@given(st.integers(40, 70), st.integers(2, 5), st.sampled_from(["{n}", "Page {n} of 9", "- {n} -", "Anna Muster {n}"]))
def test_sentences_across_pages_are_whole(width: int, count: int, foot: str) -> None:
    lines, pages = column(ESSAY, width), []
    each = -(-len(lines) // count)
    for number in range(count):
        mine = shifted(lines[each * number : each * (number + 1)], 0, 12.0 * each * number)
        if mine:
            head = (70.0, 810.0, "Soap, an essay")
            pages.append([head, *mine, (280.0, 30.0, foot.format(n=number + 1))])
    text = pdf_text(pdf(*pages))
    # Whether a sentence that begins a page begins a paragraph, too, nothing tells.
    assert len(pages) == 1 or text.split() == PLAIN.split()
    assert all_stand(text)


def test_a_footnote_parts_no_sentence() -> None:
    lines = column(ESSAY, 60)
    note: list[Placed] = [(70.0, 60.0, "1 As a magnet has", 7), (70.0, 52.0, "two poles.", 7)]
    text = pdf_text(pdf([*lines[:4], *note], shifted(lines[4:], 0, 48)))
    assert text.startswith(PLAIN)
    assert " ".join(text.removeprefix(PLAIN).split()) == "1 As a magnet has two poles."


def test_paragraphs_lists_and_titles_stay_apart() -> None:
    page = [
        (70.0, 780.0, "What soap does"),
        *column("One end holds on to fat, the other one to water, and that is all there is to it.", 40, top=750),
        *column("Rubbing loosens the dirt, so that water can take it away.", 40, top=700),
        (70.0, 650.0, "- fat"),
        (70.0, 638.0, "- water"),
    ]
    assert pdf_text(pdf(page)) == (
        "What soap does\n\nOne end holds on to fat, the other one to water, and that is all there is to it.\n\n"
        "Rubbing loosens the dirt, so that water can take it away.\n\n- fat\n- water"
    )


def test_the_cells_of_a_table_stay_side_by_side() -> None:
    cells = [
        ("fat", "yes"),
        ("water", "no"),
        ("oil", "yes"),
        ("sand", "no"),
        ("salt", "no"),
        ("ink", "yes"),
        ("wax", "?"),
    ]
    page = [
        place for n, (a, b) in enumerate(cells) for place in ((70.0, 700 - 14.0 * n, a), (200.0, 700 - 14.0 * n, b))
    ]
    assert pdf_text(pdf(page)).split("\n") == [f"{a} {b}" for a, b in cells]


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("all about mol- ecules", "all about molecules"),
        ("this well- known habit", "this well-known habit"),
        ("the Vor- und Nachteile", "the Vor- und Nachteile"),
        ("from Nord- Süd to", "from Nord-Süd to"),
        ("the years 1914- 1918 were", "the years 1914-1918 were"),
    ],
)
def test_a_hyphen_at_the_end_of_a_line_stays_where_it_belongs_to_the_word(words: str, whole: str) -> None:
    first, second = words.split("- ")
    text = pdf_text(pdf([(70.0, 700.0, f"{first}-"), (70.0, 688.0, second), (70.0, 676.0, "of all.")]))
    assert text.startswith(whole)


def why(content: bytes) -> tuple[str, str]:
    with pytest.raises(UnreadableDocument) as stop:
        pdf_text(content)
    return stop.value.reason, stop.value.words


def test_a_scan_is_named_with_its_page() -> None:
    lines = column(ESSAY, 60)
    assert why(pdf([], picture=[0])) == ("file_without_text", "page 1 of 1 is a picture: was it scanned?")
    assert why(pdf(lines, [], picture=[1])) == ("file_without_text", "page 2 of 2 is a picture: was it scanned?")
    stamped: list[Placed] = [(70.0, 30.0, "Scanned with a phone")]
    assert why(pdf(stamped, picture=[0]))[0] == "file_without_text"


def test_a_scan_with_its_text_behind_is_read() -> None:
    assert pdf_text(pdf(column(ESSAY, 60), picture=[0])) == PLAIN


def test_a_power_stays_one_and_a_footnotes_number_goes() -> None:
    page: list[Placed] = [(70, 700, "Light makes 3 * 10"), (178, 704, "8", 6), (181.6, 700, " m/s, says Newton")]
    page += [(283.6, 704, "12", 6), (290.8, 700, " of water, H"), (362.8, 697, "2", 6), (366.4, 700, "O.")]
    assert pdf_text(pdf(page)) == "Light makes 3 * 10^8 m/s, says Newton of water, H2O."


def test_page_numbers_may_begin_behind_a_cover() -> None:
    lines = column(ESSAY, 60)
    cover = [(70.0, 500.0, "Soap"), (70.0, 480.0, "by Ada Berg")]
    numbers = [(70.0, 800.0, "1"), (280.0, 30.0, "2"), (480.0, 790.0, "3")]
    pages = [[*shifted(lines[n : n + 3], 0, 12.0 * n), number] for n, number in zip((0, 3, 6), numbers, strict=True)]
    assert pdf_text(pdf(cover, *pages)).split() == ["Soap", "by", "Ada", "Berg", *PLAIN.split()]


def test_what_was_typed_into_a_form_or_beside_the_text_is_named() -> None:
    for note in (b"/Subtype /Widget /FT /Tx /V (Soap)", b"/Subtype /FreeText /Contents (Soap)"):
        form = pdf(column(ESSAY, 60)).replace(b"/MediaBox", b"/Annots [<< /Type /Annot %s >>] /MediaBox" % note)
        assert why(form)[0] == "file_without_text"
    empty = pdf(column(ESSAY, 60)).replace(b"/MediaBox", b"/Annots [<< /Subtype /Widget /FT /Tx >>] /MediaBox")
    assert pdf_text(empty) == PLAIN


def test_a_title_across_columns_is_a_line_of_its_own() -> None:
    page = [(70.0, 800.0, "What soap does, and why it does it"), *two_columns(30, 20, column(ESSAY, 30))]
    assert pdf_text(pdf(page)) == f"What soap does, and why it does it\n\n{PLAIN}"


def test_a_pdf_that_asks_for_a_password_is_named() -> None:
    encrypt = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + "00" * 32 + "> /U <" + "11" * 32 + "> >>"
    assert why(pdf(column(ESSAY, 60), trailer=f"{encrypt} /ID [<00> <00>]"))[0] == "file_locked"


@pytest.fixture(scope="module")
def reader() -> Iterator[DocumentReader]:
    with DocumentReader() as one:
        yield one


@settings(max_examples=15)
@given(data=st.data())
def test_a_damaged_pdf_is_read_or_refused(reader: DocumentReader, data: st.DataObject) -> None:
    content = bytearray(pdf(column(ESSAY, 60)))
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(content)))
    found = reader.read("essay.pdf", bytes(content[:end]))
    assert (found.reason is None) == bool(found.text)
    assert found.reason is None or found.reason in UNREAD
