"""The text of one document as its reader sees it: Word, OpenDocument, PDF, HTML and plain text.

Whoever reads a stranger's document does so in a process of its own, see `document_reader`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Container, Mapping

import mammoth
from lxml import etree, html

from rubricflow.tasks.core.store.delimited import decoded
from rubricflow.tasks.core.store.pdf import FEW, UnreadableDocument, pdf_text
from rubricflow.tasks.core.text.markup import plain

LARGEST = 128 << 20
"""Bytes to which a document may unpack."""
RATIO = 200
"""How many times its own size a document of more than 8 MB may unpack to."""
MOST_PARTS = 5_000
"""Files within a document."""
MOST_CHARACTERS = 2_000_000
"""Of a text."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PROTECTED = "EncryptedPackage".encode("utf-16-le")
_XML = (".xml", ".rels")
_FOOTNOTE = "footnote-", "endnote-"
_BEFORE_HTML = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?<!doctype[^>]*>", re.IGNORECASE)
_SAFE = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
_OF_ODT = {
    "draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0",
    "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
    "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
}
_HTML_OF_ODT = {"p": "p", "h": "p", "list": "ul", "list-item": "li", "table": "table", "table-row": "tr"}
_HTML_OF_ODT |= {"table-cell": "td", "line-break": "br"}
_UNSEEN_IN_ODT = {"tracked-changes", "annotation", "annotation-end", "title", "desc", "note-citation", "forms"}
_UNSEEN_IN_ODT |= {"table-of-content", "sequence-decls", "script"}


def document_text(ending: str, content: bytes) -> str:
    """The text of a document by the ending of its name, in small letters; '' where it has none.

    Headers, footers, page numbers, comments, what was deleted while changes were tracked, and pictures are no text;
    footnotes follow at the end. `UnreadableDocument` where nothing can be read.
    """
    if ending not in READERS:
        shown = f"'{ending}' files" if ending else "files without an ending"
        raise UnreadableDocument("file_type", f"{shown} are not read: only {', '.join(READERS)}")
    if not content:
        raise UnreadableDocument("file_empty", "no byte is in it")
    text = READERS[ending](content)
    if len(text) > MOST_CHARACTERS:
        raise UnreadableDocument(
            "file_too_large", f"{len(text):,} characters, and at most {MOST_CHARACTERS:,} are read"
        )
    return text


def _docx(content: bytes) -> str:
    with _refuse_other_archives(content, "word/document.xml", "Word document (.docx)") as archive:
        for name in archive.namelist():
            if name.endswith(_XML) and (part := archive.read(name)):
                _refuse_entities(etree.fromstring(part, _SAFE))
        has_formulas = b"oMath>" in archive.read("word/document.xml")
        has_pictures = any(name.startswith("word/media/") for name in archive.namelist())
    converted = mammoth.convert_to_html(io.BytesIO(content), convert_image=lambda image: [])
    root = html.fragment_fromstring(converted.value, create_parent="div")
    for link in root.xpath("//a[starts-with(@href, '#')]"):
        # The number in the text and the arrow back at the note: neither is a word of the student's.
        if link.get("href").removeprefix("#").startswith(_FOOTNOTE):
            (link.getparent() if link.getparent().tag == "sup" else link).drop_tree()
    return _whole(plain(etree.tostring(root, encoding="unicode", method="html")), has_pictures, has_formulas)


def _odt(content: bytes) -> str:
    with _refuse_other_archives(content, "content.xml", "OpenDocument text (.odt)") as archive:
        if "META-INF/manifest.xml" in archive.namelist() and b"encryption-data" in archive.read(
            "META-INF/manifest.xml"
        ):
            raise UnreadableDocument("file_locked", "it asks for a password")
        written = etree.fromstring(archive.read("content.xml"), _SAFE)
        _refuse_entities(written)
        has_pictures = any(name.startswith("Pictures/") for name in archive.namelist())
    body = written.find("office:body/office:text", _OF_ODT)
    if body is None:
        raise UnreadableDocument("file_damaged", "is no OpenDocument text (.odt)")
    page, notes = etree.Element("div"), etree.Element("div")
    raised = written.xpath(
        "//style:style[starts-with(style:text-properties/@style:text-position, 'super')]", namespaces=_OF_ODT
    )
    _copy(body, page, notes, frozenset(style.get(_name_of("style", "name")) for style in raised))
    page.append(notes)
    has_formulas = written.find(".//draw:object", _OF_ODT) is not None
    return _whole(plain(etree.tostring(page, encoding="unicode", method="html")), has_pictures, has_formulas)


def _whole(text: str, has_pictures: bool, has_formulas: bool) -> str:
    """A text that is all there is to read; `UnreadableDocument` where formulas are left out, or there are pictures and
    hardly a word."""
    if has_formulas:
        raise UnreadableDocument("file_without_text", "its formulas or embedded objects are not read")
    if has_pictures and len(text) < FEW:
        raise UnreadableDocument("file_without_text", "it holds pictures and hardly a word")
    return text


def _name_of(space: str, name: str) -> str:
    return f"{{{_OF_ODT[space]}}}{name}"


def _copy(element: etree._Element, to: etree._Element, notes: etree._Element, raised: Container[str]) -> None:
    """Adds what a reader sees of an element of OpenDocument to an element of HTML; a footnote goes to the notes.

    raised: the styles of raised letters.
    """
    _append(to, element.text)
    for child in element:
        name = etree.QName(child).localname if isinstance(child.tag, str) else "comment"
        if name in ("s", "tab"):
            _append(to, " " * min(80, int(child.get(_name_of("text", "c"), "1"))))
        elif name == "note":
            for part in child.iterfind("text:note-body", _OF_ODT):
                _copy(part, notes, notes, raised)
        elif name in _HTML_OF_ODT:
            _copy(child, etree.SubElement(to, _HTML_OF_ODT[name]), notes, raised)
        elif name not in _UNSEEN_IN_ODT and name != "comment":
            is_raised = name == "span" and child.get(_name_of("text", "style-name")) in raised
            _copy(child, etree.SubElement(to, "sup") if is_raised else to, notes, raised)
        _append(to, child.tail)


def _append(to: etree._Element, text: str | None) -> None:
    if not text:
        return
    if len(to):
        to[-1].tail = (to[-1].tail or "") + text
    else:
        to.text = (to.text or "") + text


def _refuse_other_archives(content: bytes, part: str, kind: str) -> zipfile.ZipFile:
    """The document as an archive; `UnreadableDocument` for what is none, is protected, or unpacks to too much."""
    if content.startswith(_OLD_OFFICE):
        if _PROTECTED in content:
            raise UnreadableDocument("file_locked", "it asks for a password")
        raise UnreadableDocument("file_type", "it is of the old Word format (.doc); save it as .docx")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        parts = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableDocument("file_damaged", f"it is no {kind}") from error
    if part not in archive.namelist() or len(set(archive.namelist())) < len(parts):
        raise UnreadableDocument("file_damaged", f"it is no {kind}")
    if any(entry.flag_bits & 1 for entry in parts):
        raise UnreadableDocument("file_locked", "it asks for a password")
    unpacked = sum(entry.file_size for entry in parts)
    if len(parts) > MOST_PARTS or unpacked > min(LARGEST, max(8 << 20, RATIO * len(content))):
        raise UnreadableDocument("file_too_large", f"it unpacks to {unpacked / 1e6:,.0f} MB in {len(parts):,} files")
    return archive


def _refuse_entities(root: etree._Element) -> None:
    """`UnreadableDocument` where XML declares entities, by which a few bytes become gigabytes."""
    if root.getroottree().docinfo.doctype:
        raise UnreadableDocument("file_damaged", "its XML declares entities, as no word processor does")


def _html(content: bytes) -> str:
    return plain(_BEFORE_HTML.sub("", _plain(content), count=1))


def _plain(content: bytes) -> str:
    text = decoded(content)
    if text is None or "\0" in text:
        raise UnreadableDocument("file_damaged", "it is no text, or its encoding cannot be told")
    return "\n".join(text.splitlines()).strip()


READERS: Mapping[str, Callable[[bytes], str]] = {
    ".docx": _docx,
    ".odt": _odt,
    ".pdf": pdf_text,
    ".txt": _plain,
    ".md": _plain,
    ".html": _html,
    ".htm": _html,
}
"""Ending → how such a document is read."""
