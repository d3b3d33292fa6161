"""How an experiment's tables are shown: numbers with their ends, names as text, simulated raters said to be so."""

from __future__ import annotations

from html.parser import HTMLParser

from rubricflow.tasks.core.display.table import Bar, Cell, LevelShares, Panel, Table, labelled, markdown
from rubricflow.tasks.grading.evaluate.experiment.tables import page

EVIL = '<img src=x onerror="1"> a|b [bold] \x1b[31m'
PANEL = Panel("Errors", (Bar("A", 0.5, 0.4, 0.7), Bar(EVIL, -0.25)))
SHARES = LevelShares("Scores", ("0", "1"), (0.25, 0.75), {"A": (0.5, 0.5)})
TABLE = Table(
    "t_1",
    "Table 1",
    ("arm", "MAE"),
    (("A", Cell(0.5, 0.4, 0.7, 0.1, ends="interval")), (EVIL, Cell(None))),
    (EVIL,),
    (PANEL, SHARES),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_every_title_says_that_the_rater_is_simulated() -> None:
    found = labelled(TABLE)
    assert all("simulated" in title for title in (found.title, *(figure.title for figure in found.figures)))
    assert "simulated" in markdown("e", [], [found], [])
    assert page("e", "", [found], {}, True).count("simulated") >= 4


def test_names_are_text_on_the_page() -> None:
    tags = Tags()
    tags.feed(page("e", "", [TABLE], {EVIL: "run"}, False))
    assert {"img", "script"}.isdisjoint(tags.seen)
    assert tags.seen.count("svg") == 3


def test_a_page_opens_with_its_contrast() -> None:
    html = page("e", "A agrees better <with> people than B.", [TABLE], {}, False)
    assert html.index("A agrees better &lt;with&gt; people than B.") < html.index("Table 1")
    assert markdown("e", ["A agrees better <with> people than B."], [TABLE], []).splitlines()[2].startswith("A agrees")
