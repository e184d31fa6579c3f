"""The loaded model: one engine, one codec service, the voices, and the settings of conversations.

`load_backend` blocks and runs on its own thread (`run.py`). A `Backend` is shared by all sessions
and used on the event loop; the engine and the codec have a thread each. Does not know protocols.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from mosslive.checkpoint.capabilities import folder_capabilities
from mosslive.checkpoint.generation import folder_sampling
from mosslive.codec import Voice, load_codec
from mosslive.codec.flow_stream import TailRule, check_tail
from mosslive.config import SECONDS_PER_CODE, Sampling, refuse
from mosslive.config.capabilities import Capabilities, Medium
from mosslive.config.codec_precision import codec_precision
from mosslive.config.folders import Parts, find_parts
from mosslive.engine import Engine, EngineSettings
from mosslive.engine.device_priority import DevicePriority
from mosslive.engine.health import Health
from mosslive.engine.read import pick_device
from mosslive.engine.stage_seconds import stage_seconds
from mosslive.engine.step_costs import StepCosts
from mosslive.rows import DRIVER_SYSTEM, ReplyKind
from mosslive.server.api_errors import ApiError
from mosslive.server.calibration import calibrate
from mosslive.server.gpu_memory import share_memory
from mosslive.server.limits import Limits, goal_rows, limits_of
from mosslive.server.memory_plan import hearing_seconds
from mosslive.server.settings import ServerSettings
from mosslive.server.step_times import StepTimes
from mosslive.server.voice_folder import VoiceFolder
from mosslive.server.voice_store import VoiceStore
from mosslive.talk import CodecService, Talk, TalkSettings, TurnSettings
from mosslive.talk.compile_ahead import CompileJob, compile_ahead, note_of, process_count
from mosslive.talk.dialogue import HistoryTurn
from mosslive.talk.smart_turn import EndModel, SmartTurn, is_installed
from mosslive.talk.speculative_reply import SpeculationRoom
from mosslive.talk.start import StartClock, load_beside
from mosslive.talk.vad import VAD_HZ, SileroVad, VoiceActivity
from mosslive.talk.warmup import MOST_REPLIES

_MOST_IN_STEP = 256  # replies in one step of the language model
_log = logging.getLogger("mosslive.server")


@dataclass
class Backend:
    """The parts shared by all sessions, and defaults for new conversations."""

    engine: Engine
    codec: CodecService | None
    voices: VoiceStore
    settings: ServerSettings
    make_vad: Callable[[], VoiceActivity] = SileroVad
    make_end_model: Callable[[], EndModel] | None = None  # None: silence alone ends turns
    room: SpeculationRoom = field(default_factory=SpeculationRoom)  # shared by all sessions
    default_sampling: Sampling = field(default_factory=Sampling.driver)  # of a reply
    capabilities: Capabilities = field(default_factory=Capabilities)  # what the model states
    times: dict[str, StepTimes] | None = None  # of steps, measured at start
    _ending: set["asyncio.Task[None]"] = field(default_factory=set)

    def parts(self) -> dict[str, Health]:
        """Health by name of the parts with their own thread that every reply depends on."""
        codec = {"codec": self.codec.health} if self.codec else {}
        return {"engine": self.engine.health, **codec}

    def stage_seconds(self) -> dict[str, float]:
        """How long each stage has run since the start."""
        return stage_seconds(self.engine, self.codec)

    @property
    def costs(self) -> dict[str, StepCosts]:
        """Recent times of steps by stage."""
        return {**self.engine.costs, **(self.codec.costs if self.codec else {})}

    @cached_property
    def limits(self) -> Limits:
        return limits_of(self.engine, self.settings, self.capabilities)

    @property
    def transcripts(self) -> bool:
        asked = self.settings.transcripts
        return self.capabilities.transcripts if asked is None else asked

    def offered(self) -> dict[str, Any]:
        """What the model was trained for, as far as this server has the parts and settings."""
        stated = self.capabilities
        hears = ("speech", "text") if self.codec else ("text",)
        speaks = ("speech", "text") if self.speaks else ("text",)
        pairs = (mode.split("-to-") for mode in stated.modes)
        return {
            "context_rows": self.limits.context_rows,
            "modes": [f"{a}-to-{b}" for a, b in pairs if a in hears and b in speaks],
            "languages": stated.languages,
            "voices": stated.voices and self.speaks,
            "transcripts": self.transcripts,
        }

    def check_mode(self, heard: Medium, reply: Medium) -> None:
        """Raises `ApiError` if the model was not trained for this input and output."""
        if not self.capabilities.supports(heard, reply):
            raise ApiError(
                f"this model was not trained for {heard}-to-{reply}; "
                f"allowed: {', '.join(self.capabilities.modes)}",
                "mode_not_supported",
            )

    @property
    def rate_hz(self) -> int:
        return self.codec.sample_rate if self.codec else 24_000

    @property
    def speaks(self) -> bool:
        voiced = self.codec is not None and self.voices.default is not None
        return voiced and "speech" in self.capabilities.replies()

    @property
    def tail(self) -> TailRule:
        return check_tail(self.settings.tail)  # type: ignore[arg-type]  # raises for others

    def instructions(self, reply: ReplyKind = "speech") -> str:
        given = self.settings.instructions
        return DRIVER_SYSTEM[reply] if given is None else given

    def sampling(self, max_rows: int | None = None, temperature: float | None = None) -> Sampling:
        """`max_rows`: the client's limit; the server's limit applies too."""
        settings = self.settings
        most = self.default_sampling.max_new
        if settings.max_reply_s is not None:
            most = max(1, round(settings.max_reply_s / SECONDS_PER_CODE))
        least = max(self.default_sampling.min_new, round(settings.min_reply_s / SECONDS_PER_CODE))
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        sampling = replace(self.default_sampling, ignored_audio="pad", seed=seed, min_new=least)
        most = most if max_rows is None else min(most, max_rows)
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        return replace(sampling, max_new=most)

    def talk_settings(
        self,
        reply: ReplyKind,
        system: str,
        sampling: Sampling,
        turns: TurnSettings | None = None,
        lead_s: float | None = None,
    ) -> TalkSettings:
        """`lead_s`: see `TalkSettings`; None if the client paces playback."""
        return TalkSettings(
            reply=reply,
            system=system,
            sampling=sampling,
            turns=turns,
            lead_s=lead_s,
            tail=self.tail,
            context_rows=self.limits.context_rows,
        )

    def task_settings(self, reply: ReplyKind) -> TalkSettings:
        """Settings for one reply to one turn, such as a text to read aloud. The page pool limits
        its length; the model's limit for conversations does not apply."""
        settings = self.talk_settings(reply, "", self.sampling())
        return replace(settings, context_rows=max(self.limits.pool_rows, settings.context_rows))

    def talk(
        self, settings: TalkSettings, voice: Voice | None, turns: Sequence[HistoryTurn] = ()
    ) -> Talk:
        vad = self.make_vad() if settings.turns else None
        # Whatever the end rule is now: the session may change it.
        end_model = self.make_end_model() if settings.turns and self.make_end_model else None
        return Talk(
            self.engine,
            self.codec,
            voice,
            settings,
            turns=turns,
            vad=vad,
            end_model=end_model,
            room=self.room,
        )

    async def end(self, talk: Talk) -> None:
        """Closes a conversation completely, even if the calling task is cancelled meanwhile: a
        framework may cancel repeatedly, and a half-closed conversation would leak pages."""
        closing = asyncio.get_running_loop().create_task(talk.close())
        self._ending.add(closing)
        closing.add_done_callback(self._ending.discard)
        await asyncio.shield(closing)

    async def close(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
        if self.codec:
            await self.codec.close()
        await self.engine.close()


def load_backend(settings: ServerSettings) -> Backend:
    """Loads everything; takes up to minutes. Must not run on a thread with an event loop."""
    settings = replace(settings, device=pick_device(settings.device))
    parts = find_parts(settings.model, settings.codec, settings.voice)
    if parts.voice and not parts.codec:
        raise refuse("voice", str(parts.voice), "only together with a codec; set --codec")
    if settings.vocoder and not parts.codec:
        raise refuse("vocoder", str(settings.vocoder), "only together with a codec; set --codec")
    driver = settings.preset == "driver"
    default_sampling = Sampling.driver() if driver else folder_sampling(parts.model)
    capabilities = folder_capabilities(parts.model)
    goal, clock = goal_rows(settings, capabilities), StartClock()
    for warning in capabilities.warnings(settings.context_rows, settings.voice):
        _log.warning(warning)
    codec = None
    if parts.codec:
        precision = codec_precision(settings.codec_precision, settings.device)
        codec = load_codec(
            parts.codec,
            settings.device,
            vocoder=settings.vocoder,
            hearing_seconds=hearing_seconds(settings.max_sessions),
            **precision.load_options(),
        )
    default = codec.voice(parts.voice) if codec and parts.voice else None
    others = []
    if codec and (voices := settings.voices or parts.voices):
        for path in sorted(voices.glob("*.voice")):
            if path != parts.voice:
                others.append((path.stem, codec.voice(path)))
    clock.done("codec and voices")
    plan = None
    if settings.device != "cpu":
        longest_s = SECONDS_PER_CODE * default_sampling.max_new
        plan = share_memory(settings, parts.model, codec, longest_s if default else 0.0, goal)
        goal = plan.rows
        clock.done("plan of the memory")
    priority = DevicePriority()  # between engine and codec on one device
    worker = CodecService(codec, priority=priority) if codec else None

    def warm() -> None:
        if codec and worker and default:  # compiles, records and allocates
            warm_clock, slots = StartClock(), min(settings.max_sessions, MOST_REPLIES)
            tail = check_tail(settings.tail)  # type: ignore[arg-type]  # raises for others
            chunk = TalkSettings().chunk
            if plan:
                job = compile_job(parts, settings, chunk, slots)
                seconds, codes = codec.second_bytes(chunk), default.codes
                count = process_count(job, seconds, codes, plan.pool_bytes)
                if compile_ahead(job, count, note_of(job, settings.device)):
                    warm_clock.done(f"codec's kernels, compiled by {count} processes")
            asyncio.run(worker.warm(default, chunk, slots, tail))
            warm_clock.done("codec's warm-up")

    def load_engine(wait: Callable[[], None]) -> Engine:
        clock = StartClock()

        def before_pages() -> None:
            clock.done("language model's weights")
            wait()
            clock.done("waiting for the codec's warm-up")

        engine = Engine.load(
            parts.model,
            settings.device,
            settings.dtype,
            priority=priority,
            settings=EngineSettings(admit_slow_steps=settings.admit_overload),
            goal_rows=goal,
            most_requests=min(_MOST_IN_STEP, settings.max_sessions + settings.max_requests),
            before_pages=before_pages,
        )
        clock.done("language model's pages and graphs")
        return engine

    try:
        folder = VoiceFolder(settings.voices_dir) if settings.voices_dir else None
        store = VoiceStore(default, others, settings.max_voices, folder)
        if codec:
            store.fill(codec.voice)
        if settings.device == "cpu":  # both use every core
            warm()
            engine = load_engine(lambda: None)
        else:
            engine = load_beside(warm, load_engine)
        times = None
        if worker and default and "speech" in capabilities.replies():
            tail = check_tail(settings.tail)  # type: ignore[arg-type]  # raises for others
            slots = min(settings.max_sessions, MOST_REPLIES)
            talk = TalkSettings(tail=tail)
            times = asyncio.run(calibrate(engine, worker, default, talk, slots))
            clock.done("measuring the steps")
    except BaseException:
        if worker:
            asyncio.run(worker.close())
        raise
    return Backend(
        engine,
        worker,
        store,
        settings,
        make_end_model=_end_model(),
        default_sampling=default_sampling,
        capabilities=capabilities,
        times=times,
    )


def _end_model() -> Callable[[], EndModel] | None:
    if not is_installed():
        return None
    SmartTurn().complete(np.zeros(VAD_HZ, np.float32))  # loads it: no session waits for that
    return SmartTurn


def compile_job(parts: Parts, settings: ServerSettings, chunk: int, replies: int) -> CompileJob:
    """The warm-up of this server, as other processes need to know it."""
    precision = codec_precision(settings.codec_precision, settings.device)
    return CompileJob(
        codec=str(parts.codec),
        vocoder=str(settings.vocoder) if settings.vocoder else None,
        voice=str(parts.voice),
        dtypes=precision.load_options(),
        chunk=chunk,
        replies=replies,
        tail=settings.tail,
        device=settings.device,
    )
