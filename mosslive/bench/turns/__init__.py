"""Turn detection on recordings whose pauses and ends are known."""
