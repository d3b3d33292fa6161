"""Documents as text: what a reader sees of each kind, and what hostile or broken ones come to."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from rubricflow.tasks.core.store.document_reader import DocumentReader
from rubricflow.tasks.core.store.documents import document_text
from tests.builders.documents import archive, docx, odt, pdf


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_a_word_document_is_what_its_reader_sees() -> None:
    body = (
        f'<w:p>{run("Soap has ")}<w:ins w:id="1">{run("two")}</w:ins><w:del w:id="2"><w:r><w:delText>three</w:delText>'
        f'</w:r></w:del><w:r><w:footnoteReference w:id="2"/></w:r>{run(" ends &amp; x &lt; y.")}'
        f'<w:commentRangeStart w:id="5"/><w:r><w:commentReference w:id="5"/></w:r></w:p>'
        f"<w:p><w:pPr><w:rPr><w:del w:id='9'/></w:rPr></w:pPr>{run('One')}</w:p><w:p>{run(' paragraph.')}</w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{run('fat')}</w:p></w:tc><w:tc><w:p>{run('water')}</w:p></w:tc></w:tr></w:tbl>"
    )
    parts = {
        "footnotes": f'<w:footnote w:id="2"><w:p>{run("As a magnet has.")}</w:p></w:footnote>',
        "comments": f'<w:comment w:id="5"><w:p>{run("COMMENT")}</w:p></w:comment>',
        "header1": f"<w:p>{run('HEADER')}</w:p>",
    }
    text = document_text(".docx", docx("Title", body=body, **parts))
    assert lines(text) == [
        "Title",
        "Soap has two ends & x < y.",
        "One paragraph.",
        "fat water",
        "1. As a magnet has.",
    ]


def test_an_opendocument_text_is_what_its_reader_sees() -> None:
    deleted = "<text:changed-region><text:deletion><text:p>DELETED</text:p></text:deletion></text:changed-region>"
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>As a magnet has.</text:p>"
    body = (
        f"<text:tracked-changes>{deleted}</text:tracked-changes><text:h>Title</text:h>"
        f"<text:p>Soap has<text:s/><text:span>two</text:span>{note}</text:note-body></text:note> ends"
        "<office:annotation><text:p>COMMENT</text:p></office:annotation> &amp; x &lt; y."
        "<text:line-break/>Next.</text:p>"
        "<text:list><text:list-item><text:p>fat</text:p></text:list-item></text:list>"
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>"
        "<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>"
    )
    text = document_text(".odt", odt(body=body))
    assert lines(text) == ["Title", "Soap has two ends & x < y.", "Next.", "* fat", "a b", "As a magnet has."]


def test_what_is_raised_stays_raised() -> None:
    style = '<style:style style:name="T1"><style:text-properties style:text-position="super 58%"/></style:style>'
    spaces = 'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
    document = odt(body='<text:p>It makes 10<text:span text:style-name="T1">8</text:span> m.</text:p>')
    with zipfile.ZipFile(io.BytesIO(document)) as source:
        content = source.read("content.xml").decode()
    content = content.replace(
        "<office:body>", f"<office:automatic-styles {spaces}>{style}</office:automatic-styles><office:body>"
    )
    assert document_text(".odt", rewritten(document, "content.xml", content)) == "It makes 10^8 m."
    raised = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>8</w:t></w:r>'
    assert (
        document_text(".docx", docx(body=f"<w:p>{run('It makes 10')}{raised}{run(' m.')}</w:p>")) == "It makes 10^8 m."
    )


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_plain_text_is_read_in_the_encoding_that_it_has(codec: str) -> None:
    text = "Fette lösen sich in Öl – größtenteils.\nÜber Seife."
    assert document_text(".txt", text.replace("\n", "\r\n").encode(codec)) == text


def test_html_is_what_a_browser_shows() -> None:
    page = b"<!DOCTYPE html><html><head><title>Online text</title></head><body><p>x &lt; y<br>two</p></body></html>"
    assert document_text(".html", page) == "x < y\ntwo"


def test_a_document_of_pictures_has_no_text() -> None:
    assert document_text(".docx", docx()) == document_text(".odt", odt()) == document_text(".pdf", pdf([])) == ""


BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]>'
OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100)


def rewritten(document: bytes, part: str, content: bytes | str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(document)) as source:
        files = {name: source.read(name) for name in source.namelist()}
    return archive(files | {part: content})


HOSTILE = {
    "no byte": (".docx", b"", "file_empty"),
    "no known ending": (".pages", b"x", "file_type"),
    "no ending": ("", b"x", "file_type"),
    "cut off": (".docx", docx("Soap")[:300], "file_damaged"),
    "another archive": (".docx", archive({"a.txt": "x"}), "file_damaged"),
    "text that is called a PDF": (".pdf", b"hello", "file_damaged"),
    "bytes that are called text": (".txt", bytes(range(256)) * 4, "file_damaged"),
    "an old Word document": (".docx", OLD, "file_type"),
    "a protected Word document": (".docx", OLD + "EncryptedPackage".encode("utf-16-le"), "file_locked"),
    "a protected OpenDocument": (
        ".odt",
        rewritten(odt("Soap"), "META-INF/manifest.xml", "<a><manifest:encryption-data/></a>"),
        "file_locked",
    ),
    "a zip bomb": (".docx", rewritten(docx("Soap"), "word/media/a.png", bytes(64 << 20)), "file_too_large"),
    "many parts": (".odt", archive({"content.xml": "<a/>"} | {f"{n}": "" for n in range(6000)}), "file_too_large"),
    "an entity bomb": (".docx", rewritten(docx("Soap"), "word/document.xml", f"{BOMB}<a>&y;</a>"), "file_damaged"),
    "an entity bomb in a .odt": (".odt", rewritten(odt("Soap"), "content.xml", f"{BOMB}<a>&y;</a>"), "file_damaged"),
    "a file of the machine": (
        ".odt",
        rewritten(odt(), "content.xml", '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'),
        "file_damaged",
    ),
    "a photograph in a document": (
        ".docx",
        rewritten(docx("Essay of Ada"), "word/media/a.jpg", b"x"),
        "file_without_text",
    ),
    "formulas": (".docx", docx("x", body='<m:oMath xmlns:m="urn:m"><m:t>x</m:t></m:oMath>'), "file_without_text"),
    "too long a text": (".txt", b"word " * 500_000, "file_too_large"),
}


def test_what_cannot_be_read_says_why() -> None:
    with DocumentReader() as reader:
        found = {name: reader.read(f"essay{ending}", content) for name, (ending, content, _) in HOSTILE.items()}
    assert {name: (one.text, one.reason) for name, one in found.items()} == {
        name: ("", why) for name, (_, _, why) in HOSTILE.items()
    }
    assert all(one.words.isprintable() for one in found.values())


def test_a_word_document_with_macros_is_read_without_them() -> None:
    assert document_text(".docx", rewritten(docx("Soap."), "word/vbaProject.bin", b"Shell")) == "Soap."


def test_elements_in_thousands_of_elements_end_no_process() -> None:
    deep = "<w:sdt><w:sdtContent>" * 20_000 + "</w:sdtContent></w:sdt>" * 20_000
    with DocumentReader() as reader:
        assert reader.read("a.docx", docx("Soap.", body=deep)).reason == "file_damaged"
        assert reader.read("b.txt", b"the next one").text == "the next one"


def test_a_document_that_takes_too_long_or_too_much_is_given_up_and_the_next_one_read() -> None:
    many = pdf(*[[(70, 780 - 12 * n, "word " * 15) for n in range(60)] for _ in range(200)])
    start = time.monotonic()
    with DocumentReader(seconds=0.5) as reader:
        assert reader.read("slow.pdf", many).reason == "file_too_large"
        reader._seconds = 300
        assert reader.read("a.txt", b"the next one, after a slow one").text
    assert time.monotonic() - start < 30
    with DocumentReader(memory=400 << 20) as reader:
        large = rewritten(docx(), "word/document.xml", docx_of(9_000_000))
        assert reader.read("large.docx", large).reason in ("file_too_large", "file_damaged")
        assert reader.read("a.txt", b"the next one, after a large one").text


def docx_of(characters: int) -> str:
    """A body of many short paragraphs."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    paragraphs = "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * (characters // 34)
    return f'<w:document xmlns:w="{word}"><w:body>{paragraphs}</w:body></w:document>'
