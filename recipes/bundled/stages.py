"""The stages of training: what each starts from, how long it lasts, and what it writes.

A stage reads the bank of the corpus, or codes alone, and files of `work`; it writes its tensors to
`carried`. Knows the order of the results, not which process runs when. Invariant: a stage that ends
by its clock leaves a complete result, and files of `work` appear only when they are complete.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mosslive.codec.hift import Hift
from mosslive.rows import RowIds
from recipes.bundled.bank import Bank
from recipes.bundled.budget import (
    Budget,
    Curves,
    drop_carried,
    load_carried,
    save_carried,
    save_whole,
)
from recipes.bundled.codec_model import CodecModel
from recipes.bundled.corpus import SPOKEN, Corpus
from recipes.bundled.discriminators import Judges
from recipes.bundled.encode_bank import encode_bank, load_spoken, rendered_mel, save_spoken
from recipes.bundled.flow_start import restart_if_noise_stays
from recipes.bundled.judge_codec import judge_codec
from recipes.bundled.lm_batch import Batches
from recipes.bundled.lm_compile import CompiledLayers
from recipes.bundled.lm_feed import Feed, Maker, Sets
from recipes.bundled.lm_grow import grown
from recipes.bundled.lm_model import LmModel
from recipes.bundled.sizes import SIZES, Sizes
from recipes.bundled.train_codec import CodecTraining, train_codec, train_flow
from recipes.bundled.train_lm import LmTraining, train_lm
from recipes.bundled.train_vocoder import VocoderTraining, fresh_hift, train_vocoder
from recipes.bundled.vocabulary import ids, load_tokenizer

STAGES = ("codec", "flow", "vocoder", "lm")
CODES_FILES = ("codec.pt", SPOKEN)  # what the codec's stage writes for the others
WORK_FILES = (*CODES_FILES, "again.pt", "again-final.pt")
OF_ONE_CODEBOOK = ("encoder", "flow", "extra", "lm")  # carried parts that belong together
_VERSIONS = 10  # of every user utterance: as recorded, and nine augmented ones
_LAST = 0.97  # of the run; then only files are written
_GRACE_S, _SLOW_GRACE_S = 20.0, 1200.0  # after its end
_PROMPT_CODES = 20
_USUAL_ROWS = 112  # of an example


@dataclass(frozen=True)
class Plan:
    """Paths, duration and networks of a run. Picklable: every process gets a copy."""

    corpus: Path
    out: Path
    seconds: float
    size: str = "bundled"
    hift: str = ""
    resume: Path | None = None
    device: str = "cuda"
    steps: int = 1 << 60  # of each stage, for tests
    codec: CodecTraining = field(default_factory=CodecTraining)
    vocoder: VocoderTraining = field(default_factory=VocoderTraining)
    lm: LmTraining = field(default_factory=LmTraining)
    began: float = field(default_factory=time.time)  # the same in every process
    reuse_codes: bool = False  # resume without touching the encoder: the codes stay the same
    compiled: bool = True  # the language model's layers, and its steps recorded; on a GPU
    retry: bool = False  # a second try after a failure: continues from the state of the first
    # When each ends, as a share of the run; the language model has what is left after the codec,
    # and the GPU alone once the other two are done.
    codec_until: float = 0.36
    flow_until: float = 0.56
    vocoder_until: float = _LAST

    @property
    def sizes(self) -> Sizes:
        return SIZES[self.size].with_hift(self.hift) if self.hift else SIZES[self.size]

    @property
    def work(self) -> Path:
        return self.out / "work"

    @property
    def carried(self) -> Path:
        return self.out / "carried"

    def curves(self, stage: str) -> Path:
        return self.out / "curves" / f"{stage}.jsonl"

    def until(self, share: float) -> Budget:
        """Returns a budget that ends at this share of the whole run."""
        left = self.began + share * self.seconds - time.time()
        return Budget(max(1.0, left), self.steps)

    def earlier(self, name: str) -> dict[str, Tensor] | None:
        return load_carried(self.resume, name) if self.resume else None

    def begun(self, name: str, fits: bool = True) -> dict[str, Tensor] | None:
        """Returns the state that a stage continues from: that of the first try of this run, or, if
        it `fits`, that of the earlier run."""
        kept = load_carried(self.carried, name) if self.retry else None
        return kept or (self.earlier(name) if fits else None)

    @property
    def last(self) -> float:
        """The time.time() after which a running process counts as hanging. A CPU gets longer,
        because it is slow and costs no rent."""
        grace = _GRACE_S if self.device == "cuda" else _SLOW_GRACE_S
        return self.began + self.seconds + grace


def codec_model(plan: Plan, corpus: Corpus, device: torch.device) -> tuple[CodecModel, bool]:
    """Returns the model, and whether an earlier run has trained it."""
    torch.manual_seed(plan.codec.seed)
    model = CodecModel(plan.sizes, len(corpus.phone_names))
    known: dict[str, Tensor] = {}
    for name, prefix in (("encoder", "encoder."), ("flow", "flow."), ("extra", "")):
        held = plan.earlier(name) or {}
        known |= {prefix + key: tensor for key, tensor in held.items()}
    if known:
        # Without what another corpus changes, the phone heads, and without the flow's table.
        own = model.state_dict()
        fitting = {n: t for n, t in known.items() if n in own and own[n].shape == t.shape}
        model.load_state_dict(own | fitting)
        model.quantiser.go_on()
        print(json.dumps({"resumed": "codec", "fresh": sorted(own.keys() - fitting)}), flush=True)
    return model.to(device), bool(known)


def run_codec(plan: Plan, bank: Bank, corpus: Corpus) -> None:
    model, resumed = codec_model(plan, corpus, bank.device)
    whole = plan.work / "codec.pt"
    kept = resumed and plan.reuse_codes
    if plan.retry and whole.exists():  # a first try came that far
        model.load_state_dict(_awaited(whole, plan.last))
        kept = True
    if not kept:
        budget = plan.until(plan.codec_until)
        train_codec(
            model, bank, corpus.phone_names, budget, plan.codec, plan.curves("codec"), resumed
        )
    model.settle_hearing()
    if not kept:  # otherwise its files exist, and rounding them again would change them
        drop_carried(plan.carried, "lm")  # of other codes
        _keep_codec(plan, model)
    save_whole(model.state_dict(), whole)
    spoken = encode_bank(model, bank, _VERSIONS, plan.codec.augment)
    save_spoken(spoken, plan.work / SPOKEN)


def _keep_codec(plan: Plan, model: CodecModel) -> None:
    save_carried(plan.carried, "encoder", model.encoder_tensors())
    save_carried(plan.carried, "flow", model.flow_tensors())
    # State for a later run that the two files above do not hold.
    rest = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith(("encoder.", "flow.")) and name != "quantiser.sums"
    }
    save_carried(plan.carried, "extra", rest)


def run_flow(plan: Plan, bank: Bank, corpus: Corpus) -> None:
    """Runs when the codes are final: computes the assistant's mel with the flow, for the vocoder;
    then trains the flow alone and computes the mel again."""
    model, _ = codec_model(plan, corpus, bank.device)
    model.load_state_dict(_awaited(plan.work / "codec.pt", plan.last))
    _await(plan.work / SPOKEN, plan.last)
    spoken = load_spoken(plan.work / SPOKEN)
    restart_if_noise_stays(model.flow.estimator)  # otherwise the vocoder would learn from noise
    save_whole(rendered_mel(model, bank, spoken).cpu(), plan.work / "again.pt")
    budget = plan.until(plan.flow_until)
    train_flow(model, bank, corpus.phone_names, budget, plan.codec, plan.curves("flow"))
    _keep_codec(plan, model)
    save_whole(rendered_mel(model, bank, spoken).cpu(), plan.work / "again-final.pt")
    log = Curves(plan.curves("flow"), "codec held out", Budget())
    log.note(0, **judge_codec(model, bank, corpus.phone_names))


def run_vocoder(plan: Plan, bank: Bank, corpus: Corpus) -> None:
    torch.manual_seed(plan.vocoder.seed)
    hift, judges = fresh_hift(plan.sizes.hift), Judges(plan.vocoder.judges_width)
    known, begin = plan.begun("hift"), 0
    if known is not None:
        hift.load_state_dict(known)
        begin = plan.vocoder.judges_from
        if (old := plan.begun("judges")) is not None:
            judges.load_state_dict(old)
    hift, judges = hift.to(bank.device), judges.to(bank.device)

    coming = ["again-final.pt", "again.pt"]

    def find_rendered_mel() -> Tensor | None:
        for place, name in enumerate(coming):
            if (plan.work / name).exists():
                del coming[place:]
                found: Tensor = torch.load(plan.work / name, weights_only=True)
                return found.to(bank.device)
        return None

    def keep(average: Hift) -> None:
        save_carried(plan.carried, "hift", average.state_dict())
        save_carried(plan.carried, "judges", judges.state_dict())

    _keep_prompt(plan, bank)
    train_vocoder(
        hift,
        judges,
        bank,
        plan.until(plan.vocoder_until),
        plan.vocoder,
        plan.curves("vocoder"),
        find_rendered_mel,
        begin,
        keep,
    )


def _keep_prompt(plan: Plan, bank: Bank) -> None:
    """Saves one and a half seconds of the assistant, from an utterance that is long enough."""
    spoken = bank.where("assistant", "train")
    long = [n for n in spoken if bank.count[n] >= _PROMPT_CODES] or list(spoken)
    first = int(bank.first[min(long, key=lambda n: bank.count[n])])
    wave = bank.sound[first : first + _PROMPT_CODES].flatten().float().cpu() / 32768
    save_carried(plan.carried, "prompt", {"wave": wave})


def run_lm(plan: Plan, corpus: Corpus) -> None:
    device = torch.device(plan.device)
    config = plan.sizes.lm_config(**ids(load_tokenizer()))
    torch.manual_seed(plan.lm.seed)
    model = LmModel(config)
    # A language model can continue only with the codebook it was trained with.
    known = plan.begun("lm", fits=plan.reuse_codes)
    if known is not None:
        model.load_state_dict(grown(known, config))
    model = model.to(device)
    # Compiling, making the first set, and waiting for codes all take seconds: at the same time.
    cuda = device.type == "cuda"
    layers = None
    if cuda and plan.compiled:
        probe = (plan.lm.rows // _USUAL_ROWS, _USUAL_ROWS)
        layers = CompiledLayers(model, torch.bfloat16, probe=probe)
    spoken = (corpus.folder if corpus.silent else plan.work) / SPOKEN
    _await(spoken, plan.last)
    row_ids = RowIds.from_config(config)
    seed = plan.lm.seed + 100 * plan.lm.part[0]  # every part samples its own examples
    what = Sets(plan.corpus, spoken, row_ids, plan.lm.examples, plan.lm.typed, seed)
    feed = Feed(what, plan.work, device, plan.lm.rows, plan.lm.makers if cuda else 0)
    try:
        held = None
        if any(each.split == "heldout" for each in corpus.dialogues):
            maker = Maker(replace(what, seed=plan.lm.seed))  # the same ones in every part
            some = maker.held_out(plan.lm.held_out)
            codes = maker.spoken.on(device, versions=1)
            held = Batches(some, codes, row_ids, device, plan.lm.rows, plan.lm.seed)
        if layers is not None:
            layers.wait()

        def keep(average: LmModel) -> None:
            save_carried(plan.carried, "lm", average.state_dict())

        budget = replace(plan.until(_LAST), span=plan.lm.span)
        train_lm(model, feed, held, budget, plan.lm, plan.curves("lm"), layers, keep)
    finally:
        feed.close()
    print(json.dumps({"sets of examples": feed.taken}), flush=True)


# All except that of the language model, which needs no sound once there are codes.
WITH_SOUND: dict[str, Callable[[Plan, Bank, Corpus], None]] = {
    "codec": run_codec,
    "flow": run_flow,
    "vocoder": run_vocoder,
}


def _await(path: Path, last: float) -> None:
    """Waits until another process has written the file, at most until `last`, of time.time()."""
    while not path.exists():
        if time.time() > last:
            raise TimeoutError(f"{path} was not written in time by the process that makes it")
        time.sleep(0.5)


def _awaited(path: Path, last: float) -> Any:
    _await(path, last)
    return torch.load(path, map_location="cpu", weights_only=True)
