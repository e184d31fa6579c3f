"""BigVGAN for callers: the network with its streaming form, and how to load a published folder."""

from pathlib import Path

from mosslive.checkpoint.bigvgan import read_bigvgan
from mosslive.codec.bigvgan.network import BigVganNetwork
from mosslive.codec.bigvgan.stream import BigVganStream
from mosslive.codec.convolution import compute_in
from mosslive.codec.device import COMPUTE, check_device
from mosslive.config import refuse


class BigVgan(BigVganNetwork):
    """Call it with a whole mel, or open a stream."""

    def stream(self, look_ahead_frames: int | None = None) -> BigVganStream:
        """A waveform that follows its mel. None waits for every frame that a sample depends on."""
        return BigVganStream(self, look_ahead_frames)


def load_bigvgan(path: str | Path, device: str = "cpu", dtype: str = "float32") -> BigVgan:
    """Reads a published BigVGAN folder. `dtype`: of convolutions and of the values stored between
    them: "float32", "bfloat16" or "float16"; snakes always compute in float32."""
    if dtype not in COMPUTE:
        raise refuse("dtype", dtype, ", ".join(COMPUTE))
    place = check_device(device)
    config, tensors = read_bigvgan(path)
    network = BigVgan.from_tensors(tensors, config).to(place)
    compute_in(network, COMPUTE[dtype])
    return network
