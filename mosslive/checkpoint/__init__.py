"""Reads and writes model, codec and engine folders strictly."""

from mosslive.checkpoint.faults import CheckpointError
from mosslive.checkpoint.inventory import Inventory, take_inventory
from mosslive.checkpoint.layout import model_folder
from mosslive.checkpoint.reader import Checkpoint, scan_values
from mosslive.checkpoint.synth import SIZES, SizeName, synthesise

__all__ = [
    "SIZES",
    "Checkpoint",
    "CheckpointError",
    "Inventory",
    "SizeName",
    "model_folder",
    "scan_values",
    "synthesise",
    "take_inventory",
]
