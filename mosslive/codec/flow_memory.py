"""Memory of live replies: the shapes of the flow's pages, and what a second of speech takes.

Pure functions of the networks' sizes: allocates nothing. `flow_step` allocates by the same shapes.
"""

import torch

from mosslive.codec.conformer import FRAMES_PER_TOKEN
from mosslive.codec.flow import Flow
from mosslive.codec.flow_pages import PageForm
from mosslive.config import SECONDS_PER_CODE


def page_forms(flow: Flow, chunk: int, dtype: torch.dtype) -> tuple[PageForm, PageForm, PageForm]:
    """Pages of a chunk: of the conformer at 12.5 and at 50 steps a second, and of the estimator,
    whose products and keys have `dtype`."""
    steps, frames, exact = flow.settings.steps, FRAMES_PER_TOKEN * chunk, torch.float32
    conformer, estimator = flow.dims.conformer, flow.estimator
    heads, width = conformer.heads, conformer.width // conformer.heads
    token_tail, frame_tail = flow.encoder.tail_values()
    return (
        PageForm(conformer.layers, 1, heads, chunk, width, token_tail, exact),
        PageForm(conformer.up_layers, 1, heads, frames, width, frame_tail, exact),
        PageForm(
            steps * estimator.layers,
            flow.settings.halves,
            estimator.dims.heads,
            frames,
            estimator.dims.head_dim,
            steps * estimator.tail_values(),
            dtype,
        ),
    )


def reply_second_bytes(flow: Flow, chunk: int, dtype: torch.dtype) -> int:
    """Memory of one second of replies or prompts in the pool."""
    pages = sum(form.page_bytes for form in page_forms(flow, chunk, dtype))
    return round(pages / (chunk * SECONDS_PER_CODE))
