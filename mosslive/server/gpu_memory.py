"""Reads the GPU's memory, limits this process to a part of it, and sizes the pools.

`memory_plan` decides; this module gives it numbers and applies the result. Used once, on the thread
that loads.
"""

import logging
from pathlib import Path

import torch

from mosslive.codec import Codec
from mosslive.config import refuse
from mosslive.engine.footprint import footprint
from mosslive.server.limits import least_rows
from mosslive.server.memory_plan import MemoryPlan, Needs, plan_memory, reply_seconds
from mosslive.server.settings import ServerSettings

_GIB = 1 << 30
# The CUDA context, loaded kernels and recorded graphs, which PyTorch's allocator does not count.
CONTEXT_BYTES = 3 * _GIB // 2
_log = logging.getLogger("mosslive.server")


def share_memory(
    settings: ServerSettings, model: Path, codec: Codec | None, longest_s: float, rows: int
) -> MemoryPlan:
    """Divides the GPU's memory and sizes the codec's pool; the engine's is up to the caller.
    `codec`: None without speech. `longest_s`: of a reply; 0: no spoken replies. `rows`: see
    `goal_rows`."""
    lm = footprint(model, settings.dtype or "bfloat16")
    speaks = codec is not None and longest_s > 0
    longest_s = settings.max_reply_s or longest_s
    needs = Needs(
        sessions=settings.max_sessions,
        lm_weights=lm.weight_bytes,
        hearing=codec.hearing_bytes if codec else 0,
        row_bytes=lm.row_bytes,
        rows=rows,
        least_rows=min(rows, least_rows()),
        second_bytes=codec.second_bytes() if codec and speaks else 0,
        reply_s=settings.reply_pool_s or reply_seconds(settings.max_sessions, longest_s),
        chosen=settings.reply_pool_s is not None,
    )
    plan = plan_memory(_available_bytes(settings.device, settings.gpu_memory_gib), needs)
    _log.info("memory", extra=plan.document())
    if codec and speaks:
        codec.size_pool(plan.reply_s)
        if plan.reply_s < longest_s:
            _log.warning(
                "the pool holds %.0f s of replies and a reply may have %.0f s; set --reply-pool-s "
                "or --max-reply-s",
                *(plan.reply_s, longest_s),
            )
    return plan


def _available_bytes(device: str, cap_gib: float | None) -> int:
    """Bytes that this process can still allocate. `cap_gib`: limits the whole process from now on,
    the context included."""
    free, total = torch.cuda.mem_get_info(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    allowed = free
    if cap_gib is not None:
        cap = int(cap_gib * _GIB) - CONTEXT_BYTES
        if not reserved < cap <= total:
            least = (reserved + CONTEXT_BYTES) / _GIB
            raise refuse("gpu_memory_gib", cap_gib, f"{least:.1f} to {total / _GIB:.1f}")
        torch.cuda.set_per_process_memory_fraction(cap / total, torch.device(device))
        allowed = min(free, cap - reserved)
    return int(allowed + reserved - allocated)
