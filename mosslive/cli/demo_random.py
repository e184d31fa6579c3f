"""`mosslive demo` without the bundled model: text and speech replies of a random model."""

import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from mosslive.cli.console import err, out, print_json
from mosslive.config import Sampling

_MAX_NEW = 25  # two seconds of speech


def run_random_demo(as_json: bool = False) -> None:
    """Writes a small random model, asks a text and a spoken question, each with a text and a spoken
    reply, and prints a table or JSON. The replies are noise; all steps are those of the real
    model."""
    steps = err if as_json else out
    from mosslive.checkpoint import synthesise
    from mosslive.engine import load_lm
    from mosslive.rows import DRIVER_SYSTEM, Turn

    with tempfile.TemporaryDirectory() as folder:
        steps.print("1. Writing a random model in the published layout (nano, 0.4 M parameters).")
        target = synthesise(Path(folder), "nano")
        lm = load_lm(target)
    count = lm.config.layers
    steps.print(
        f"2. Loaded it: {count} layers ({lm.config.num_shared_layers} shared, "
        f"{lm.config.num_modality_layers} text, {lm.config.num_modality_layers} audio), "
        f"{lm.pool.total} pages of {lm.pool.page_size} rows."
    )
    steps.print("3. Asking. A row is (text id, audio id); 12.5 rows are one second of speech.\n")
    replies: list[dict[str, Any]] = []
    spoken = [7 * n % lm.config.codes for n in range(25)]
    questions = {
        "text": Turn("user", text="What can you do?"),
        "speech, 2 s": Turn("user", codes=spoken),
    }
    for asked, question in questions.items():
        for reply in ("text", "speech"):
            system = Turn("system", text=DRIVER_SYSTEM[reply])
            prompt = lm.prompt([system, question], reply=reply)
            generation = lm.generate(prompt, Sampling.driver(seed=1, max_new=_MAX_NEW))
            rows = list(generation)
            output = lm.read(rows)
            replies.append(
                {
                    "question": asked,
                    "reply": reply,
                    "prompt_rows": len(prompt),
                    "reply_rows": len(rows),
                    "stop": str(generation.stop),
                    "text": output.text,
                    "codes": output.codes,
                }
            )
    if as_json:
        print_json({"replies": replies})
        return
    table = Table("question", "reply", "prompt rows", "reply rows", "ended by", "content", box=None)
    for one in replies:
        codes = " ".join(map(str, one["codes"][:8]))
        content = f"codes {codes} …" if one["reply"] == "speech" else repr(one["text"][:36])
        counts = str(one["prompt_rows"]), str(one["reply_rows"])
        table.add_row(one["question"], one["reply"], *counts, one["stop"], content)
    out.print(table)
    out.print(
        f"\n{lm.pool.free} of {lm.pool.total} pages are free again. The weights are random, so the "
        "replies are noise. To use the real checkpoint, run mosslive inspect DIR, then "
        "mosslive generate DIR --user TEXT."
    )
