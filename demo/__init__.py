"""``python -m demo``: the main job on one machine, started by ``make demo``."""
