"""`mosslive demo` without the bundled model: text and speech replies of a random model."""

import tempfile
from pathlib import Path

from rich.table import Table

from mosslive.cli.console import out
from mosslive.config import Sampling

_MAX_NEW = 25  # two seconds of speech


def run_random_demo() -> None:
    """Writes a small random model, asks a text and a spoken question, each with a text and a spoken
    reply, and prints a table. The replies are noise; all steps are those of the real model."""
    from mosslive.checkpoint import synthesise
    from mosslive.engine import load_lm
    from mosslive.rows import DRIVER_SYSTEM, Turn

    with tempfile.TemporaryDirectory() as folder:
        out.print("1. Writing a random model in the published layout (nano, 0.4 M parameters).")
        target = synthesise(Path(folder), "nano")
        lm = load_lm(target)
    count = lm.config.layers
    out.print(
        f"2. Loaded it: {count} layers ({lm.config.num_shared_layers} shared, "
        f"{lm.config.num_modality_layers} text, {lm.config.num_modality_layers} audio), "
        f"{lm.pool.total} pages of {lm.pool.page_size} rows."
    )
    out.print("3. Asking. A row is (text id, audio id); 12.5 rows are one second of speech.\n")
    table = Table("question", "reply", "rows in", "rows out", "ended by", "content", box=None)
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
            heard = f"codes {' '.join(map(str, output.codes[:8]))} …"
            came = heard if reply == "speech" else repr(output.text[:36])
            table.add_row(
                asked, reply, str(len(prompt)), str(len(rows)), str(generation.stop), came
            )
    out.print(table)
    out.print(
        f"\n{lm.pool.free} of {lm.pool.total} pages are free again. The weights are random, so the "
        "replies are noise. To use the real checkpoint, run mosslive inspect DIR, then "
        "mosslive generate DIR --user TEXT."
    )
