"""Runs steps 2 and 3 of the recipe with one command, on a machine with one GPU.

    python -m recipes.bundled.run CORPUS OUT --minutes 18 [--resume CARRIED]
    python -m recipes.bundled.run CORPUS OUT --minutes 9 --resume CARRIED --reuse-codes --stages lm

Three processes share the GPU, because each alone is limited by launching small kernels: the codec
and then the language model; the vocoder; the flow while the language model trains. They exchange
files in `OUT/work`. The second form continues one part and keeps the others, on any corpus, or on
codes that `encode_corpus` made. The result is in `OUT/carried`, in files small enough to move;
`OUT/curves` has the curves, `OUT/run.json` seeds, times, parameters and failures. Invariant:
whatever fails, `OUT/carried` has the newest complete state of every part, from the earlier run
where this one has none.
"""

import argparse
import json
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recipes.bundled.bank import load_bank
from recipes.bundled.budget import drop_carried, load_carried
from recipes.bundled.corpus import Corpus
from recipes.bundled.encode_corpus import encoder_digest
from recipes.bundled.lm_grow import grown
from recipes.bundled.processes import Group, run_groups
from recipes.bundled.sizes import HIFT_SHAPES, SIZES, SIZES_FILE
from recipes.bundled.stages import (
    CODES_FILES,
    OF_ONE_CODEBOOK,
    STAGES,
    WITH_SOUND,
    WORK_FILES,
    Plan,
    run_lm,
)
from recipes.bundled.train_lm import LmTraining
from recipes.bundled.vocabulary import ids, load_tokenizer

_NOTED = ("rate", "dropout", "decay", "meant_weight", "part")  # of the language model's training
_GROUPS: tuple[Group, ...] = (("codec", "lm"), ("vocoder",), ("flow",))


def run_stages(plan: Plan, stages: tuple[str, ...]) -> None:
    """Runs stages one after another in one process; the bank is loaded once."""
    device = torch.device(plan.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        # cuDNN attention plans for every shape; flash attention does not, and batch shapes differ.
        torch.backends.cuda.enable_cudnn_sdp(False)
    corpus = Corpus(plan.corpus)
    bank = load_bank(corpus, device) if set(stages) & WITH_SOUND.keys() else None
    for stage in stages:
        began = time.time()
        if stage == "lm":
            run_lm(plan, corpus)
        else:
            assert bank is not None
            WITH_SOUND[stage](plan, bank, corpus)
        line = {"stage": stage, "seconds": round(time.time() - began, 1)}
        print(json.dumps({"done": line}), flush=True)


@dataclass(frozen=True)
class _Target:
    """The work of one process. Compiled or recorded code can have caused a failure, so the second
    try runs without it."""

    plan: Plan

    def __call__(self, stages: Group, retry: bool) -> None:
        run_stages(replace(self.plan, retry=True, compiled=False) if retry else self.plan, stages)


def run(plan: Plan, stages: tuple[str, ...] = STAGES, together: bool = True) -> None:
    """Runs all stages: with `together` in three processes at once, otherwise one after another in
    this one."""
    stages = _with_codes(plan, stages)
    _begin(plan, stages)
    failures: list[str] = []
    if not together:
        run_stages(plan, stages)
    else:
        chosen = [tuple(s for s in group if s in stages) for group in _GROUPS]
        end = plan.began + plan.seconds
        left = partial(_left, plan)
        failures = run_groups([g for g in chosen if g], _Target(plan), left, end, plan.last)
    _carry_over(plan, with_lm=_same_codes(plan))
    _write_note(plan, stages, failures)
    if failures:
        raise SystemExit(f"failed in the first or second try: {'; '.join(failures)}")


def _begin(plan: Plan, stages: tuple[str, ...]) -> None:
    """Raises `ValueError` for every bad option before anything slow runs."""
    note = {"size": plan.size, "hift": plan.hift}
    if plan.resume is not None:
        if not list(plan.resume.glob("*.pt")):
            raise ValueError(f"{plan.resume} is not a folder `carried` of a run: it has no tensors")
        path = plan.resume / SIZES_FILE
        if path.exists() and (found := json.loads(path.read_text(encoding="utf-8"))) != note:
            raise ValueError(f"{plan.resume} is of {found}, this run of {note}")
    number, count = plan.lm.part
    if "lm" in stages and number > 1 and not (plan.reuse_codes and plan.earlier("lm")):
        raise ValueError(
            f"part {number} of {count} continues the part before: add --reuse-codes and --resume"
            " with its language model"
        )
    if "lm" in stages and plan.reuse_codes and (known := plan.earlier("lm")) is not None:
        grown(known, plan.sizes.lm_config(**ids(load_tokenizer())))  # refuses a larger one
    plan.carried.mkdir(parents=True, exist_ok=True)
    plan.work.mkdir(parents=True, exist_ok=True)
    (plan.carried / SIZES_FILE).write_text(json.dumps(note) + "\n", encoding="utf-8")
    if "codec" in stages:  # files of an earlier run belong to other codes
        for name in WORK_FILES:
            (plan.work / name).unlink(missing_ok=True)
    if plan.reuse_codes and not _same_codes(plan):
        for name in OF_ONE_CODEBOOK:
            drop_carried(plan.carried, name)
    # Now and not at the end, so that an interrupted run also leaves a complete model.
    _carry_over(plan, with_lm=plan.reuse_codes)


def _left(plan: Plan, stages: Group) -> Group:
    made = all((plan.work / name).exists() for name in CODES_FILES)
    return tuple(s for s in stages if s != "codec" or not made)


def _with_codes(plan: Plan, stages: tuple[str, ...]) -> tuple[str, ...]:
    """Adds the stage that makes codes to the stages that read them: reused codes need no training
    but must be made for this corpus."""
    corpus = Corpus(plan.corpus)
    if corpus.silent and (stages != ("lm",) or not plan.reuse_codes):
        raise ValueError(f"{plan.corpus} has codes and no sound: --reuse-codes --stages lm")
    if not plan.reuse_codes:
        return stages
    if plan.resume is None or plan.earlier("encoder") is None:
        raise ValueError(f"codes cannot be reused: {plan.resume} has no encoder")
    if corpus.silent:
        if corpus.meta.get("encoder") != encoder_digest(plan.resume):
            raise ValueError(f"{plan.corpus} has codes of another encoder than {plan.resume}")
        return stages
    reads = "flow" in stages or "lm" in stages
    return ("codec", *stages) if reads and "codec" not in stages else stages


def _carry_over(plan: Plan, with_lm: bool) -> None:
    """Copies the parts that this run did not train from the earlier run."""
    for path in sorted(plan.resume.glob("*.pt")) if plan.resume else ():
        name = path.name.split(".")[0]
        wanted = plan.carried / path.name
        if (name != "lm" or with_lm) and not wanted.exists():
            part = wanted.with_name(f".{path.name}.part")
            part.write_bytes(path.read_bytes())
            part.replace(wanted)


def _same_codes(plan: Plan) -> bool:
    """Returns whether the language model of the earlier run knows the codes of this one."""
    before, now = plan.earlier("encoder"), load_carried(plan.carried, "encoder")
    if before is None or now is None:
        return False
    return all(torch.equal(before[name], now[name]) for name in now)


def _write_note(plan: Plan, stages: tuple[str, ...], failures: list[str]) -> None:
    parts = {name: load_carried(plan.carried, name) for name in ("encoder", "flow", "hift", "lm")}
    note: dict[str, Any] = {
        "size": plan.size,
        "hift": plan.hift,
        "stages": stages,
        "seconds": round(time.time() - plan.began, 1),
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else plan.device,
        "torch": torch.__version__,
        "lm": {name: getattr(plan.lm, name) for name in _NOTED},
        "seeds": {"codec": plan.codec.seed, "vocoder": plan.vocoder.seed, "lm": plan.lm.seed},
        "parameters": {n: sum(t.numel() for t in p.values()) for n, p in parts.items() if p},
        "resumed": plan.resume is not None,
        "failures": failures,
    }
    text = json.dumps(note, indent=1)
    (plan.out / "run.json").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)


def part_of(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: I/N, from 1/N to N/N")
    return int(number), int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument(
        "--resume", type=Path, help="continue from the folder `carried` of an earlier run"
    )
    parser.add_argument("--reuse-codes", action="store_true", help="do not train the encoder")
    parser.add_argument("--size", choices=sorted(SIZES), default="bundled")
    parser.add_argument("--hift", choices=sorted(HIFT_SHAPES), default="")
    parser.add_argument("--stages", default=",".join(STAGES))
    for name in ("codec", "flow", "vocoder"):
        default = getattr(Plan, f"{name}_until")
        parser.add_argument(
            f"--{name}-until",
            type=float,
            default=default,
            help="set the share of the run at which it ends",
        )
    parser.add_argument("--lm-rate", type=float, default=LmTraining.rate)
    parser.add_argument("--lm-dropout", type=float, default=LmTraining.dropout)
    parser.add_argument("--lm-decay", type=float, default=LmTraining.decay)
    parser.add_argument(
        "--lm-part",
        type=part_of,
        default=LmTraining.part,
        metavar="I/N",
        help="run part I of N of one training, each resumed from the one before",
    )
    parser.add_argument("--plain", action="store_true", help="turn compiling and recording off")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--in-turn", action="store_true", help="run the stages in one process")
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
        lm=LmTraining(
            rate=given.lm_rate, dropout=given.lm_dropout, decay=given.lm_decay, part=given.lm_part
        ),
        compiled=not given.plain,
        codec_until=given.codec_until,
        flow_until=given.flow_until,
        vocoder_until=given.vocoder_until,
    )
    run(plan, stages, together=not given.in_turn)


if __name__ == "__main__":
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    main()
