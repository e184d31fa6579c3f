"""The timing record of one turn, and a page that shows where the time of each turn went.

Moments are seconds on the conversation's clock; None: the turn did not reach that moment. Data and
arithmetic only: does not know how the moments come about.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from mosslive.rows import ReplyKind


@dataclass(frozen=True)
class TurnTiming:
    turn: int
    reply: ReplyKind
    # Moments, in their usual order.
    speech_end: float | None  # the last sample of the user's speech arrived; None: text
    turn_detected: float  # the end of the turn was detected
    heard: float | None = None  # all codes of the turn are exact
    last_row_in: float | None = None  # the engine has every row of the prompt
    first_row: float | None = None  # of the reply; a code, if it is speech
    first_chunk: float | None = None  # enough codes to render the first sound
    first_pcm: float | None = None  # the first sound is rendered
    first_out: float | None = None  # its first sample is sent
    last_row: float | None = None
    last_pcm: float | None = None
    # Costs: seconds of work on the codec's thread.
    hearing_s: float = 0.0  # of all sound of the turn
    finish_s: float = 0.0  # of making its codes exact at the end
    first_render_s: float = 0.0
    render_s: float = 0.0  # of all sound of the reply, the first included
    # Not a cost: time in which rendering rested, because it was far ahead of the listener.
    rest_s: float = 0.0
    # Counts.
    codes_heard: int = 0
    codes_revised: int = 0  # of these, computed a second time by the language model
    rows: int = 0  # of the reply
    audio_s: float = 0.0
    underruns: int = 0
    silence_s: float = 0.0
    speculative: bool = False  # the reply began before the end of the turn was detected ...
    begun: float | None = None  # ... at this moment

    @property
    def detection_s(self) -> float | None:
        """From the end of speech to the detected end of the turn; not part of `ttfa_s`."""
        return None if self.speech_end is None else self.turn_detected - self.speech_end

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio: from the detected end of the turn to the first sample sent."""
        return None if self.first_out is None else self.first_out - self.turn_detected

    @property
    def rtf(self) -> float | None:
        """Real-time factor: wall time of the whole reply, rest excluded, over the duration of its
        sound."""
        if self.last_pcm is None or not self.audio_s:
            return None
        began = self.turn_detected if self.begun is None else self.begun
        return (self.last_pcm - began - self.rest_s) / self.audio_s

    @property
    def stages(self) -> dict[str, float]:
        """How long each stage of the time to first audio took, in order; their sum is `ttfa_s`. A
        stage that ended before the turn (of a speculative reply) took 0 s."""
        moments = {
            "encoder finish": self.heard,
            "rows in": self.last_row_in,
            "prefill and first code": self.first_row,
            "codes of the first chunk": self.first_chunk,
            "first render": self.first_pcm,
            "hand out": self.first_out,
        }
        stages, before = {}, self.turn_detected
        for name, moment in moments.items():
            if moment is not None:
                stages[name] = max(0.0, moment - before)
                before = max(before, moment)
        return stages

    def document(self) -> dict[str, Any]:
        """All fields and derived numbers, for JSON."""
        derived = {
            "detection_s": self.detection_s,
            "ttfa_s": self.ttfa_s,
            "rtf": self.rtf,
            "stages_s": self.stages,
        }
        return asdict(self) | derived


class Stopwatch:
    """Collects the record of one turn while it runs."""

    def __init__(self, turn: int, reply: ReplyKind) -> None:
        self.reply = reply
        self._values: dict[str, Any] = {"turn": turn, "reply": reply, "speech_end": None}

    def mark(self, moment: str, now: float) -> None:
        """Sets a moment; later calls for the same moment change nothing."""
        if self._values.get(moment) is None:
            self._values[moment] = now

    def has(self, name: str) -> bool:
        return name in self._values

    def set(self, **values: Any) -> None:
        self._values |= values

    def add(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self._values[name] = self._values.get(name, 0) + amount

    def read(self) -> TurnTiming:
        return TurnTiming(**self._values)


# The page: one bar per turn, from the end of the user's speech to the first sound, a colour per
# stage; below it a table with the numbers.

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
_WORDS = {"rows in": "prompt", "hand out": "send"}  # of the page, for names of the record
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
    """A whole HTML page without external files. Turns without sound have a table row and no
    bar."""
    spoken = [timing for timing in timings if timing.ttfa_s is not None]
    keys = "".join(
        f'<span class="key"><span class="swatch" style="background:{colour}"></span>'
        f"{_shown(name)}</span>"
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
        return "<p>No turn has a spoken reply.</p>"
    scale = (_WIDTH - _LEFT) / longest_s
    height = len(timings) * (_BAR + _GAP)
    drawn = []
    for index, timing in enumerate(timings):
        top, left = index * (_BAR + _GAP), float(_LEFT)
        drawn.append(f'<text x="0" y="{top + 16}">turn {timing.turn}</text>')
        for name, seconds in _parts(timing):
            drawn.append(
                f'<rect x="{left:.1f}" y="{top}" width="{seconds * scale:.1f}" height="{_BAR}" '
                f'fill="{_COLOURS[name]}"><title>{_shown(name)}: {_ms(seconds)} ms</title></rect>'
            )
            left += seconds * scale
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _table(timings: Sequence[TurnTiming]) -> str:
    names = list(_COLOURS)[1:]
    head = ["turn", "detection", "TTFA", *names, "audio s", "RTF", "underruns"]
    rows = [
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
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><tr>{''.join(f'<th>{_shown(name)}</th>' for name in head)}</tr>{cells}</table>"
        f"<p>Times in milliseconds. TTFA: time to first audio, turn detection excluded. "
        f"RTF: wall time of the whole reply over the duration of its sound.</p>"
    )


def _shown(name: str) -> str:
    return escape(_WORDS.get(name, name))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f}"
