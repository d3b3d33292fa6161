"""A report as one static HTML page: no script, nothing fetched; what people, rubrics and responses say is text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import Page
from rubricflow.tasks.core.text.highlight import Label, TextPiece
from rubricflow.tasks.core.text.languages import language_of

HERE = Path(__file__).parent


def rendered(page: Page, style: Path | str = "") -> str:
    """The whole document, which needs no other file. style: CSS for what only this report draws, or its file."""
    own = style if isinstance(style, str) else style.read_text(encoding="utf-8")
    lines = [*(HERE / "page.css").read_text(encoding="utf-8").splitlines(), *own.splitlines()]
    sheet = Markup("\n".join(line.strip() for line in lines))
    return _environment(HERE).get_template("page.html.j2").render(page=page, style=sheet)


def body(template: Path, macro: str, value: object) -> Markup:
    """What one macro of a report's own template makes of a value; it knows `say`."""
    module = _environment(template.parent).get_template(template.name).module
    return Markup(getattr(module, macro)(value))


def filled(template: Path, **names: object) -> Markup:
    """What a report's own template makes of these names; it knows `say`, too."""
    return Markup(_environment(template.parent).get_template(template.name).render(names))


def marked(
    pieces: Iterable[TextPiece[Label]], kind: Callable[[tuple[Label, ...]], str], end_label: Callable[[Label], object]
) -> Markup:
    """A highlighted text as HTML, escaped, what is highlighted in a <mark>: nothing of it is lost or changed but what
    cannot be seen. kind: its CSS classes; end_label: what stands where a highlight ends."""
    shown = []
    for piece in pieces:
        text = Markup("{}").format(say.visible(piece.text))
        if piece.hidden:
            text = Markup('<span class="gap">[{} not shown]</span>').format(say.plural(piece.hidden, "character"))
        elif piece.is_heading:
            text = Markup('<b class="turn">{}</b>').format(text)
        elif piece.labels:
            labels = Markup("").join(
                Markup("<b>{}</b>").format(label) for label in dict.fromkeys(map(end_label, piece.ends))
            )
            text = Markup('<mark class="{}">{}{}</mark>').format(kind(piece.labels), text, labels)
        shown.append(text)
    return Markup("").join(shown)


def lang(text: str) -> Markup:
    """The attribute that says the language of a text or markup to whoever reads it out; none where it is not known."""
    code = language_of(Markup(text).striptags().casefold())
    return Markup(' lang="{}"').format(code) if code else Markup("")


@cache
def _environment(folder: Path) -> Environment:
    loader = FileSystemLoader(folder)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"count": say.count, "share": say.share, "figure": say.figure, "plural": say.plural, "lang": lang}
    jinja.globals |= {"say": say}
    return jinja
