"""Where the time of each turn went, as one HTML page that needs nothing else.

One bar per turn, from the end of the user's speech to the first sound, a colour per stage; below it
a table with the numbers. Reads timing records and nothing else.
"""

from collections.abc import Sequence
from html import escape

from mosslive.talk.timing import TurnTiming

_DETECTION = "turn detection"
_COLOURS = {
    _DETECTION: "#9aa0a6",
    "encoder finish": "#4e79a7",
    "rows in": "#76b7b2",
    "prefill and first code": "#f28e2b",
    "codes of the first chunk": "#edc948",
    "first render": "#e15759",
    "hand out": "#b07aa1",
}
_WIDTH, _BAR, _GAP, _LEFT = 900, 22, 12, 70  # pixels

_STYLE = """
:root { color-scheme: light dark }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
svg { width: 100%; height: auto } text { fill: currentColor; font: 12px system-ui, sans-serif }
table { border-collapse: collapse; margin-top: 1rem } .key { margin-right: 1rem }
td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884 }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .3em }
"""


def timeline_html(timings: Sequence[TurnTiming], title: str = "mosslive: turns") -> str:
    """A whole page. Turns without sound have a line in the table and no bar."""
    spoken = [timing for timing in timings if timing.ttfa_s is not None]
    keys = "".join(
        f'<span class="key"><span class="swatch" style="background:{colour}"></span>'
        f"{escape(name)}</span>"
        for name, colour in _COLOURS.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{keys}</p>"
        f"{_bars(spoken)}{_table(timings)}</html>\n"
    )


def _parts(timing: TurnTiming) -> list[tuple[str, float]]:
    return [(_DETECTION, timing.detection_s or 0.0), *timing.stages.items()]


def _bars(timings: Sequence[TurnTiming]) -> str:
    longest_s = max((sum(s for _, s in _parts(timing)) for timing in timings), default=0.0)
    if not longest_s:
        return "<p>No turn was answered in speech.</p>"
    scale = (_WIDTH - _LEFT) / longest_s
    height = len(timings) * (_BAR + _GAP)
    drawn = []
    for line, timing in enumerate(timings):
        top, left = line * (_BAR + _GAP), float(_LEFT)
        drawn.append(f'<text x="0" y="{top + 16}">turn {timing.turn}</text>')
        for name, seconds in _parts(timing):
            drawn.append(
                f'<rect x="{left:.1f}" y="{top}" width="{seconds * scale:.1f}" height="{_BAR}" '
                f'fill="{_COLOURS[name]}"><title>{escape(name)}: {_ms(seconds)} ms</title></rect>'
            )
            left += seconds * scale
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _table(timings: Sequence[TurnTiming]) -> str:
    names = list(_COLOURS)[1:]
    head = ["turn", "detection", "TTFA", *names, "audio s", "RTF", "underruns"]
    lines = [
        [
            str(timing.turn),
            _ms(timing.detection_s),
            _ms(timing.ttfa_s),
            *(_ms(timing.stages.get(name)) for name in names),
            f"{timing.audio_s:.2f}",
            "" if timing.rtf is None else f"{timing.rtf:.3f}",
            str(timing.underruns),
        ]
        for timing in timings
    ]
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return (
        f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{cells}</table>"
        f"<p>Times in milliseconds. TTFA: time to first audio, turn detection excluded. "
        f"RTF: wall time of the whole reply over the duration of its sound.</p>"
    )


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f}"
