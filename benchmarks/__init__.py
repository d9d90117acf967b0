"""Benchmarks of Tower, a direct connection and a Go program of the same structure, in interleaved runs.

``make bench``, or ``python -m benchmarks --help``.  The results are ratios: times depend on the machine and
its load, so no test asserts a time.
"""
