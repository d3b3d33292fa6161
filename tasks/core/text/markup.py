"""HTML to the text that a browser shows; what is no HTML stays as it is, to the last character."""

from __future__ import annotations

import re
from html import unescape
from itertools import accumulate
from textwrap import dedent

from inscriptis.css_profiles import STRICT_CSS_PROFILE
from inscriptis.html_engine import Inscriptis
from inscriptis.model.config import ParserConfig
from inscriptis.model.html_element import HtmlElement
from lxml import etree
from lxml.html import document_fromstring

_ELEMENTS = (
    "a abbr acronym address article aside audio b bdi bdo big blockquote body button canvas caption center cite code "
    "col colgroup data dd del details dfn dir div dl dt em embed fieldset figcaption figure font footer form h1 h2 h3 "
    "h4 h5 h6 head header hgroup html i iframe ins kbd label legend li link main map mark math menu meta meter nav "
    "nolayer noscript object ol optgroup option output p picture pre progress q rp rt ruby s samp script section "
    "select small span strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time "
    "title tr tt u ul var video"
)
_EMPTY_ELEMENTS = "area base br col embed hr img input link meta param source track wbr"
_ATTRIBUTE = r"""[a-zA-Z_:@][\w:.-]*\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+)"""
_NEVER_CLOSED = frozenset(_EMPTY_ELEMENTS.split())
_MATHEMATICS = (
    "annotation annotation-xml maligngroup menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom "
    "mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover semantics"
)
_SET_BY_NAME = "allowfullscreen|autoplay|checked|controls|disabled|hidden|loop|muted|nowrap|open|readonly|selected"
_NAMES = frozenset(f"{_ELEMENTS} {_EMPTY_ELEMENTS} {_MATHEMATICS}".split())
_TAG = re.compile(
    rf"<(?P<slash>/?)(?P<name>[a-zA-Z][a-zA-Z0-9:-]*)(?:\s+(?:{_ATTRIBUTE}|(?:{_SET_BY_NAME})(?=[\s/>])))*\s*/?>",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")
_UNSEEN = ("script", "style", "template", "noscript", "object", "iframe", "svg", "annotation", "annotation-xml")
"""Elements of which a reader sees nothing; `annotation` repeats a formula in another language."""
_BETWEEN = {"mfrac": "/", "msup": "^", "msub": "_"}
"""What stands between the two parts of a formula's element where it is written in a line."""
_DEEPEST = 200
"""Elements within each other; libxml2 drops what lies below 256."""
_CONFIG = ParserConfig(
    css=STRICT_CSS_PROFILE | {"sup": HtmlElement(prefix="^")},
    display_images=True,
)


def is_markup(text: str) -> bool:
    """Whether a text is HTML: it has an element that is opened and closed, or one that is never closed, such as <br>.

    "x < 3 and y > 2", "a<b and c>d", "<3" and "i<p>j" are none.
    """
    tags = _tags(text)
    closed = {_name(tag) for tag in tags if tag["slash"]}
    opened = {_name(tag) for tag in tags if not tag["slash"]}
    return bool(opened & (closed | _NEVER_CLOSED))


def _tags(text: str) -> list[re.Match[str]]:
    """The tags of a text in their order: of HTML, and those with a colon that word processors leave, such as <o:p>."""
    return [tag for tag in _TAG.finditer(text) if ":" in tag["name"] or _name(tag) in _NAMES]


def _name(tag: re.Match[str]) -> str:
    return tag["name"].lower()


def plain(text: str) -> str:
    """The text that a browser shows of HTML, without blanks at the ends of lines and blank lines beyond one.

    Lists keep their marks, tables a line a row, images their description in brackets, and raised text follows a ^.
    Formulas are written in a line. Scripts, styles, comments and what is not displayed go. A text without markup stays
    as it is, but for character references (&lt;) that it may hold.
    """
    if not is_markup(text):
        return _ENTITY.sub(lambda reference: unescape(reference[0]), text)
    shown = _shown(_CONTROL.sub(" ", text))
    lines = [line.rstrip() for line in shown.replace("\xa0", " ").splitlines()]
    return _BLANK_LINES.sub("\n\n", dedent("\n".join(lines))).strip()


def _shown(text: str) -> str:
    """What inscriptis makes of HTML; the text without its tags where these are nested more deeply than parsers go."""
    # Those that need no end count as if they had one.
    if max(accumulate(-1 if tag["slash"] else 1 for tag in _tags(text)), default=0) > _DEEPEST:
        return unescape(_TAG.sub(" ", text))
    document = f"<html><body>{_with_stray_signs_escaped(text)}</body></html>"
    tree = document_fromstring(document)
    for formula in tree.iter("math"):
        _write_in_a_line(formula)
    etree.strip_elements(tree, *_UNSEEN, with_tail=False)
    for element in tree.iter():  # inscriptis reads character references a second time
        element.text, element.tail = _escaped(element.text), _escaped(element.tail)
        for name, words in element.attrib.items():
            element.set(name, words.replace("&", "&amp;"))
    return str(Inscriptis(tree, _CONFIG).get_text())


def _escaped(text: str | None) -> str | None:
    return text and text.replace("&", "&amp;")


def _write_in_a_line(formula: etree._Element) -> None:
    """Puts the signs into a formula that its layout stands for: 1/2 for a fraction, x^2 for a power."""
    for element in formula.iter(*_BETWEEN):
        if len(element) == 2:
            for part in element:
                if len(part) > 1:
                    part.text, part[-1].tail = f"({part.text or ''}", f"{part[-1].tail or ''})"
            element[0].tail = _BETWEEN[element.tag]
    for root in formula.iter("msqrt"):
        root.text, root.tail = f"√({root.text or ''}", f"){root.tail or ''}"


def _with_stray_signs_escaped(text: str) -> str:
    """HTML in which every < that begins no tag is written &lt;: a parser would pass over what follows it."""
    pieces, end = [], 0
    bare = _without_comments(text)
    for tag in _tags(bare):
        pieces += [bare[end : tag.start()].replace("<", "&lt;"), tag[0]]
        end = tag.end()
    return "".join([*pieces, bare[end:].replace("<", "&lt;")])


def _without_comments(text: str) -> str:
    """HTML without what stands between <!-- and the next -->; one that is never closed is none."""
    pieces, end = [], 0
    while (start := text.find("<!--", end)) >= 0 and (stop := text.find("-->", start)) >= 0:
        pieces.append(text[end:start])
        end = stop + len("-->")
    return "".join([*pieces, text[end:]])
