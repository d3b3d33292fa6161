"""Great Expectations' pages in a frame of our own: theirs fetches its styles, scripts and pictures from the network.

Imports Great Expectations, so nothing imports this but Great Expectations itself, when it builds a site.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView, DefaultJinjaView
from jinja2 import ChoiceLoader, DictLoader

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 75rem; margin: 1.5rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 } th { text-align: left }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .8rem .3rem 0; vertical-align: top }
td { overflow-wrap: anywhere } h1 { font-size: 1.5rem }
h2, h3 { font-size: 1rem; margin: 1.2rem 0 .2rem } .badge { background: #eee; border-radius: .2rem; padding: 0 .3rem }
a[data-toggle=collapse] { display: none } a[href*="expectations/"] { pointer-events: none; color: inherit }
.fa-check-circle::before { content: "✓"; color: #17692d } .fa-times::before { content: "✗"; color: #b00020 }
@media (max-width: 600px) { .list td, .list th { display: block } }
.fa-exclamation-triangle::before { content: "⚠"; color: #8a5a00 } .fas { font-style: normal; font-weight: bold }
"""
FRAME = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Data Docs</title>
<style>{{ style }}</style></head>
<body><main>
<h1>Data Docs: checks of this run's tables</h1>
{%- if renderer_type != "SiteIndexPageRenderer" %}
<p><a href="{{ '../' * (expectation_suite_name.count('.') + 4) }}index.html">All checkpoints of the run</a></p>
{%- endif %}
<p><i class="fas fa-check-circle"></i> kept · <i class="fas fa-times"></i> broken ·
<i class="fas fa-exclamation-triangle"></i> could not run</p>
{% for section in sections %}{% set section_loop = loop %}{% include "section.j2" %}{% endfor %}
<p>Rendered by Great Expectations {{ ge_version }}.</p>
</main></body>
</html>
"""
LIST = """<table class="list">
<tr>{% for column in content_block["table_columns"] %}<th scope="col">{{ column["title"] }}</th>{% endfor %}
<th scope="col">Results</th></tr>
{% for row in content_block["table_data"] | render_bootstrap_table_data %}
<tr>{% for column in content_block["table_columns"] %}<td>{{ row[column["field"]] }}</td>{% endfor %}
<td><a href="{{ row["_table_row_link_path"] }}">open</a></td></tr>
{% endfor %}
</table>
"""
"""In place of a table that a script from the network would fill."""
TABS = """{% for tab in content_block["tabs"] %}
{{ tab["tab_content"] | render_content_block(content_block_id=content_block_id ~ "-" ~ loop.index) }}
{% endfor %}
"""
"""One below the other, as no script is there to turn to another."""


class ValidationPage(DefaultJinjaPageView):
    """A page of one validation result."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _reframe(self)


class Index(DefaultJinjaIndexPageView):
    """The list of them."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _reframe(self)


def _reframe(view: DefaultJinjaView) -> None:
    ours = DictLoader({"page.j2": FRAME, "index_page.j2": FRAME, "bootstrap_table.j2": LIST, "tabs.j2": TABS})
    theirs = [view.env.loader] if view.env.loader else []
    view.env.loader = ChoiceLoader([ours, *theirs])
    view.env.globals["style"] = STYLE
