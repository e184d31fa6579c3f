"""Rows → text and codes: at once, as a stream, and by the published processor's rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive import LanguageModel
from mosslive.rows import Row, RowsError, TextStream

text_ids = st.lists(st.integers(0, 639), max_size=30)


def rows_of(lm: LanguageModel, text: str) -> list[Row]:
    return [(index, lm.ids.audio_pad) for index in lm.tokenizer.encode(text)]


def speech_of(lm: LanguageModel, *audio: int) -> list[Row]:
    return [(lm.ids.modality_pad, value) for value in audio]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text_ids)
def test_the_joined_stream_equals_the_decoded_text(nano_lm: LanguageModel, ids: list[int]) -> None:
    """The joined pieces equal the library's decoding, for any ids, incomplete bytes included."""
    ids = [index for index in ids if index != nano_lm.ids.modality_pad]
    stream = TextStream(nano_lm.tokenizer, nano_lm.ids)
    pieces = [stream.push((index, 0)) for index in ids]
    assert "".join(pieces) + stream.finish() == nano_lm.tokenizer.decode(ids)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_the_stream_never_emits_half_a_character(nano_lm: LanguageModel, text: str) -> None:
    """Every prefix of the stream is a prefix of the text, without replacement characters."""
    stream = TextStream(nano_lm.tokenizer, nano_lm.ids)
    rows = rows_of(nano_lm, text)
    whole = nano_lm.tokenizer.decode([row[0] for row in rows])
    shown = ""
    for row in rows:
        shown += stream.push(row)
        assert whole.startswith(shown)
    assert stream.finish() == ""
    assert shown == whole


def test_one_character_over_several_tokens(nano_lm: LanguageModel) -> None:
    """A character of four tokens appears with its last token."""
    stream = TextStream(nano_lm.tokenizer, nano_lm.ids)
    assert [stream.push(row) for row in rows_of(nano_lm, "😀")] == ["", "", "", "😀"]


def test_robust_rule(nano_lm: LanguageModel) -> None:
    """No row is dropped; codes end at the first end of speech; special tokens are left out."""
    ids = nano_lm.ids
    rows = [*rows_of(nano_lm, "So: "), (ids.sosp, 9), *speech_of(nano_lm, 5, ids.audio_pad, 7)]
    cut = nano_lm.read(rows)
    assert (cut.text, cut.codes) == ("So: ", [5, ids.audio_pad, 7])
    ended = nano_lm.read([*rows, *speech_of(nano_lm, ids.eosp), (min(ids.stops), 3)])
    assert (ended.text, ended.codes) == ("So: ", [5, ids.audio_pad, 7])
    twice = nano_lm.read([*rows, *speech_of(nano_lm, ids.eosp, 11)])
    assert twice.codes == [5, ids.audio_pad, 7]


def test_audio_ids_of_text_rows_are_ignored(nano_lm: LanguageModel) -> None:
    """The audio ids of text rows are not codes; the end of speech has no effect there."""
    rows = [(index, nano_lm.ids.eosp) for index, _ in rows_of(nano_lm, "abc")]
    assert nano_lm.read(rows + speech_of(nano_lm, 4)).codes == [4]


def test_an_incomplete_last_character_is_left_out(nano_lm: LanguageModel) -> None:
    """A reply cut by length may end inside a character; its text has no U+FFFD."""
    assert nano_lm.read(rows_of(nano_lm, "ok 😀")[:-1]).text == "ok "


def test_processor_rule(nano_lm: LanguageModel) -> None:
    """The processor rule always drops the last row: a cut reply loses a code, and a one-token text
    reply becomes empty. Its codes are the whole audio channel."""
    ids = nano_lm.ids
    spoken = speech_of(nano_lm, *range(200))
    assert nano_lm.read(spoken, rule="processor").codes == list(range(199))
    assert nano_lm.read(spoken).codes == list(range(200))
    assert nano_lm.read(rows_of(nano_lm, "a"), rule="processor").text == ""
    rows = [(rows_of(nano_lm, "a")[0][0], 3), *speech_of(nano_lm, 4, ids.eosp, 5), (0, 0)]
    assert nano_lm.read(rows, rule="processor").codes == [3, 4]


def test_illegal_codes_raise(nano_lm: LanguageModel) -> None:
    """An id above the end of speech in a speech row is an error."""
    with pytest.raises(RowsError, match=r"code 1 is 505; allowed: 0\.\.499"):
        nano_lm.read(speech_of(nano_lm, 5, 505))


def test_unknown_rule(nano_lm: LanguageModel) -> None:
    """An unknown rule is an error that lists the allowed ones."""
    with pytest.raises(ValueError, match="rule is 'hf'; allowed: robust, processor"):
        nano_lm.read([], rule="hf")
