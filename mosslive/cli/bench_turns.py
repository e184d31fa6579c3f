"""`mosslive bench turns`: measures rules of turn detection on recordings with known ends."""

from pathlib import Path
from typing import Annotated

import typer


def turns(
    recordings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Use the recordings of this folder, each one utterance, or as NAME.json beside "
            "NAME.wav says. Default: sentences of the bundled voice.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--turns", min=4, help="Make about this many turns from them.")
    ] = 96,
    seed: Annotated[int, typer.Option(min=0, help="Draw the pauses with this seed.")] = 0,
    ttfa_ms: Annotated[
        float,
        typer.Option(
            min=0, help="Assume this time to first audio; measure it with mosslive bench talk."
        ),
    ] = 80.0,
    model_ms: Annotated[
        float | None,
        typer.Option(
            min=0, help="Assume this time for an answer of Smart Turn; default: as measured here."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Measure the wait after a turn against the share of turns cut off, rule by rule.

    Silence is inserted into the recordings, so pauses and ends are known. Runs on the CPU. Prints
    progress on standard error. The last line of the output is JSON.
    """
    import platform

    from rich.table import Table

    from mosslive.bench.turns import measure
    from mosslive.bench.turns import recordings as sound
    from mosslive.cli.console import err, out, print_json
    from mosslive.talk.cpu_threads import shared_cpu_threads
    from mosslive.talk.smart_turn import SmartTurn, is_installed
    from mosslive.talk.vad import SileroVad

    sessions: list[sound.Session] = []
    if recordings:
        speakers, sessions = sound.read_folder(recordings)
    else:
        from mosslive.bench.turns.spoken import bundled_speaker
        from mosslive.config.folders import BUNDLED, find_parts

        with shared_cpu_threads("cpu"):  # its operations are too small for many threads
            speakers = [bundled_speaker(find_parts(Path(BUNDLED)))]
    sessions += sound.make_sessions(speakers, count, seed)
    model = SmartTurn() if is_installed() else None
    rules = measure.rules(with_model=model is not None)

    def seen(line: str) -> None:
        err.print(line, style="dim")

    with shared_cpu_threads("cpu"):
        heard, measured_s = measure.hear(sessions, rules, SileroVad(), model, seen)
    model_s = measured_s if model_ms is None else model_ms / 1000
    results = [measure.measure(heard, one, model, model_s, ttfa_ms / 1000) for one in rules]
    pauses = [turn.pauses for session in sessions for turn in session.turns]
    conditions = {
        "recordings": recordings.name if recordings else "bundled voice",
        "speakers": len({session.name for session in sessions}),
        "turns": len(pauses),
        "pauses": sum(pauses),
        "seed": seed,
        "ttfa_ms": ttfa_ms,
        "smart_turn_ms": round(1000 * model_s, 1) if model else None,
        "smart_turn_measured_ms": round(1000 * measured_s, 1) if model else None,
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    if not json:
        columns = ("rule", "cut off", "wait", "first sound", "speculating", "dropped")
        table = Table(*columns)
        for one in results:
            table.add_row(
                one.rule,
                f"{one.cut_share:.1%}",
                f"{one.wait_p50:.0f} / {one.wait_p90:.0f}",
                f"{one.first_p50:.0f} / {one.first_p90:.0f}",
                f"{one.early_p50:.0f} / {one.early_p90:.0f}",
                f"{one.dropped:.2f}",
            )
        out.print(table)
        out.print(
            "cut off: share of turns; others: ms after the end of speech, p50 / p90: end of turn "
            "detected, first sound of the reply, the same with speculation; dropped: speculative "
            "replies begun for nothing, per turn",
            markup=False,
        )
        out.print(", ".join(f"{name} {value}" for name, value in conditions.items()), markup=False)
        if model is None:
            out.print("no Smart Turn: pip install 'mosslive[smart-turn]'", markup=False)
    print_json(measure.document(results, conditions))
