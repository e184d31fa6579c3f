"""The text/audio mode machine of generation: pure functions of the last row.

The model itself has no mode. The loop does: it decides which channel of the next row counts, and
it is the reason why a speech prompt, which ends in a text row, goes on with codes.
"""

from mosslive.rows.grid import Channel, Row, RowIds

Mode = Channel  # the channel of the next row that counts


def first_mode(last: Row, ids: RowIds) -> Mode:
    """Mode before the first step, from the last prompt row. The pad test comes second and wins: a
    prompt that ends in a code equal to the audio pad starts in text mode, as published."""
    mode: Mode = "audio" if last[0] == ids.modality_pad else "text"
    return "text" if last[1] == ids.audio_pad else mode


def next_mode(mode: Mode, last: Row, ids: RowIds) -> Mode:
    """Mode of the coming step. Two tests in this order, and both may fire on one row: (sosp, eosp)
    goes from text to audio and back."""
    if mode == "text" and last[0] == ids.sosp:
        mode = "audio"
    if mode == "audio" and last[1] == ids.eosp:
        mode = "text"
    return mode


def compose(mode: Mode, text: int, audio: int, ids: RowIds) -> Row:
    """The row that is appended: while speaking, the text sample is overwritten by the pad."""
    return (ids.modality_pad if mode == "audio" else text, audio)


def ends_reply(row: Row, ids: RowIds) -> bool:
    """Only a text id ends a reply; the end of speech alone never does."""
    return row[0] in ids.stops
