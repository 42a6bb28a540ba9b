#!/usr/bin/env python3
"""Draws what a call costs as its surroundings grow.

    cargo bench -p mooring-tests --bench whole -- --parts growth | growth-plot.py > docs/growth.svg

Reads the tables of the part `growth`, and draws the CPU time of a call by nginx and by the gateway: a panel for each
table, both axes logarithmic.
"""

import html
import math
import sys

PANEL_WIDTH, PANEL_HEIGHT, MARGIN_LEFT, MARGIN_TOP, GAP = 300, 200, 56, 40, 70
COLUMNS = 2
COLORS = ["#888888", "#0b63b5", "#c2571a", "#3a7d34"]


def tables(lines):
    """The rows of each table, as (value, name, CPU time in microseconds), by its title."""
    found, title = {}, None
    for line in lines:
        if line.startswith("### "):
            title = line[4:].strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if title and line.startswith("|") and cells[0].isdigit():
            found.setdefault(title, []).append((int(cells[0]), cells[1], float(cells[4])))
    return found


def ticks(low, high):
    """The powers of ten from `low` to `high`, and what they leave out at both ends."""
    powers = [10**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    return [power for power in powers if low <= power <= high] or [low, high]


class Axis:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`."""

    def __init__(self, values, start, end):
        self.low, self.high = min(values) / 1.1, max(values) * 1.1
        self.start, self.end = start, end

    def at(self, value):
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self):
        return ticks(self.low, self.high)


def panel(title, rows, left, top):
    names = list(dict.fromkeys(name for _, name, _ in rows))
    x = Axis([value for value, _, _ in rows], left, left + PANEL_WIDTH)
    # Whole powers of ten, with room for the names.
    costs = [max(cost, 1) for _, _, cost in rows]
    decades = [10 ** math.floor(math.log10(min(costs))), 10 ** (math.floor(math.log10(max(costs))) + 1)]
    y = Axis(decades, top + PANEL_HEIGHT, top)
    yield f'<text x="{left}" y="{top - 10}" class="title">CPU us a call, by {html.escape(title)}</text>'
    yield f'<rect x="{left}" y="{top}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" class="frame"/>'
    for value in x.ticks():
        at = x.at(value)
        yield f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{top + PANEL_HEIGHT}" class="grid"/>'
        yield f'<text x="{at:.1f}" y="{top + PANEL_HEIGHT + 14}" text-anchor="middle">{value:,.0f}</text>'
    for value in y.ticks():
        at = y.at(value)
        yield f'<line x1="{left}" y1="{at:.1f}" x2="{left + PANEL_WIDTH}" y2="{at:.1f}" class="grid"/>'
        yield f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
    for index, (name, color) in enumerate(zip(names, COLORS)):
        points = [(x.at(value), y.at(max(cost, 1))) for value, of, cost in rows if of == name]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        for across, down in points:
            yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" fill="{color}"/>'
        yield f'<text x="{left + 8}" y="{top + 16 + 14 * index}" fill="{color}">{html.escape(name)}</text>'


def main():
    found = tables(sys.stdin)
    if not found:
        sys.exit("growth-plot: no table of the part growth on standard input")
    rows = math.ceil(len(found) / COLUMNS)
    width = COLUMNS * (PANEL_WIDTH + GAP) + MARGIN_LEFT
    height = rows * (PANEL_HEIGHT + GAP) + MARGIN_TOP
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">')
    print("<style>.title{font-size:13px;font-weight:bold}.grid{stroke:#ddd}.frame{fill:none;stroke:#999}</style>")
    print(f'<rect width="{width}" height="{height}" fill="white"/>')
    for index, (title, entries) in enumerate(found.items()):
        left = MARGIN_LEFT + index % COLUMNS * (PANEL_WIDTH + GAP)
        top = MARGIN_TOP + index // COLUMNS * (PANEL_HEIGHT + GAP)
        for line in panel(title, entries, left, top):
            print(line)
    print("</svg>")


if __name__ == "__main__":
    main()
