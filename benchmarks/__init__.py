"""Tower measured beside a direct connection and beside a Go program of the same structure, all at once.

``make bench``, or ``python -m benchmarks --help``.  What counts is ratios: times depend on the machine and on
what else it does, so none is ever asserted.
"""
