"""Draws two plots as inline SVG: lines over a logarithmic axis, and bars with a mark of the floor.

Does not know what is measured. The page defines the colours: classes `c0`, `c1`, … fill or stroke.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
_BAR, _GAP, _LABEL = 18, 12, 290


@dataclass(frozen=True)
class Line:
    name: str
    points: list[tuple[float, float]]  # (x, y), x > 0
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    spread: tuple[float, float]
    best: float | None
    colour: int


@dataclass(frozen=True)
class Plot:
    """Lines with a title; see `line_plot`."""

    title: str
    lines: tuple[Line, ...]
    x_name: str
    y_name: str


def line_plot(lines: list[Line], x_name: str, y_name: str) -> str:
    xs = sorted({x for line in lines for x, _ in line.points})
    top = _nice(max(y for line in lines for _, y in line.points))
    low, high = math.log2(xs[0]), math.log2(xs[-1])

    def across(x: float) -> float:
        share = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_grid(top, down)]
    for x in xs:
        parts.append(_text(across(x), _HEIGHT - _BOTTOM + 18, f"{x:g}", "middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x_name, "middle"))
    parts.append(_text(4, _TOP + 4, y_name, "start"))
    for line in lines:
        places = [(across(x), down(y)) for x, y in sorted(line.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline class="line c{line.colour}" points="{path}"{dash}/>')
        if line.dashed:
            continue
        for (x, y), (given_x, given_y) in zip(places, sorted(line.points), strict=True):
            label = escape(f"{line.name}: {given_y:.3g} at {given_x:g}")
            parts.append(
                f'<circle class="dot c{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
                f"<title>{label}</title></circle>"
            )
    return _svg(_HEIGHT, parts) + _legend(lines)


def bar_plot(bars: list[Bar], unit: str) -> str:
    """The longest bar sets the scale. A thin line is the spread, a vertical mark the floor."""
    width = _WIDTH - _LABEL - 90
    top = max(max(bar.value, bar.spread[1]) for bar in bars)
    parts = []
    for index, bar in enumerate(bars):
        y = index * (_BAR + _GAP) + 4
        middle, length = y + _BAR / 2, bar.value / top * width
        low, high = (_LABEL + value / top * width for value in bar.spread)
        parts += [
            _text(_LABEL - 8, middle + 4, bar.name, "end"),
            f'<rect class="bar c{bar.colour}" x="{_LABEL}" y="{y}" width="{length:.1f}" '
            f'height="{_BAR}" rx="2"/>',
            f'<line class="mark" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
            _text(max(_LABEL + length, high) + 6, middle + 4, f"{bar.value:.3g} {unit}", "start"),
        ]
        if bar.best is not None:
            x = _LABEL + bar.best / top * width
            parts.append(
                f'<line class="best" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 4}" y2="{y + _BAR + 4}"/>'
            )
    return _svg(len(bars) * (_BAR + _GAP) + 8, parts)


def _svg(height: int, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _grid(top: float, down: Callable[[float], float]) -> str:
    lines = []
    for step in range(5):
        value = top * step / 4
        y = down(value)
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        lines.append(_text(_LEFT - 8, y + 4, f"{value:g}", "end"))
    return "".join(lines)


def _legend(lines: list[Line]) -> str:
    items = [
        f'<span class="key"><i class="{"dashed " if line.dashed else ""}c{line.colour}"></i>'
        f"{escape(line.name)}</span>"
        for line in lines
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _nice(value: float) -> float:
    """Returns the next larger round number that divides well into four; 1 if all values are 0."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 2, 4, 6, 8, 10, 12) if unit * step >= value)
