"""Draws what a server held over its sessions as one SVG file: a panel for each quantity.

Linear axes that begin at 0, so that a leak is a slope. `mosslive/bench/svg.py` draws into a page,
with a logarithmic axis; this file stands alone. Pure functions.
"""

from html import escape

_WIDTH, _HEIGHT, _LEFT, _GAP = 760, 96, 150, 26
_STYLE = (
    "text{font:13px sans-serif;fill:#777}polyline{fill:none;stroke:#2563c9;stroke-width:1.5}"
    "line{stroke:#9996}"
)
Points = list[tuple[float, float]]


def panels(title: str, series: dict[str, Points], x_name: str) -> str:
    """`series`: by name with unit; all over the same x."""
    parts = [f"<style>{_STYLE}</style>", _text(4, 16, title)]
    top = 30
    last = max(points[-1][0] for points in series.values())
    for name, points in series.items():
        parts += _panel(name, points, top, last)
        top += _HEIGHT + _GAP
    parts += [_text(_LEFT, top - 8, "0"), _text(_WIDTH - 110, top - 8, f"{last:g} {x_name}")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img">'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(name: str, points: Points, top: int, last: float) -> list[str]:
    most = max(1.0, max(y for _, y in points))
    low = top + _HEIGHT

    def place(x: float, y: float) -> str:
        across = _LEFT + x / last * (_WIDTH - _LEFT - 10)
        return f"{across:.1f},{low - y / most * (_HEIGHT - 12):.1f}"

    path = " ".join(place(x, y) for x, y in points)
    return [
        f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{low}" y2="{low}"/>',
        _text(4, top + 24, name),
        _text(4, top + 42, f"highest {most:g}"),
        f'<polyline points="{path}"/>',
    ]


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'
