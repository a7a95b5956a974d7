# SPDX-License-Identifier: Apache-2.0
"""Writes the results as an SVG of labelled horizontal bars."""
from html import escape

from .markdown import number, stall_note

LEFT, BAR_SPACE, RIGHT = 250, 420, 290
BAR, GAP, GROUP_GAP = 14, 3, 12


class Drawing:
    def __init__(self, colours):
        self.colours = colours
        self.parts = []
        self.y = 12

    def text(self, x, y, text, anchor="start", size=12, weight="normal"):
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
                          f'font-weight="{weight}">{escape(text)}</text>')

    def bar(self, width, server, stalled):
        opacity = ' fill-opacity="0.35"' if stalled else ""
        self.parts.append(f'<rect x="{LEFT}" y="{self.y}" width="{max(width, 1):.1f}" height="{BAR}" '
                          f'fill="{self.colours[server]}"{opacity}/>')

    def whisker(self, low, high):
        middle = self.y + BAR / 2
        self.parts.append(f'<path d="M{low:.1f} {middle} H{high:.1f} M{low:.1f} {middle - 3} v6 M{high:.1f} '
                          f'{middle - 3} v6" stroke="#222" fill="none"/>')

    def finish(self):
        width = LEFT + BAR_SPACE + RIGHT
        height = self.y + 10
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" font-family="sans-serif" fill="#222">\n'
                f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def _legend(drawing):
    x = LEFT
    for server, colour in drawing.colours.items():
        drawing.parts.append(f'<rect x="{x}" y="{drawing.y}" width="12" height="12" fill="{colour}"/>')
        drawing.text(x + 18, drawing.y + 11, server)
        x += 40 + 7 * len(server)
    drawing.text(x, drawing.y + 11, "line: minimum to maximum; pale: some clients never served", size=11)
    drawing.y += 28


def _chart(drawing, title, rows, unit):
    """rows: (label, [(server, median, values, note)])"""
    largest = max((max(values) for _, bars in rows for _, _, values, _ in bars), default=0)
    if not largest:
        return
    drawing.text(10, drawing.y + 14, title, size=14, weight="bold")
    drawing.y += 28
    for label, bars in rows:
        top = drawing.y
        for server, median, values, note in bars:
            scale = BAR_SPACE / largest
            drawing.bar(median * scale, server, bool(note))
            if len(values) > 1:
                drawing.whisker(LEFT + min(values) * scale, LEFT + max(values) * scale)
            drawing.text(LEFT + max(values) * scale + 8, drawing.y + 11, f"{number(median)} {unit}{note}", size=11)
            drawing.y += BAR + GAP
        drawing.text(LEFT - 10, (top + drawing.y - GAP) / 2 + 4, label, anchor="end")
        drawing.y += GROUP_GAP
    drawing.y += 10


def _rows(results, suite, cases, key, scale, note):
    rows = []
    for case in cases:
        bars = []
        for server in suite.compared:
            values = [value * scale for value in results.values(case.name, server, key)]
            if values:
                median = results.median(case.name, server, key) * scale
                bars.append((server, median, values, note(results, case.name, server)))
        if bars:
            rows.append((case.title, bars))
    return rows


def _unserved_note(results, case, server):
    ok, requests = (results.median(case, server, key) for key in ("ok", "requests"))
    return f"; {number(requests - ok)} of {number(requests)} not served" if ok is not None and ok < requests else ""


def render(results, suite, cases):
    drawing = Drawing(suite.colours)
    _legend(drawing)
    closed = [case for case in cases if case.name.startswith("clients-")]
    _chart(drawing, "A trivial page: requests per second (more is better)",
           _rows(results, suite, closed, "rate", 1, stall_note), "/s")
    burst = [case for case in cases if case.name == "burst"]
    _chart(drawing, "Time to the last answer of a burst over 10 children (less is better; 2.8 s is the floor)",
           _rows(results, suite, burst, "last_answer_ms", 0.001, _unserved_note), "s")
    return drawing.finish()
