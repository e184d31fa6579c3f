"""Checks of `mosslive doctor` on the machine: GPU, memory, disk, port, sound card, bundled model.

Each check reads and changes nothing, except that the port is bound for a moment. PyTorch is
imported; no model is loaded.
"""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from mosslive.cli.doctor_check import Check
from mosslive.config import folders
from mosslive.config.folders import CACHE_VARIABLE, cache_folder
from mosslive.errors import MossliveError

_GB = 1e9
_MODEL_GB = 20  # of MOSS-Speech, language model and codec, in bfloat16
_LEAST_GB = 4  # of free memory, for the bundled model and its server
_SMI_S = 2.0


def machine_checks(port: int) -> list[Check]:
    checks: dict[str, Callable[[], list[Check]]] = {
        "device": _device,
        "memory": _memory,
        "disk": _disk,
        "port": lambda: [_port(port)],
        "sound": _sound,
        "bundled model": lambda: [_bundled()],
    }
    found = []
    for name, check in checks.items():
        try:
            found += check()
        except Exception as error:  # a broken part must not hide the results of the others
            found.append(Check(name, "error", f"the check failed: {error!r}"))
    return found


def _device() -> list[Check]:
    try:
        import torch
    except ImportError as error:
        return [Check("device", "error", f"PyTorch does not load: {error}", "pip install torch")]
    if not torch.cuda.is_available():
        detail = f"cpu; PyTorch {torch.__version__} finds no GPU"
        if not _nvidia_driver():
            return [Check("device", "ok", detail)]
        build = "a CPU build" if torch.version.cuda is None else f"built for {torch.version.cuda}"
        fix = "install a CUDA build of PyTorch for your driver: https://pytorch.org/get-started"
        return [Check("device", "warning", f"{detail}, but there is one: it is {build}", fix)]
    checks = []
    driver = _nvidia_driver() or "unknown"
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        detail = (
            f"cuda:{index}, {seen.name}, {free / _GB:.0f} of {total / _GB:.0f} GB free, driver "
            f"{driver}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}"
        )
        checks.append(Check("device", "ok", detail))
    return [*checks, _triton()]


def _nvidia_driver() -> str | None:
    """The version of the driver; None: there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


def _triton() -> Check:
    """On a GPU the kernels are compiled at first use, which needs a C compiler and headers."""
    if find_spec("triton") is None:
        return Check("triton", "error", "not installed", "pip install triton")
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        return Check("triton", "error", "finds no C compiler", "apt install gcc libc6-dev")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return Check("triton", "error", f"{header} is missing", "apt install python3-dev")
    import triton

    return Check("triton", "ok", f"{triton.__version__}, with a C compiler and Python's headers")


def _memory() -> list[Check]:
    names = os.sysconf_names
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GB
    # Available: free, and what the kernel gives back. Systems without /proc state the free part.
    available = total
    if "SC_AVPHYS_PAGES" in names:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GB
    facts = Path("/proc/meminfo")
    if facts.is_file():
        for line in facts.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024 / _GB
    detail = f"{available:.1f} of {total:.1f} GB available, {_cores()} cores"
    if available < _LEAST_GB:
        fix = f"close other programs: the server needs about {_LEAST_GB} GB"
        return [Check("memory", "warning", detail, fix)]
    return [Check("memory", "ok", detail)]


def _cores() -> int:
    """As `talk.cpu_threads.usable_cores`, whose package takes seconds to import."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _disk() -> list[Check]:
    """Of the folders where models and compiled kernels are stored."""
    home = Path.home()
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HF_HOME")
    chosen = {
        "model cache": Path(hub or home / ".cache" / "huggingface"),
        "engine cache": cache_folder(),
        "kernel cache": Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton"),
    }
    checks = []
    for name, folder in chosen.items():
        existing = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        free = shutil.disk_usage(existing).free / _GB
        detail = f"{free:.0f} GB free at {folder}"
        if not os.access(existing, os.W_OK):
            fix = f"make {existing} writable, or set HF_HOME, {CACHE_VARIABLE} or TRITON_CACHE_DIR"
            checks.append(Check(name, "warning", f"{existing} is not writable", fix))
        elif name == "model cache" and free < _MODEL_GB:
            fix = f"free some space, or set HF_HOME: MOSS-Speech needs about {_MODEL_GB} GB"
            checks.append(Check(name, "warning", detail, fix))
        else:
            checks.append(Check(name, "ok", detail))
    return checks


def _port(port: int) -> Check:
    from mosslive.server.address import check_address

    try:
        check_address("127.0.0.1", port)
    except MossliveError as error:
        return Check("port", "warning", str(error), "mosslive serve --port 0 picks a free port")
    return Check("port", "ok", f"{port} is free")


def _sound() -> list[Check]:
    from mosslive.cli.sound_card import NoSoundCard, sounddevice

    try:
        device = sounddevice()
    except NoSoundCard as error:
        detail, _, fix = str(error).rpartition(": ")
        return [Check("sound card", "warning", detail, fix)]
    checks = []
    for name, kind in (("microphone", "input"), ("loudspeaker", "output")):
        try:
            found = device.query_devices(kind=kind)["name"]
            checks.append(Check(name, "ok", found))
        except (device.PortAudioError, ValueError):
            fix = "connect one, or use audio files and the web page of mosslive serve"
            checks.append(Check(name, "warning", "none found", fix))
    return checks


def _bundled() -> Check:
    from mosslive.checkpoint import take_inventory

    home = folders.shipped_folder()
    if not folders.has_bundled():
        fix = "give your own model with --model"
        return Check("bundled model", "warning", f"{home} has no weights", fix)
    fix = "pip install --force-reinstall --no-deps mosslive"
    try:
        inventory = take_inventory(home / folders.LM_FOLDER)
        inventory.require_valid()
    except MossliveError as error:
        return Check("bundled model", "error", str(error), fix)
    return Check("bundled model", "ok", f"{len(inventory.entries)} tensors, {home}")
