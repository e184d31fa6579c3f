"""Builds engine folders from published checkpoints, verifies them and loads them."""

from mosslive.build.builder import Built, Fp8Options, build_engine
from mosslive.build.fp8 import Keep
from mosslive.build.load import load_engine_folder, load_engine_weights
from mosslive.build.report import Fp8Report
from mosslive.build.verify import Verdict, check_probes, overall_precision, quick_check

__all__ = [
    "Built",
    "Fp8Options",
    "Fp8Report",
    "Keep",
    "Verdict",
    "build_engine",
    "check_probes",
    "load_engine_folder",
    "load_engine_weights",
    "overall_precision",
    "quick_check",
]
