"""Files that claim or hold too much: what decoding one of them may cost."""

import resource
import time

from mosslive.server.decode_limits import Refused
from mosslive.server.decode_process import decode


def check_bomb(data: bytes) -> None:
    """Decodes at most a minute of it, or refuses it, within 5 s of the processor and 200 MiB."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        wave, rate_hz = decode(data, 60.0)
        assert len(wave) <= 60 * rate_hz
    except Refused:
        pass
    assert time.process_time() - began < 5
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10  # from KiB
    assert grown < 200 << 20
