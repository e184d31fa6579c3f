"""How answers are made: the settings, the voice and the codec that the next one has.

An answer made earlier keeps what it was made with. Knows nothing of when answers are given.
"""

import math

from mosslive.codec.voice import Voice
from mosslive.rows import TextTokenizer
from mosslive.talk.clock import Clock
from mosslive.talk.codec_streams import DecodeStream
from mosslive.talk.codec_worker import CodecWorker
from mosslive.talk.event_queue import EventQueue, ReplyOutlet
from mosslive.talk.playback import Playback
from mosslive.talk.reply import LiveReply
from mosslive.talk.reply_audio import ReplyAudio
from mosslive.talk.settings import TalkSettings
from mosslive.talk.timing import Stopwatch


class ReplyFactory:
    def __init__(
        self,
        codec: CodecWorker | None,
        voice: Voice | None,
        tokenizer: TextTokenizer,
        settings: TalkSettings,
        clock: Clock,
        events_out: EventQueue,
    ) -> None:
        """Without a codec, or a voice, nobody may ask for what needs it."""
        self.settings, self.voice = settings, voice
        self._codec, self._tokenizer = codec, tokenizer
        self._clock, self._events = clock, events_out

    def make(self, turn: int, stopwatch: Stopwatch, heard_from: float = -math.inf) -> LiveReply:
        """To a turn, of the kind the watch is for. `heard_from`: on trial, nobody hears it before
        this moment."""
        spoken = stopwatch.reply == "speech"
        again = spoken and self.settings.history == "reencode"
        sound = self._sound(turn, stopwatch, heard_from, again) if spoken else None
        return LiveReply(
            turn,
            self.settings.sampling,
            self._tokenizer,
            self._clock,
            stopwatch,
            self._events.put,
            sound,
            self._codec if again else None,
        )

    def _sound(
        self, turn: int, stopwatch: Stopwatch, heard_from: float, keep_sound: bool
    ) -> ReplyAudio:
        assert self._codec is not None, "speech without a codec"
        assert self.voice is not None, "speech without a voice"
        settings = self.settings
        return ReplyAudio(
            DecodeStream(
                self._codec, self.voice, settings.chunk, settings.voice_seed, settings.tail
            ),
            Playback(self._codec.sample_rate, settings.lead_s),
            self._clock,
            stopwatch,
            ReplyOutlet(self._events, turn),
            self._codec.production,
            heard_from=heard_from,
            keep_sound=keep_sound,
            ahead_s=settings.ahead_s,
        )
