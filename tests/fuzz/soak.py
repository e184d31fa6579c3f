"""`make soak`: random sessions for hours. `python -m tests.fuzz.soak [--sessions N] ...`

Plays runs until so many sessions have been served, against the toy server, the toy server with two
fronts, and the bundled server. Each failure is shrunk and printed as a test. Writes `soak.json` and
plots. Exits with 1 if a run failed.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from mosslive.checkpoint import synthesise
from tests.fuzz.generate import Shape, run_of
from tests.fuzz.player_webrtc import missing
from tests.fuzz.report import Totals, write
from tests.fuzz.runs import Target
from tests.fuzz.script import Run
from tests.fuzz.shrink import as_test, shrink

# Server, fronts, share of all sessions, share of calls over WebRTC.
SERVERS = (("toy", 0, 0.7, 0.01), ("toy", 2, 0.25, 0.01), ("bundled", 0, 0.05, 0.02))
SHAPE = Shape(sessions=24, steps=230, http=0.1)  # 100 events a session on average
_TRIES = 3  # of each candidate while shrinking


async def soak(options: argparse.Namespace) -> int:
    totals: list[Totals] = []
    if why := missing():
        print(f"no calls over WebRTC: {why}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = synthesise(Path(temporary) / "nano", "nano", seed=1)
        for name, fronts, share, webrtc in SERVERS:
            if f"{name}{fronts}" not in options.servers.split(","):
                continue
            totals.append(Totals(name, fronts))
            shape = Shape(SHAPE.sessions, SHAPE.steps, 0.0 if why else webrtc, SHAPE.http)
            async with Target(name, folder, fronts) as target:
                await _serve(target, totals[-1], round(share * options.sessions), shape, options)
            summary = write(totals, options.out)
    print(json.dumps(summary))
    return int(any(each.failed for each in totals))


async def _serve(
    target: Target, totals: Totals, sessions: int, shape: Shape, options: argparse.Namespace
) -> None:
    seed, began, last = options.seed, time.monotonic(), 0.0
    while totals.sessions < sessions:
        run = run_of(seed, shape)
        played = await target.play(run)
        totals.add(played, len(run))
        if played.failures:
            print(f"seed {seed} failed:", *played.failures, sep="\n  ", flush=True)
            totals.failed.append({"seed": seed, "failures": [f[:500] for f in played.failures]})
            if options.shrink:
                print(as_test(await smaller(target, run, played.failures), seed, played.failures))
        totals.seconds = time.monotonic() - began
        if totals.seconds - last > 30:
            last = totals.seconds
            write([totals], options.out)
            print(_line(totals), flush=True)
        seed += 1


async def smaller(target: Target, run: Run, failures: list[str], most_s: float = 600.0) -> Run:
    """A short run that fails by the same rule, found within so many seconds."""
    rules = {text.partition(":")[0] for text in failures}

    async def fails(candidate: Run) -> bool:
        for _ in range(_TRIES):
            played = await target.play(candidate)
            if rules & {text.partition(":")[0] for text in played.failures}:
                return True
        return False

    return await shrink(run, fails, most_s)


def _line(totals: Totals) -> str:
    held = totals.samples[-1][1]
    return (
        f"{totals.server} with {totals.fronts} fronts: {totals.sessions} sessions, "
        f"{totals.events} events sent, {totals.received} received, {len(totals.failed)} failed, "
        f"{held.memory_mib:.0f} MiB, {held.counts}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument("--servers", default="toy0,toy2,bundled0")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return asyncio.run(soak(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
