"""The runner for GPUs: prefill passes run as CUDA graphs if a recorded one is large enough."""

from mosslive.cache import PagePool
from mosslive.engine.batch import Part
from mosslive.engine.pass_graphs import PassGraphs
from mosslive.engine.runner import Runner, TrunkPass, Work
from mosslive.kernels.graph import GraphRecorder
from mosslive.model import Decoder
from mosslive.rows import Row


class GraphRunner(Runner):
    def __init__(self, decoder: Decoder, pool: PagePool, chunk: int) -> None:
        super().__init__(decoder, pool, chunk)
        longest = min(decoder.config.max_position_embeddings, pool.total * pool.page_size)
        self.pages_per_request = -(-longest // pool.page_size)
        self._graphs = PassGraphs(decoder, self.storage, chunk, self.pages_per_request)

    def record(self, recorder: GraphRecorder) -> None:
        """Captures the graphs. Before this, passes run as in `Runner`."""
        self._graphs.record(recorder)

    def _run_trunk(self, group: list[Work], rows: list[Row], parts: list[Part]) -> TrunkPass | None:
        bucket = self._graphs.bucket(len(rows), len(parts))
        if bucket is None:
            return super()._run_trunk(group, rows, parts)
        self._graphs.run(bucket, rows, parts)
        return None
