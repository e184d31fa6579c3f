"""`mosslive chat`: a conversation with audio files, a microphone, or typed text."""

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import err
from mosslive.cli.generate import ReplyOption
from mosslive.cli.models import (
    DeviceOption,
    Fp8Choice,
    device_of,
    engine_of,
    leading_model,
    local,
    model_parts,
    once,
)
from mosslive.cli.sampling import Greedy, Preset, PresetOption, chosen_sampling
from mosslive.cli.setting_options import check_settings, setting_option
from mosslive.cli.voice import CodecPrecisionOption, JsonOption, VocoderOption
from mosslive.config import SECONDS_PER_CODE
from mosslive.config.capabilities import Medium
from mosslive.config.codec_precision import codec_precision as precision_of
from mosslive.config.folders import BUNDLED


class TailOption(StrEnum):
    cached = "cached"
    reference = "reference"


class HistoryOption(StrEnum):
    generated = "generated"
    reencode = "reencode"


def chat(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="QUESTION",
            help="Send audio files; each is one turn. A model may come first, as in --model.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="DIR", help="Load this folder or repo id (default: bundled)."
        ),
    ] = None,
    codec: Annotated[
        Path | None,
        typer.Option(
            "--codec", metavar="DIR", help="Load this codec or repo id (default: the model's)."
        ),
    ] = None,
    voice: Annotated[
        Path | None,
        typer.Option(
            "--voice", help="Speak with this .voice file or recording (default: the codec's)."
        ),
    ] = None,
    vocoder: VocoderOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write the reply: .wav, .flac, .ogg, .opus or .mp3; several are numbered.",
        ),
    ] = None,
    play: Annotated[
        bool | None,
        typer.Option(
            "--play/--no-play",
            help="Play the reply if there is a sound card (default: unless -o or --json).",
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="Send a text turn; repeatable.")
    ] = None,
    mic: Annotated[
        bool, typer.Option("--mic", help="Talk live with microphone and speakers.")
    ] = False,
    reply: Annotated[
        ReplyOption, typer.Option(help="Choose the kind of reply.")
    ] = ReplyOption.speech,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            "--instructions",
            help="Set the system prompt, '' for none (default: the publishers').",
        ),
    ] = None,
    transcripts: Annotated[bool | None, setting_option("transcripts")] = None,
    history: Annotated[
        HistoryOption, typer.Option(help="Keep replies as generated codes, or encode their audio.")
    ] = HistoryOption.generated,
    tail: Annotated[
        TailOption,
        typer.Option(help="Render a reply's end from caches, or as published (slow)."),
    ] = TailOption.cached,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive/--fixed",
            help="Adapt the silence that ends a turn to the speaker, or use 0.5 s (--mic).",
        ),
    ] = True,
    speculate: Annotated[
        bool, typer.Option("--speculate", help="Start the reply at the first pause (--mic).")
    ] = False,
    preset: Preset = PresetOption.model,
    greedy: Greedy = None,
    max_new: Annotated[
        int | None, typer.Option(help="Limit a reply to this many rows; 12.5 rows = 1 s.")
    ] = None,
    min_new: Annotated[
        int | None, typer.Option(help="Make a spoken reply at least this many rows long.")
    ] = None,
    max_reply_s: Annotated[float | None, setting_option("max_reply_s")] = None,
    min_reply_s: Annotated[float | None, setting_option("min_reply_s")] = None,
    seed: Annotated[int | None, typer.Option(help="Set the random seed.")] = None,
    context_rows: Annotated[int | None, setting_option("context_rows")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Continue a saved conversation.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the conversation to this file.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write a timeline of the latencies.")
    ] = None,
    device: DeviceOption = "auto",
    fp8: Fp8Choice = None,
    dtype: Annotated[str | None, setting_option("dtype")] = None,
    codec_precision: CodecPrecisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk with a model: with audio files, live with a microphone (--mic), or by typing.

    Without QUESTION, --text and --mic, each typed line is a turn.
    """
    if leading := leading_model(files or []):
        files = (files or [])[1:]
    if mic and (files or text):
        raise typer.BadParameter("--mic cannot be combined with audio files or --text")
    if mic and output:
        raise typer.BadParameter("--mic plays its replies and cannot be combined with -o")
    check_settings(max_reply_s=max_reply_s, min_reply_s=min_reply_s, context_rows=context_rows)
    max_new = _rows("max", max_new, max_reply_s, least=1)
    min_new = _rows("min", min_new, min_reply_s, least=0)
    model = once(leading, model) or Path(BUNDLED)
    device = device_of(device, model)
    parts = model_parts(model, codec, voice)
    if reply is ReplyOption.speech and not (parts.codec and parts.voice):
        raise typer.BadParameter(
            "a spoken reply needs a codec and a voice: give --codec and --voice, use a model "
            "folder that has both, or choose --reply text"
        )
    if (files or mic) and not parts.codec:
        raise typer.BadParameter("spoken questions need a codec: give --codec")
    if vocoder and not parts.codec:
        raise typer.BadParameter("--vocoder needs a codec: give --codec")
    from mosslive.checkpoint.capabilities import folder_capabilities

    capabilities = folder_capabilities(parts.model)
    heard: list[Medium] = []
    if mic or files:
        heard.append("speech")
    if text or not heard:
        heard.append("text")
    for medium in heard:
        if not capabilities.supports(medium, reply.value):
            raise typer.BadParameter(
                f"this model was not trained for {medium}-to-{reply.value}; allowed: "
                f"{', '.join(capabilities.modes)}"
            )
    for warning in capabilities.warnings(context_rows, voice):
        err.print(warning, markup=False, soft_wrap=True)
    rows = capabilities.limit(context_rows)
    # "pad": text rows equal those of the prompt format, and the audio tail need not run for them.
    sampling = chosen_sampling(
        preset,
        parts.model,
        greedy=greedy,
        max_new=max_new,
        min_new=min_new,
        seed=seed,
        ignored_audio="pad",
    )

    from mosslive.cli.chat_words import Transcripts, Words
    from mosslive.cli.conversation import Chat
    from mosslive.talk import AdaptiveSilence, FixedSilence, TalkSettings, TurnSettings
    from mosslive.talk.cpu_threads import share_cpu_threads

    plain = TalkSettings()
    silence = AdaptiveSilence() if adaptive else FixedSilence()
    settings = replace(
        plain,
        reply=reply.value,
        system=system,
        history=history.value,
        tail=tail.value,
        sampling=sampling,
        turns=TurnSettings(end=silence) if mic else None,
        speculate=speculate and mic,
        lead_s=plain.lead_s if mic else None,
        context_rows=plain.context_rows if rows is None else rows,
    )
    if parts.codec:
        share_cpu_threads(device)
    precision = precision_of(codec_precision, device)
    vocoder = local(vocoder)
    loadable = engine_of(parts.model, device, dtype, fp8)
    parts, dtype = replace(parts, model=loadable.model), loadable.dtype
    words = Words(Transcripts(transcripts, capabilities, settings), as_json)
    plays = output is None and not as_json if play is None else play
    job = Chat(parts, settings, words, output, as_json, device, dtype, vocoder, precision, plays)
    asyncio.run(job.run(files or [], text or [], mic, resume, save, timeline))


def _rows(bound: str, rows: int | None, seconds: float | None, least: int) -> int | None:
    """The bound of a reply in rows; it may be given as rows or as seconds."""
    if rows is not None and seconds is not None:
        raise typer.BadParameter(f"give --{bound}-new or --{bound}-reply-s, not both")
    return rows if seconds is None else max(least, round(seconds / SECONDS_PER_CODE))
