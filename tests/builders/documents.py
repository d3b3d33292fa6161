"""Small documents as word processors write them, made from nothing but the standard library."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = f"""<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>"""
_ODT = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
)


def archive(files: Mapping[str, bytes | str] | Iterable[tuple[str | zipfile.ZipInfo, bytes | str]]) -> bytes:
    """A .zip of files, in their order; a name may come twice."""
    written = io.BytesIO()
    pairs = files.items() if isinstance(files, Mapping) else files
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in pairs:
            target.writestr(name, content)
    return written.getvalue()


def docx(*paragraphs: str, body: str = "", **parts: str) -> bytes:
    """A .docx of paragraphs, then what `body` says in WordprocessingML; parts: of the folder `word`, such as
    footnotes."""
    written = "".join(f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>' for text in paragraphs)
    document = f"<w:document {_W}><w:body>{written}{body}</w:body></w:document>"
    files = {"[Content_Types].xml": _TYPES, "_rels/.rels": _RELATIONS, "word/document.xml": document}
    files |= {f"word/{name}.xml": f"<w:{name} {_W}>{content}</w:{name}>" for name, content in parts.items()}
    return archive(files)


def odt(*paragraphs: str, body: str = "") -> bytes:
    """An .odt of paragraphs, then what `body` says in OpenDocument."""
    written = "".join(f"<text:p>{escape(text)}</text:p>" for text in paragraphs)
    content = (
        f"<office:document-content {_ODT}><office:body><office:text>{written}{body}"
        "</office:text></office:body></office:document-content>"
    )
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


Placed = tuple[float, float, str] | tuple[float, float, str, float]
"""Points from the left and from the bottom of a page, the line that begins there, and its size where that is another
one."""


def pdf(*pages: Sequence[Placed], size: float = 10, picture: Sequence[int] = (), trailer: str = "") -> bytes:
    """A PDF of lines in Courier, whose letters are all 0.6 of its size wide, in Windows-1252. picture: the pages, from
    0, that a grey picture covers; trailer: what else stands there, such as `/Encrypt`."""
    objects: list[bytes] = []

    def add(content: bytes) -> int:
        objects.append(content)
        return len(objects)

    add(b"<< /Type /Catalog /Pages 2 0 R >>")
    add(b"")
    font = add(
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding << /Type /Encoding /BaseEncoding"
        b" /WinAnsiEncoding /Differences [1 /fi /fl] >> >>"
    )
    image = add(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8"
        b" /Length 1 >>\nstream\n\x80\nendstream"
    )
    kids = []
    for number, lines in enumerate(pages):
        drawn = [b"q 595 0 0 842 0 0 cm /I Do Q"] if number in picture else []
        drawn += [
            b"BT /F %g Tf %g %g Td (%s) Tj ET" % (own[0] if own else size, x, y, _escaped(text))
            for x, y, text, *own in lines
        ]
        stream = b"\n".join(drawn)
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
                b" /Resources << /Font << /F %d 0 R >> /XObject << /I %d 0 R >> >> >>" % (content, font, image)
            )
        )
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    written, places = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        trailer.encode(),
        start,
    )
    return bytes(written)


def _escaped(text: str) -> bytes:
    coded = text.replace("ﬁ", "\x01").replace("ﬂ", "\x02").encode("cp1252")
    return coded.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def column(words: str, width: int, x: float = 70, top: float = 770, size: float = 10) -> list[Placed]:
    """Words set in lines of at most so many letters, from `top` down; a word too long for what is left goes on the next
    line, and "­" says where it may be divided by a hyphen."""
    lines, line = [], ""
    for word in words.split(" "):
        whole = word.replace("\u00ad", "")
        if len(line) + len(whole) + bool(line) <= width:
            line = f"{line} {whole}" if line else whole
            continue
        head, _, tail = word.partition("\u00ad")
        if tail and len(line) + len(head) + 1 + bool(line) <= width:
            lines.append(f"{line} {head}-" if line else f"{head}-")
            line = tail
        else:
            lines.append(line)
            line = whole
    lines.append(line)
    return [(x, top - 1.2 * size * number, text) for number, text in enumerate(lines)]
