"""The files in `deploy/` name only settings and metrics that exist, and systemd can read the
unit."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mosslive.config.folders import CACHE_VARIABLE
from mosslive.server.capacity import STAGES
from mosslive.server.environment import PREFIX
from mosslive.server.settings import ServerSettings
from mosslive.server.step_times import StepTimes
from tests.server.rig import Parts, run, serving

ROOT = Path(__file__).parents[2]


def test_dashboard_and_docs_name_the_metrics(parts: Parts) -> None:
    """The Grafana dashboard and the docs name only metrics of the server, and the docs name all of
    them."""
    dashboard = (ROOT / "deploy" / "grafana.json").read_text()
    json.loads(dashboard)
    named = set(re.findall(r"mosslive_[a-z_]+", dashboard))
    documented = set(re.findall(r"`(mosslive_[a-z_]+)", (ROOT / "docs" / "server.md").read_text()))
    named |= documented

    async def test() -> None:
        fast = {stage: StepTimes({1: 0.001}) for stage in STAGES}  # of a server that was measured
        async with serving(parts, times=fast) as served:
            page = served.server_state.metrics.page().decode()
            families = set(re.findall(r"^# TYPE (\w+)", page, re.M)) | {"mosslive_gpu_memory_bytes"}
            ends = ("", "_total", "_bucket")
            known = families | {f"{name}{end}" for name in families for end in ends}
            assert named <= known, named - known
            # Counters and histograms add a series with their creation time.
            ours = {name for name in families if not name.endswith("_created")}
            assert ours <= documented | {name.removesuffix("_total") for name in documented}

    run(test())


@pytest.mark.parametrize("name", ["Dockerfile", "mosslive.service"])
def test_variables_are_settings(name: str) -> None:
    """Every MOSSLIVE_ variable in the deployment files is a setting; the server refuses unknown
    ones."""
    known = {f"{PREFIX}{one.name.upper()}" for one in dataclasses.fields(ServerSettings)}
    named = set(re.findall(r"MOSSLIVE_[A-Z_]+", (ROOT / "deploy" / name).read_text()))
    assert named
    assert named <= known | {CACHE_VARIABLE}


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """The unit file has no key or value that systemd does not know."""
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed")
    unit = (ROOT / "deploy" / "mosslive.service").read_text()
    assert "ExecStart=/opt/mosslive/bin/mosslive serve" in unit
    there = tmp_path / "mosslive.service"
    there.write_text(unit.replace("/opt/mosslive/bin/mosslive", str(shutil.which("true"))))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(there)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mosslive.service" not in done.stderr
