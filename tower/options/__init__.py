"""Command-line options that `TOWER_` variables can set too, their values, and log levels.

Start with `tower.options.base`; `tower.options.parameters` has the entries of options,
`tower.options.command_line` collects the errors of a command line, `tower.options.errors` has the errors and
their form at the end of a program, and `tower.options.values` reads durations, sizes and addresses.
May import `tower.net` and below.
"""
