"""Training the language model at toy size: rows, batches, compiled layers, sets of examples.

Targets equal what the live loop reads, fast paths compute the same as plain ones, and no failure of
a fast path ends a run.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mosslive
from mosslive.config import Sampling
from mosslive.rows import DRIVER_SYSTEM, first_mode, next_mode
from mosslive.rows import Turn as PromptTurn
from recipes.bundled.budget import Budget
from recipes.bundled.corpus import Corpus, Dialogue, Split, Turn
from recipes.bundled.encode_bank import save_spoken
from recipes.bundled.export import write_lm
from recipes.bundled.lm_batch import IGNORED, Batch, Batches, Mishearing, Wanted
from recipes.bundled.lm_compile import CompiledLayers
from recipes.bundled.lm_feed import Feed, Maker, Sets
from recipes.bundled.lm_model import Computing, run_plain
from recipes.bundled.lm_rows import (
    HEARD,
    SPEAK,
    WRITE,
    RowBuilder,
    Tasks,
    build_examples,
    cumulative_shares,
)
from recipes.bundled.sizes import TOY
from recipes.bundled.train_lm import Average, LmTraining, examined, losses, train_lm
from tests.recipes.toy_lm import batches_of, fresh, fresh_meanings

pytestmark = pytest.mark.training

_QUIET = Mishearing(dropped=0, doubled=0, masked=0, random=0, masked_reply=0)


def _of_example(wanted: Wanted, index: int, batch: Batch) -> list[int]:
    own = (wanted.place // batch.text.shape[1] == index) & (wanted.value != IGNORED)
    found: list[int] = wanted.value[own].tolist()
    return found


@pytest.mark.parametrize("heard", ["speech", "text"])
@pytest.mark.parametrize("reply", ["speech", "text"])
def test_targets_are_what_the_mode_machine_reads(
    builder: RowBuilder, corpus: Corpus, heard: str, reply: str
) -> None:
    """Each target row of a reply is one that the loop samples from that head, and the rows before
    it are the package's prompt."""
    rows, kinds = builder.answer(corpus.dialogues[0], heard, reply, "train").joined()  # type: ignore[arg-type]
    pairs = [tuple(map(int, row)) for row in rows]
    row_ids = builder.ids
    begin = int(np.flatnonzero(np.isin(kinds, (SPEAK, WRITE)))[0])
    prefix = builder.format.reply_prefix(reply)  # type: ignore[arg-type]
    assert pairs[begin - len(prefix) : begin] == prefix
    mode = first_mode(pairs[begin - 1], row_ids)  # type: ignore[arg-type]
    for place in range(begin, len(pairs) - 1):
        mode = next_mode(mode, pairs[place - 1], row_ids)  # type: ignore[arg-type]
        assert kinds[place] == (SPEAK if mode == "audio" else WRITE)
    assert pairs[-2][0] in row_ids.stops
    assert kinds[-1] not in (SPEAK, WRITE)
    assert (kinds == HEARD).any() == (heard == "speech")


def test_learned_answers_come_out_of_the_package(
    builder: RowBuilder, corpus: Corpus, tmp_path: Path
) -> None:
    """A trained model gives its answers through the package's loop, spoken and written, and ends
    its turn."""
    made = build_examples(builder, Tasks(0.5, 0.5, 0, 0, 0, 0, 0), 40, "train")
    batches = batches_of(builder, made, 512)
    model = fresh()
    train_lm(
        model,
        batches,
        None,
        Budget(steps=250),
        LmTraining(rate=8e-3, dropout=0),
        tmp_path / "lm.jsonl",
    )
    write_lm(tmp_path, TOY, model.state_dict())
    lm = mosslive.load_lm(tmp_path)
    greedy = Sampling(greedy=True, max_new=40)
    asked, answer = corpus.dialogues[0].turns
    question = PromptTurn("user", codes=builder.spoken.of(asked.utterances[0]).tolist())
    for reply in ("speech", "text"):
        turns = [PromptTurn("system", text=DRIVER_SYSTEM[reply]), question]
        rows = list(lm.generate(lm.prompt(turns, reply), greedy))
        assert rows[-1][0] in builder.ids.stops
        said = lm.read(rows)
        if reply == "speech":
            assert said.codes == builder.spoken.of(answer.utterances[0]).tolist()
        else:
            assert said.text == answer.text


def test_only_what_was_heard_is_misheard(builder: RowBuilder) -> None:
    """Simulated hearing errors never change a target, a text row or the end of speech; without them
    the batch is the example."""
    made = build_examples(builder, Tasks(), 30, "train")
    batches = batches_of(builder, made, 2048)
    wild = Mishearing(dropped=0.2, doubled=0.2, masked=0.3, random=0.3, masked_reply=0.0)
    chosen = np.arange(4)
    plain, noisy = batches.gather(chosen, None), batches.gather(chosen, wild)
    for index in range(4):
        for before, after in ((plain.speak, noisy.speak), (plain.write, noisy.write)):
            kept = [
                _of_example(wanted, index, batch)
                for wanted, batch in ((before, plain), (after, noisy))
            ]
            assert kept[0] == kept[1]
            assert kept[0] or before is plain.speak
    pad = builder.ids.modality_pad
    written = [batch.text[0][batch.text[0] != pad] for batch in (plain, noisy)]
    shortest = min(map(len, written)) - 40  # the last row is repeated as padding
    assert torch.equal(written[0][:shortest], written[1][:shortest])


def test_a_batch_has_any_version_of_what_was_heard(builder: RowBuilder) -> None:
    """Every batch samples versions of heard rows only; a test uses the recorded version."""
    spoken = builder.spoken
    made = build_examples(builder, Tasks(), 20, "train")
    other = (spoken.codes[0] + 1) % TOY.codes
    versions = torch.from_numpy(np.stack((other, other)))
    batches = Batches(made, versions, builder.ids, torch.device("cpu"), 2048, seed=0)
    chosen = np.arange(6)
    kind = torch.from_numpy(made.kind)
    plain, sampled = batches.gather(chosen, None), batches.gather(chosen, _QUIET)
    for index in chosen:
        count = int(made.count[index])
        heard = kind[made.first[index] : made.first[index] + count] == HEARD
        before, after = (batch.audio[index, :count] for batch in (plain, sampled))
        assert torch.equal(after[heard], (before[heard] + 1) % TOY.codes)
        assert torch.equal(after[~heard], before[~heard])


def test_losses_are_those_of_all_logits(builder: RowBuilder) -> None:
    """Heads at the target rows give the loss of heads at all rows, padding included."""
    made = build_examples(builder, Tasks(), 30, "train")
    batch = batches_of(builder, made, 2048).next(Mishearing())
    model = fresh()
    meanings = fresh_meanings()
    found = losses(model, meanings, batch)
    with torch.no_grad():
        whole = model.logits(batch.text, batch.audio)
        trunk = model(batch.text, batch.audio).trunk.flatten(0, 1)
        predicted = meanings(trunk).unbind(1)

    def loss_of(logits: Tensor, *wanted: Wanted) -> Tensor:
        """Returns the loss over all rows of all heads: [n, rows, V]."""
        tables = torch.full((len(wanted), batch.text.numel()), IGNORED)
        for table, one in zip(tables, wanted, strict=True):
            counts = one.value != IGNORED
            table[one.place[counts]] = one.value[counts]
        return F.cross_entropy(logits.flatten(0, -2), tables.flatten(), ignore_index=IGNORED)

    torch.testing.assert_close(found.text, loss_of(whole.text, batch.write))
    torch.testing.assert_close(found.audio, loss_of(whole.audio, batch.speak))
    letters = [Wanted(batch.speak.place, each) for each in batch.meant.unbind(1)]
    meant = loss_of(torch.stack(predicted), *letters) + loss_of(predicted[0], batch.write)
    torch.testing.assert_close(found.meant, meant)


def test_compiled_layers_compute_the_same(builder: RowBuilder) -> None:
    """One compilation serves every layer and shape, with the losses and gradients of plain
    layers."""
    torch._dynamo.utils.counters.clear()
    # Traced and differentiated as on a GPU; only the last step, making kernels, is left out.
    layers = CompiledLayers(fresh(), torch.float32, backend="aot_eager", patience_s=300)
    layers.wait()
    assert layers.compiled
    made = build_examples(builder, Tasks(), 30, "train")
    for rows in (512, 1024, 3000):
        batch = batches_of(builder, made, rows).next(Mishearing())
        found: list[list[Tensor]] = []
        for how in (Computing(), Computing(run=layers)):
            model = fresh()
            made_of = losses(model, fresh_meanings(), batch, how)
            torch.autograd.backward(sum(made_of, torch.zeros(())))
            weights = [p.grad for p in model.parameters() if p.grad is not None]
            found.append([*(each.detach() for each in made_of), *weights])
        for plain, compiled in zip(*found, strict=True):
            torch.testing.assert_close(compiled, plain, atol=1e-5, rtol=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


def test_layers_that_compute_something_else_are_not_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A compilation with a wrong gradient is rejected before training."""

    def wrong(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        return lambda *given: tuple(1.5 * each for each in graph(*given))

    layers = CompiledLayers(fresh(), torch.float32, backend=wrong)
    layers.wait()
    assert not layers.compiled
    assert "wrong" in capsys.readouterr().out
    torch._dynamo.reset()


def test_a_compiler_that_fails_costs_only_speed(
    builder: RowBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing backend or an error during training prints a line, and training continues."""
    layers = CompiledLayers(fresh(), torch.float32, backend="none of these")
    layers.wait()
    assert not layers.compiled
    assert "failed" in capsys.readouterr().out

    calls = [0]

    def sometimes(layer: nn.Module, *given: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] > 7:
            raise RuntimeError("no kernel for this")
        return run_plain(layer, *given)

    layers._run = sometimes
    batches = batches_of(builder, build_examples(builder, Tasks(), 30, "train"), 512)
    curves = tmp_path / "lm.jsonl"
    train_lm(fresh(), batches, None, Budget(steps=6), LmTraining(), curves, layers)
    assert "given up: RuntimeError: no kernel for this" in capsys.readouterr().out
    assert '"step": 6' in curves.read_text()


def test_dropout_is_off_in_tests_and_on_in_training(builder: RowBuilder) -> None:
    """A pass is deterministic without dropout; with dropout passes vary around it."""
    batch = batches_of(builder, build_examples(builder, Tasks(), 8, "train"), 512).next(None)
    model = fresh()
    with torch.no_grad():
        certain = model(batch.text, batch.audio)[0]
        assert torch.equal(certain, model(batch.text, batch.audio)[0])
        sampled = [model(batch.text, batch.audio, Computing(dropout=0.2))[0] for _ in range(60)]
    assert not torch.allclose(sampled[0], sampled[1])
    one, mean = ((each - certain).norm() for each in (sampled[0], torch.stack(sampled).mean(0)))
    assert mean < 0.6 * one


def test_average_follows_the_last_steps() -> None:
    """The average starts as the first weights, forgets the start and lags behind the end."""
    model = fresh()
    average = Average(model)
    weight, mean = model.model.text_norm.weight, average.model.model.text_norm.weight
    for step in range(2001):
        with torch.no_grad():
            weight.fill_(float(step))
        average.follow(step)
        if step == 0:
            assert (mean == 0).all()
    assert (mean > 1700).all()
    assert (mean < 1999).all()


def test_many_words_do_not_crowd_out_the_rest() -> None:
    """A category of four dialogues is sampled a tenth as often as one of a hundred; in a test all
    dialogues are equally likely."""
    turns = [Turn("user", "a", [0]), Turn("assistant", "b", [1])]
    many = [Dialogue(n, "repeat" if n < 100 else "days", "train", turns) for n in range(104)]
    until = cumulative_shares(many, "train")
    assert 1 - until[99] == pytest.approx(1 / 10.5, rel=0.01)
    assert np.diff(until).min() > 0
    assert until[-1] == 1
    assert np.diff(cumulative_shares(many, "heldout")) == pytest.approx(1 / 104)


def test_shares_are_reported_by_task(builder: RowBuilder) -> None:
    """Shares and losses are reported by task and by held-out kind; the loss is that of training."""
    split: Split = "heldout"
    made = build_examples(builder, Tasks(), 40, split)
    shares = examined(fresh(), batches_of(builder, made, 2048))
    assert {f"exact {name}" for name in set(made.names)} <= set(shares)
    assert shares["exact"] == 0  # nothing was learned

    tasks = Tasks(1, 0, 0, 0, 0, 0, 0)
    train = build_examples(builder, tasks, 20, "train")
    batches = batches_of(builder, train, 512)
    model = fresh()
    train_lm(
        model, batches, None, Budget(steps=200), LmTraining(rate=8e-3, dropout=0), Path("/dev/null")
    )
    found = examined(model, batches)
    assert found["exact speech_speech"] == 1
    lost, count = 0.0, 0
    for _, batch in batches.all():
        text, audio, _ = losses(model, fresh_meanings(), batch)
        for loss, wanted in ((text, batch.write), (audio, batch.speak)):
            some = int((wanted.value != IGNORED).sum())
            lost, count = lost + float(loss.detach()) * some, count + some
    assert found["loss speech_speech"] == found["loss"] == pytest.approx(lost / count, rel=1e-4)


@pytest.fixture
def sets(builder: RowBuilder, folder: Path, tmp_path: Path) -> Sets:
    save_spoken(builder.spoken, tmp_path / "spoken.pt")
    return Sets(folder, tmp_path / "spoken.pt", builder.ids, examples=24, typed=10, seed=3)


def test_makers_make_what_would_be_made_here(sets: Sets, tmp_path: Path) -> None:
    """A process makes the sets of its numbers; the sets differ, and used ones are deleted."""
    feed = Feed(sets, tmp_path, torch.device("cpu"), 512, makers=1)
    try:
        feed.next(None)
        assert feed._batches is not None
        first = feed._batches.examples
        while (second := feed._newer()) is None:
            assert feed._makers[0].is_alive()
    finally:
        feed.close()
    here = Maker(sets)
    for number, found in enumerate((first, second)):
        wanted = here.make(number)
        assert np.array_equal(found.text, wanted.text)
        assert np.array_equal(found.code, wanted.code)
        assert found.names == wanted.names
    assert len(first.text) != len(second.text) or (first.text != second.text).any()
    assert not (tmp_path / "examples-0.pt").exists()


def test_training_does_not_need_its_makers(
    sets: Sets, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If every maker fails, the first set is made in the process itself, with the space of the next
    ones."""
    feed = Feed(sets, tmp_path, torch.device("cpu"), 512, makers=1)
    feed.close()
    assert feed.next(Mishearing()).text.numel()
    assert feed._batches is not None
    assert feed._batches._capacities is feed._capacities
    assert "made here" in capsys.readouterr().out
