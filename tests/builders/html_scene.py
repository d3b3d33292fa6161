"""A page as the tests of pictures see it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = ("path", "meta")


class Seen(HTMLParser):
    """Every element with its attributes and the text directly in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")
        if tag not in VOID:
            self._open.append(len(self.texts) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] += data

    @property
    def titles(self) -> list[str]:
        return [text for (tag, _), text in zip(self.elements, self.texts, strict=True) if tag == "title"]

    @property
    def words(self) -> set[str]:
        return {text.strip() for text in self.texts}

    def of(self, kind: str) -> list[str]:
        """The texts of the elements of a class."""
        return [text for kinds, text in zip(self.classes, self.texts, strict=True) if kinds == kind]

    @property
    def classes(self) -> list[str]:
        return [attrs.get("class", "") for _, attrs in self.elements]

    def widths(self, kind: str) -> list[float]:
        """Of the elements of a class, in per cent."""
        styles = [attrs["style"] for _, attrs in self.elements if attrs.get("class") == kind]
        return [float(style.split("width:")[1].removesuffix("%")) for style in styles]
