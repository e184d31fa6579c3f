"""The language model as a library: load, prompt, generate. The plain definition, on any device.

Not thread-safe. One thread may have any number of open generations.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mosslive.cache import PagePool, PageStorage, PageTable, row_bytes
from mosslive.config import ModelConfig, Sampling, refuse
from mosslive.engine.batch import Part, make_batch
from mosslive.engine.generate import generate_rows
from mosslive.engine.read import read_decoder, read_device
from mosslive.engine.request import Request, Stop
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper, Stepper, Tails
from mosslive.rows import (
    CHANNELS,
    END_OF_TEXT,
    Fallback,
    Output,
    PromptFormat,
    ReplyKind,
    Row,
    RowIds,
    TextStream,
    TextTokenizer,
    Turn,
    checked_rows,
    read_rows,
    read_rows_as_processor,
)

_DEFAULT_KV_ROWS = 8192
_DEFAULT_PAGE_SIZE = 16


def load_lm(
    path: str | Path,
    device: str = "cpu",
    dtype: str = "float32",
    *,
    page_size: int = _DEFAULT_PAGE_SIZE,
    kv_rows: int | None = None,
    chunk: int = 512,
    progress: Callable[[int], None] = lambda _: None,
) -> "LanguageModel":
    """Reads a model folder in the published layout.

    `dtype`: of the arithmetic, "float32" or "bfloat16". `kv_rows`: how many rows all open
    generations together may hold (default: the context, at most 8192). `page_size`: rows per page.
    `chunk`: rows per pass of a prefill. `progress` is called with the number of bytes checked.
    """
    for name, value in (("page_size", page_size), ("kv_rows", kv_rows), ("chunk", chunk)):
        if value is not None and (type(value) is not int or value < 1):
            raise refuse(name, value, "an integer, 1 or more")
    decoder, tokenizer = read_decoder(path, read_device(device), dtype, progress)
    config = decoder.config
    rows = kv_rows or min(config.max_position_embeddings, _DEFAULT_KV_ROWS)
    try:
        runner = Runner(decoder, PagePool(-(-rows // page_size), page_size), chunk)
    except (RuntimeError, MemoryError):  # PyTorch and Python run out of memory with these
        size = rows * row_bytes(config, decoder.dtype) / 1e9
        raise refuse(
            "kv_rows", rows, f"fewer; {size:.1f} GB of pages do not fit into memory"
        ) from None
    return LanguageModel(runner, tokenizer)


class Generation:
    """An iterator over the rows of one reply. It frees its pages at the end."""

    def __init__(self, stepper: Stepper, request: Request) -> None:
        self._request = request
        self._rows = generate_rows(stepper, [request])

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Row:
        for _, row in self._rows:
            return row
        if self._request.refusal:
            raise self._request.refusal
        raise StopIteration

    @property
    def rows(self) -> list[Row]:
        """Rows generated so far."""
        return self._request.new_rows

    @property
    def stop(self) -> Stop | None:
        """Why it ended: "stop" (the model ended its turn), "length" (max_new), "context" (no more
        positions), "pages" (pool exhausted); None before that."""
        return self._request.stop

    def close(self) -> None:
        """Ends it early and frees its pages."""
        self._rows.close()


class LanguageModel:
    def __init__(self, runner: Runner, tokenizer: TextTokenizer) -> None:
        self.config: ModelConfig = runner.decoder.config
        self.tokenizer = tokenizer
        self.ids = RowIds.from_config(self.config, tokenizer.id_of(END_OF_TEXT))
        self.format = PromptFormat(tokenizer, self.ids)
        self.runner = runner

    @property
    def pool(self) -> PagePool:
        return self.runner.pool

    def forward(self, rows: Any) -> tuple[Tensor, Tensor]:
        """rows int64 [n, 2] → text logits [n, V_text], audio logits [n, V_audio], float32. The
        whole sequence at once, both tails on every row, nothing cached."""
        checked = checked_rows(rows, self.ids, self.config.max_position_embeddings)
        decoder, count = self.runner.decoder, len(checked)
        # Storage without a pool: one page, as long as the sequence.
        storage = PageStorage(self.config, 0, count, decoder.device, decoder.dtype)
        order = list(range(count))
        batch = make_batch([Part([0], order, order)], count, decoder)
        texts, audios = torch.tensor(checked, device=decoder.device).T.contiguous()
        hidden = decoder.trunk(texts, audios, storage.trunk, batch)
        text, audio = (
            decoder.logits(tail, decoder.tail(tail, hidden, storage.tails[tail], batch)).float()
            for tail in CHANNELS
        )
        return text, audio

    def prompt(
        self,
        turns: Sequence[Turn],
        reply: ReplyKind = "speech",
        *,
        fallback: Fallback = "none",
        control: bool = False,
    ) -> Tensor:
        """Turns and the reply prefix as rows, int64 [n, 2]. Options: see `PromptFormat.prompt`."""
        return torch.tensor(self.format.prompt(turns, reply, fallback, control), dtype=torch.int64)

    def generate(
        self, rows: Any, sampling: Sampling | None = None, *, tails: Tails = "lazy"
    ) -> Generation:
        """Generates rows after `rows`, one at a time. Raises `RowsError` at once for bad rows; the
        iterator may raise `OutOfPages` at any row."""
        return Generation(PlainStepper(self.runner, tails), self._request(rows, sampling))

    def generate_many(
        self, requests: Sequence[tuple[Any, Sampling | None]], *, tails: Tails = "lazy"
    ) -> tuple[list[Request], Generator[tuple[int, Row], None, None]]:
        """Runs several requests in one batch. Returns the requests, whose `stop` says why they
        ended, and an iterator over (request number, row). Each request gets the rows that it would
        get alone. Non-finite logits mean broken weights and end the whole batch."""
        stepper = PlainStepper(self.runner, tails)
        made = [self._request(rows, sampling) for rows, sampling in requests]
        return made, generate_rows(stepper, made)

    def read(self, rows: Any, rule: str = "robust") -> Output:
        """Returns text and codes of generated rows. Rule "processor" is that of the published
        processor, for comparisons: it always drops the last row."""
        rules = {"robust": read_rows, "processor": read_rows_as_processor}
        if rule not in rules:
            raise refuse("rule", rule, ", ".join(rules))
        checked = checked_rows(rows, self.ids, len(rows)) if len(rows) else []
        return rules[rule](checked, self.tokenizer, self.ids)

    def text_stream(self) -> TextStream:
        """Returns a stream that decodes text while rows arrive, in whole characters."""
        return TextStream(self.tokenizer, self.ids)

    def _request(self, rows: Any, sampling: Sampling | None) -> Request:
        if sampling is not None and not isinstance(sampling, Sampling):
            raise refuse("sampling", sampling, "a mosslive.Sampling, or None")
        context_rows = self.config.max_position_embeddings
        checked = checked_rows(rows, self.ids, context_rows - 1)  # one more must fit
        table = PageTable(self.pool)
        return Request(checked, sampling or Sampling(), self.ids, table, context_rows)
