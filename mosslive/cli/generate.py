"""`mosslive generate`: one reply from a model or engine folder, by the plain loop."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.codes_file import read_codes
from mosslive.cli.console import err, print_json
from mosslive.cli.models import DeviceOption, device_of, local
from mosslive.cli.sampling import Greedy, Preset, PresetOption, chosen_sampling
from mosslive.config import SECONDS_PER_CODE

if TYPE_CHECKING:
    from mosslive.engine import Generation, LanguageModel
    from mosslive.rows import Turn


_KV_ROWS = 8192  # of an engine folder's model; enough for one reply


class ReplyOption(StrEnum):
    text = "text"
    speech = "speech"


def generate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Load this model folder, its parent, engine folder or repo id."
        ),
    ],
    user: Annotated[str | None, typer.Option(help="Send this text.")] = None,
    codes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Send speech as codes: a JSON list or integers, - for stdin.",
        ),
    ] = None,
    reply: Annotated[
        ReplyOption, typer.Option(help="Choose the kind of reply.")
    ] = ReplyOption.speech,
    system: Annotated[
        str | None,
        typer.Option(help="Set the system prompt, '' for none (default: the publishers')."),
    ] = None,
    preset: Preset = PresetOption.model,
    greedy: Greedy = None,
    temperature: Annotated[float | None, typer.Option(help="Set the temperature.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Set top-k; 0 is off.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Set top-p; 1 is off.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Set the repetition penalty; 1 is off.")
    ] = None,
    max_new: Annotated[
        int | None, typer.Option(help="Limit the reply to this many rows; 12.5 rows = 1 s.")
    ] = None,
    min_new: Annotated[
        int | None, typer.Option(help="Make a spoken reply at least this many rows long.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Set the random seed.")] = None,
    device: DeviceOption = "auto",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Use float32 or bfloat16 (default: float32 on a CPU, bfloat16 on a GPU).",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Generate one reply and print its text or codes."""
    device = device_of(device, model)
    model = local(model)
    sampling = chosen_sampling(
        preset,
        model,
        greedy=greedy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        max_new=max_new,
        min_new=min_new,
        seed=seed,
    )
    question = _question(user, codes)  # bad input raises before the model is loaded

    from mosslive.rows import DRIVER_SYSTEM, Turn

    lm = _load(model, device, dtype)
    instruction = DRIVER_SYSTEM[reply.value] if system is None else system
    turns = [Turn("system", text=instruction)] if instruction else []
    prompt = lm.prompt([*turns, question], reply=reply.value)
    generation = lm.generate(prompt, sampling)
    if as_json:
        rows = list(generation)
        output = lm.read(rows)
        document = {
            "reply": reply.value,
            "text": output.text,
            "codes": output.codes,
            "stop": generation.stop,
            "prompt_rows": len(prompt),
            "rows": rows,
            "sampling": vars(sampling),
        }
        print_json(document)
    else:
        _show(lm, generation, len(prompt))


def _load(model: Path, device: str, dtype: str | None) -> "LanguageModel":
    from mosslive.checkpoint.engine_folder import is_engine
    from mosslive.engine import LanguageModel, PlainStepper, load_lm
    from mosslive.engine.graph_stepper import GraphStepper
    from mosslive.engine.load import load_stepper

    if not is_engine(model):
        return load_lm(model, device, dtype or ("float32" if device == "cpu" else "bfloat16"))
    stepper, tokenizer = load_stepper(model, device, dtype, kv_rows=_KV_ROWS, most_requests=1)
    assert isinstance(stepper, PlainStepper | GraphStepper), "there are no others"
    return LanguageModel(stepper.runner, tokenizer)


def _question(user: str | None, codes: str | None) -> "Turn":
    from mosslive.rows import Turn

    if (user is None) == (codes is None):
        raise typer.BadParameter("give either --user TEXT or --codes FILE")
    if codes is None:
        return Turn("user", text=user)
    return Turn("user", codes=read_codes(codes))


def _show(lm: "LanguageModel", generation: "Generation", prompt_rows: int) -> None:
    stream = lm.text_stream()
    written = False
    for row in generation:
        piece = stream.push(row)
        written |= bool(piece)
        print(piece, end="", flush=True)
    codes = lm.read(generation.rows).codes
    if written or not codes:  # a reply of speech only prints no empty line
        print()  # an incomplete last character is left out
    if codes:
        print(*codes)
    length = len(codes) * SECONDS_PER_CODE
    seconds = f", {len(codes)} codes = {length:.2f} s of speech" if codes else ""
    err.print(
        f"prompt {prompt_rows} rows, reply {len(generation.rows)} rows{seconds}; "
        f"ended by {generation.stop}"
    )
