"""Steps 2 and 3 of the recipe with one command, on a machine with one GPU.

    python -m recipes.bundled.run CORPUS OUT --minutes 18 [--resume CARRIED]

Three processes share the GPU, because each alone is bound by launching small kernels: the codec and
then the language model; the vocoder from the beginning to the end; the flow while the language
model learns. They meet in files of `OUT/work`. What is to be kept stands in `OUT/carried`, in files
that travel; `OUT/curves` has the curves, `OUT/run.json` seeds, times and parameters.
"""

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import torch

from recipes.bundled.bank import load_bank
from recipes.bundled.budget import load_carried
from recipes.bundled.corpus import Corpus
from recipes.bundled.sizes import HIFT_SHAPES, SIZES
from recipes.bundled.stages import RUNS, STAGES, WORK_FILES, Plan


def run_stages(plan: Plan, stages: tuple[str, ...]) -> None:
    """One process: the bank is loaded once, the stages follow each other."""
    device = torch.device(plan.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    corpus = Corpus(plan.corpus)
    bank = load_bank(corpus, device)
    for stage in stages:
        began = time.time()
        RUNS[stage](plan, bank, corpus)
        line = {"stage": stage, "seconds": round(time.time() - began, 1)}
        print(json.dumps({"done": line}), flush=True)


def run(plan: Plan, stages: tuple[str, ...] = STAGES, together: bool = True) -> None:
    """All stages; `together`: in three processes at once, else one after another here."""
    plan.carried.mkdir(parents=True, exist_ok=True)
    plan.work.mkdir(parents=True, exist_ok=True)
    note = {"size": plan.size, "hift": plan.hift}
    (plan.carried / "sizes.json").write_text(json.dumps(note) + "\n", encoding="utf-8")
    if "codec" in stages:  # what an earlier run left there belongs to other codes
        for name in WORK_FILES:
            (plan.work / name).unlink(missing_ok=True)
    if not together:
        run_stages(plan, stages)
    else:
        groups = (("codec", "lm"), ("vocoder",), ("flow",))
        chosen = [tuple(s for s in group if s in stages) for group in groups]
        spawn = multiprocessing.get_context("spawn")
        each = [spawn.Process(target=run_stages, args=(plan, g)) for g in chosen if g]
        for process in each:
            process.start()
        for process in each:
            process.join()
        if failed := [p.exitcode for p in each if p.exitcode]:
            raise SystemExit(f"{len(failed)} of {len(each)} processes failed")
    _write_note(plan, stages)


def _write_note(plan: Plan, stages: tuple[str, ...]) -> None:
    parts = {name: load_carried(plan.carried, name) for name in ("encoder", "flow", "hift", "lm")}
    note: dict[str, Any] = {
        "size": plan.size,
        "hift": plan.hift,
        "stages": stages,
        "seconds": round(time.time() - plan.began, 1),
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else plan.device,
        "torch": torch.__version__,
        "seeds": {"codec": plan.codec.seed, "vocoder": plan.vocoder.seed, "lm": plan.lm.seed},
        "parameters": {n: sum(t.numel() for t in p.values()) for n, p in parts.items() if p},
        "resumed": plan.resume is not None,
    }
    text = json.dumps(note, indent=1)
    (plan.out / "run.json").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--resume", type=Path, help="the folder `carried` of an earlier run")
    parser.add_argument("--reuse-codes", action="store_true", help="leave the encoder as it is")
    parser.add_argument("--size", choices=sorted(SIZES), default="bundled")
    parser.add_argument("--hift", choices=sorted(HIFT_SHAPES), default="")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--in-turn", action="store_true", help="no processes of their own")
    given = parser.parse_args()
    stages = tuple(given.stages.split(","))
    if unknown := sorted(set(stages) - set(STAGES)):
        parser.error(f"stages {', '.join(unknown)}; allowed: {', '.join(STAGES)}")
    plan = Plan(
        corpus=given.corpus,
        out=given.out,
        seconds=60 * given.minutes,
        size=given.size,
        hift=given.hift,
        resume=given.resume,
        device=given.device,
        reuse_codes=given.reuse_codes,
    )
    run(plan, stages, together=not given.in_turn)


if __name__ == "__main__":
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    main()
