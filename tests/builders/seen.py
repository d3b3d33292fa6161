"""A page as a reader meets it, and that nothing on it runs or is fetched."""

from __future__ import annotations

from html.parser import HTMLParser


class Seen(HTMLParser):
    """Tags, ids of sections, and words in the order of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if tag == "section" and name == "id"]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "src"]

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())

    def after(self, word: str, many: int) -> list[str]:
        """The next words of the page."""
        found = [text for text in self.words[self.words.index(word) + 1 :] if text]
        return found[:many]
