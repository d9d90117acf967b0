"""Demo of Tower on one machine: ``make demo`` or ``python -m demo``."""
