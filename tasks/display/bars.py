"""Figures as SVG: bars on one axis, each with its value and interval; shares of responses at each level of a scale."""

from __future__ import annotations

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import axis
from tasks.display.table import Panel, Shares

ROW, HEAD = 26, 20
LABELS, VALUES = 34.0, 86.0
"""Per cent of the width before the axis and up to its end: labels stand left of it, values right."""
STYLES = ("ml", "al", "cl", "gl", "ml dash", "al dash", "cl dash", "gl dash")


def bar_chart(found: Panel) -> Markup:
    """Horizontal bars from 0, the interval as a line through the end of each."""
    ends = [end for one in found.bars for end in (one.value, one.low, one.high) if end is not None]
    on = axis([0.0, *ends], most=4, left=LABELS, right=VALUES)
    digits = len(f"{on.ticks[1] - on.ticks[0]:.10f}".rstrip("0").partition(".")[2])
    height, marks = HEAD + ROW * len(found.bars), list[Markup]()
    for tick in on.ticks:
        marks.append(draw.line(on.x(tick), HEAD - 4, on.x(tick), height, "grid zero" if tick == 0 else "grid"))
        marks.append(draw.text(on.x(tick), 11, say.number(tick, digits), ""))
    for at, one in enumerate(found.bars):
        middle = HEAD + ROW * (at + 0.5)
        start, end = sorted((on.x(0.0), on.x(one.value)))
        box = Markup('<rect class="mf" x="{}%" y="{}" width="{}%" height="10" opacity=".55"/>')
        marks.append(box.format(draw.place(start), draw.place(middle - 5), draw.place(end - start)))
        if one.low is not None and one.high is not None:
            marks.append(draw.line(on.x(one.low), middle, on.x(one.high), middle, "cl"))
        marks.append(draw.text(LABELS - 1.5, middle + 4, say.cut(say.visible(one.label), 34), "it", "end"))
        marks.append(draw.text(100, middle + 4, say.number(one.value, 3), "", "end"))
    said = f"{found.title}: " + "; ".join(f"{say.visible(one.label)} {say.number(one.value, 3)}" for one in found.bars)
    return draw.svg(height, marks, said)


def share_chart(found: Shares) -> Markup:
    """People's shares as hollow bars, one line for each arm."""
    height, base = 240, 200
    most = max((*found.people, *(share for of in found.arms.values() for share in of), 0.01))
    slot = 94.0 / len(found.levels)

    def x(at: int) -> float:
        return 4.0 + slot * (at + 0.5)

    def y(share: float) -> float:
        return base - share / most * (base - 24)

    marks = [draw.line(4, base, 98, base, "grid"), draw.text(4, 14, f"at most {say.share(most)}", "", "start")]
    for at, (level, share) in enumerate(zip(found.levels, found.people, strict=True)):
        box = Markup('<rect class="hf" x="{}%" y="{}" width="{}%" height="{}"/>')
        sizes = (x(at) - 0.35 * slot, y(share), 0.7 * slot, base - y(share))
        marks.append(box.format(*map(draw.place, sizes)))
        marks.append(draw.text(x(at), base + 18, level, "it"))
    for at, of in enumerate(found.arms.values()):
        marks += draw.polyline([(x(level), y(share)) for level, share in enumerate(of)], STYLES[at % len(STYLES)])
    said = f"{found.title}, share of responses at each level; people: " + ", ".join(map(say.share, found.people))
    said += "".join(f"; {name}: {', '.join(map(say.share, of))}" for name, of in found.arms.items())
    return draw.svg(height, marks, said)


def legend(found: Shares) -> Markup:
    """Whose shares they are: people's, and each arm's with a piece of its line."""
    line = '<svg class="shape" style="width:28px" viewBox="0 0 28 14" aria-hidden="true">{}</svg>{}'
    stroke = '<line class="{}" x1="0" y1="7" x2="28" y2="7"/>'
    strokes = (Markup(stroke).format(STYLES[at % len(STYLES)]) for at in range(len(found.arms)))
    arms = (Markup(line).format(*arm) for arm in zip(strokes, map(say.visible, found.arms), strict=True))
    return Markup(" · ").join((Markup('<span class="h key">people</span>'), *arms))
