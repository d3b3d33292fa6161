"""A highlighted text as HTML: nothing of it is lost or changed but what cannot be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.text.highlight import Label, Piece


def marked(
    pieces: Iterable[Piece[Label]], kind: Callable[[tuple[Label, ...]], str], end_label: Callable[[Label], object]
) -> Markup:
    """Escaped text with what is highlighted in a <mark>. kind: its CSS classes; end_label: what stands where a
    highlight ends."""
    return Markup("").join(
        _piece(piece, kind(piece.labels), dict.fromkeys(map(end_label, piece.ends))) for piece in pieces
    )


def _piece(piece: Piece[Label], kind: str, end_labels: Iterable[object]) -> Markup:
    if piece.hidden:
        return Markup('<span class="gap">[{} not shown]</span>').format(say.plural(piece.hidden, "character"))
    text = say.visible(piece.text)
    if not piece.labels:
        return Markup("{}").format(text)
    labels = Markup("").join(Markup("<b>{}</b>").format(label) for label in end_labels)
    return Markup('<mark class="{}">{}{}</mark>').format(kind, text, labels)
