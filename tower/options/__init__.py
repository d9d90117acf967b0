"""Command-line options that `TOWER_` variables can set too, their values, and log levels.

Start with `tower.options.base`; `tower.options.values` reads durations, sizes and addresses.  May import
`tower.net` and below.
"""
