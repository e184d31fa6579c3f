"""`mosslive chat`: a conversation with files, at the microphone, or in the terminal."""

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.generate import ReplyOption
from mosslive.cli.sampling import Greedy, Preset, PresetOption, chosen_sampling
from mosslive.cli.voice import JsonOption, VocoderOption
from mosslive.config.folders import BUNDLED, find_parts


class TailOption(StrEnum):
    cached = "cached"
    reference = "reference"


class HistoryOption(StrEnum):
    generated = "generated"
    reencode = "reencode"


def chat(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[QUESTION]...", help="Sound files; each is a turn."),
    ] = None,
    model: Annotated[
        Path, typer.Option("--model", metavar="DIR", help="A model or engine folder.")
    ] = Path(BUNDLED),
    codec: Annotated[
        Path | None,
        typer.Option("--codec", metavar="DIR", help="A codec folder; default: the model's own."),
    ] = None,
    voice: Annotated[
        Path | None,
        typer.Option(
            "--voice", help="A .voice file, or a recording of the speaker; default: the codec's."
        ),
    ] = None,
    vocoder: VocoderOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="WAV of the reply; numbered, if there are several."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A turn in writing; may be given again.")
    ] = None,
    mic: Annotated[bool, typer.Option("--mic", help="Talk at the microphone.")] = False,
    reply: Annotated[ReplyOption, typer.Option(help="The kind of reply.")] = ReplyOption.speech,
    system: Annotated[
        str | None, typer.Option(help="System turn; default: the publishers'. '' for none.")
    ] = None,
    history: Annotated[
        HistoryOption, typer.Option(help="Replies as their own codes, or encoded again.")
    ] = HistoryOption.generated,
    tail: Annotated[
        TailOption,
        typer.Option(help="End of a spoken reply: as the rest, or as published, which takes long."),
    ] = TailOption.cached,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive/--fixed",
            help="--mic: a turn ends after silence that suits the speaker, or half a second of it.",
        ),
    ] = True,
    speculate: Annotated[
        bool, typer.Option("--speculate", help="--mic: begin the reply at the first pause.")
    ] = False,
    preset: Preset = PresetOption.model,
    greedy: Greedy = None,
    max_new: Annotated[
        int | None, typer.Option(help="Most rows of a reply; 12.5 are one second.")
    ] = None,
    min_new: Annotated[int | None, typer.Option(help="Rows before speech may end.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same replies.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with a saved conversation.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the conversation here.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Draw where the time went.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; default: as the device likes it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Talk with the model: files in, files out; --mic to talk live; or text in the terminal.

    Without files, --text and --mic, each line typed is a turn.
    """
    if mic and (files or text):
        raise typer.BadParameter("--mic takes no files and no --text")
    if mic and output:
        raise typer.BadParameter("--mic plays its replies; -o is for files and text")
    parts = find_parts(model, codec, voice)
    if reply is ReplyOption.speech and not (parts.codec and parts.voice):
        raise typer.BadParameter(
            "a spoken reply needs --codec and --voice, unless the model's folder has them; "
            "or --reply text"
        )
    if (files or mic) and not parts.codec:
        raise typer.BadParameter("hearing needs --codec")
    if vocoder and not parts.codec:
        raise typer.BadParameter("--vocoder needs --codec, unless the model's folder has a codec")
    # Rows that are written then look as the prompt format has them, and the audio tail can rest.
    sampling = chosen_sampling(
        preset,
        model,
        greedy=greedy,
        max_new=max_new,
        min_new=min_new,
        seed=seed,
        ignored_audio="pad",
    )

    from mosslive.cli.conversation import Chat
    from mosslive.talk import AdaptiveSilence, FixedSilence, TalkSettings, TurnSettings
    from mosslive.talk.cores import share_cores

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
    )
    if parts.codec:
        share_cores(device)
    job = Chat(parts, settings, output, as_json, device, dtype, vocoder)
    asyncio.run(job.run(files or [], text or [], mic, resume, save, timeline))
