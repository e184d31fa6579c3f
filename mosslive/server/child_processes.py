"""The environment of processes that this server starts: fronts and decoders of audio files.

Keys and the GPU stay in the server's own process. A child's libraries get one thread. Knows nothing
of what a child does.
"""

import os
import re
import sys

from mosslive.server.environment import PREFIX

# Names under which people keep keys for other services, such as HF_TOKEN.
_SECRET = re.compile(r".*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL).*|.*_KEYS?")


def child_environment() -> dict[str, str]:
    """Of `python -m mosslive...`, with the modules of this process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) and not _SECRET.fullmatch(name.upper())
    }
    return kept | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
