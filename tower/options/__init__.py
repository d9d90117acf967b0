"""Command-line options that `TOWER_` variables can set too, their values, and log levels.

Start with `tower.options.base`; `tower.options.values` reads durations, sizes and addresses.  May import
`tower.net` and below.
"""

from __future__ import annotations

from tower.options.base import (
    ALLOW_DUMPS,
    EnvironmentOptions,
    OptionError,
    OptionErrors,
    Parameter,
    flag,
    one_line,
    one_line_errors,
    parameter,
    public_host,
    secret,
)
from tower.options.values import (
    read_address,
    read_count,
    read_duration,
    read_file,
    read_host,
    read_port,
    read_port_range,
    read_size,
)

__all__ = [
    "ALLOW_DUMPS",
    "EnvironmentOptions",
    "OptionError",
    "OptionErrors",
    "Parameter",
    "flag",
    "one_line",
    "one_line_errors",
    "parameter",
    "public_host",
    "read_address",
    "read_count",
    "read_duration",
    "read_file",
    "read_host",
    "read_port",
    "read_port_range",
    "read_size",
    "secret",
]
