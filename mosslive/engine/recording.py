"""Recording CUDA graphs that share one pool of memory. Largest first, so that the rest fits in."""

from collections.abc import Callable

import torch

_WARM_UP = 2  # kernels are compiled and libraries choose their algorithms before recording


class Recorder:
    """`progress` is told how many graphs are done."""

    def __init__(
        self, device: torch.device, progress: Callable[[int], None] = lambda done: None
    ) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._progress, self._done = progress, 0

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Runs `work` a few times, then records it. It must read and write tensors that stay."""
        with torch.inference_mode():
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                for _ in range(_WARM_UP):
                    work()
            torch.cuda.current_stream().wait_stream(self._side)
            graph = torch.cuda.CUDAGraph()
            # Other threads (a codec's) may use the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                work()
        self._done += 1
        self._progress(self._done)
        return graph
