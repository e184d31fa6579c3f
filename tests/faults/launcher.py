"""The real server with faults in it: `python -m tests.faults.launcher RULES SETTINGS`.

RULES: the file of `rules.py`. SETTINGS: JSON of the settings that differ from the defaults. The
server is the product's, with real networks and the real VAD, except for the patches of
`patches.py` and what saves time: a step counts as stuck after `STUCK_S`, networks run without
recorded steps, which take seconds to record, and no times of steps are measured at the start.
"""

import functools
import json
import sys
from pathlib import Path

import torch

from mosslive.codec import load_codec
from mosslive.engine import health
from mosslive.server import backend, run
from mosslive.server.settings import ServerSettings
from tests.faults.patches import install
from tests.faults.rules import Rules

_PATHS = ("model", "codec", "voice", "voices_dir")
STUCK_S = 0.5


async def _no_times(*_: object) -> None:
    return None


def main(rules: str, changes: str) -> None:
    torch.set_num_threads(1)
    install(Rules(Path(rules)))
    health.STUCK_S = STUCK_S
    given = json.loads(changes)
    given |= {name: Path(given[name]) for name in _PATHS if name in given}
    backend.load_codec = functools.partial(load_codec, trace_cpu_steps=False)  # type: ignore[attr-defined]
    backend.calibrate = _no_times  # type: ignore[assignment,attr-defined]
    run.serve(ServerSettings(port=0, admit_overload=True, **given))


if __name__ == "__main__":
    main(*sys.argv[1:])
