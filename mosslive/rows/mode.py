"""The text/audio mode machine of generation: pure functions of the last row.

The model itself has no mode; the generation loop has one. The mode decides which channel of the
next row counts. It makes a speech prompt, which ends in a text row, continue with codes.
"""

from mosslive.rows.grid import Channel, Row, RowIds

Mode = Channel  # the channel of the next row that counts


def first_mode(last: Row, ids: RowIds) -> Mode:
    """Mode before the first step, from the last prompt row. The pad test comes second and wins: if
    the last code of a prompt equals the audio pad, the loop starts in text mode, as published."""
    mode: Mode = "audio" if last[0] == ids.modality_pad else "text"
    return "text" if last[1] == ids.audio_pad else mode


def next_mode(mode: Mode, last: Row, ids: RowIds) -> Mode:
    """Mode of the next step. Two tests in this order; both may apply to one row: (sosp, eosp)
    switches from text to audio and back."""
    if mode == "text" and last[0] == ids.sosp:
        mode = "audio"
    if mode == "audio" and last[1] == ids.eosp:
        mode = "text"
    return mode


def compose(mode: Mode, text: int, audio: int, ids: RowIds) -> Row:
    """The row to append. In audio mode the modality pad replaces the sampled text id."""
    return (ids.modality_pad if mode == "audio" else text, audio)


def ends_reply(row: Row, ids: RowIds) -> bool:
    """True if the text id ends the reply. The end of speech alone does not."""
    return row[0] in ids.stops
