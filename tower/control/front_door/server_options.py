"""Options of ``tower-proxy`` for its servers and their end, with kube-apiserver's names and defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from tower.control.front_door.serving_options import ServingOptions
from tower.options.parameters import Parameter, flag, list_parameter, parameter
from tower.options.values import parse_duration, read_count, read_duration, unless_empty
from tower.web.gateway.cross_origin import CrossOrigin, origin_pattern

_ORIGINS_CURE = r"give patterns such as '^https://example\.com(:|$)' or '//example\.com(:|$)'"
_NEGATIVE = "can not be negative value"


def _read_timeout(text: str) -> float:
    if text.startswith("-"):
        raise ValueError(f"{_NEGATIVE}: give a duration such as 1m")
    return read_duration(text)


def _read_delay(text: str) -> float:
    if text.startswith("-"):
        raise ValueError(f"{_NEGATIVE}: give a duration such as 10s, or 0s")
    return parse_duration(text)


def _read_seconds(text: str) -> float:
    if text.startswith("-"):
        raise ValueError(f"{_NEGATIVE}: give a number of seconds such as 1800")
    seconds = read_count(text)
    if not seconds:
        raise ValueError("ends each watch at once: give a number of seconds such as 1800")
    return float(seconds)


def _read_origins(text: str) -> CrossOrigin:
    return CrossOrigin([_pattern(each) for each in text.split(",")])


def _pattern(text: str) -> re.Pattern[bytes]:
    """Return a pattern of origins; it must be anchored, as in kube-apiserver."""
    if not text:
        raise ValueError(f"has an empty value: {_ORIGINS_CURE}")
    problem = "regular expression does not pin to start/end of host in the origin header"
    try:
        pattern = origin_pattern(text.encode())
        host = (text.partition("://")[2] or text).replace("(?:", "")
        if ("^" in text or "//" in text) and ("$" in host or ":" in host):
            return pattern
    except re.error as e:
        problem = f"error parsing regexp: {e}"
    raise ValueError(f"has an invalid regular expression: {problem}: {_ORIGINS_CURE}")


class ServerOptions(ServingOptions):
    """Options of the servers."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "request-timeout",
            "1m",
            "Maximum time until the response to a request begins; no limit for watches and streams.",
            _read_timeout,
        ),
        parameter(
            "min-request-timeout",
            "1800",
            "Minimum duration of a watch of Tower's API without timeoutSeconds, in seconds; the maximum is "
            "twice as long.",
            _read_seconds,
        ),
        list_parameter(
            "cors-allowed-origins",
            None,
            "Comma-separated regular expressions of origins whose pages may use the front door and the "
            "clusters' ports from a browser; anchored, such as ^https://example\\.com(:|$).",
            unless_empty(_read_origins),
        ),
        parameter(
            "shutdown-delay-duration",
            "0s",
            "Time for which a stopping proxy still serves while /readyz fails, so that load balancers stop "
            "sending it requests.",
            _read_delay,
        ),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("profiling", "Serve profiles of the proxy to administrators, below /debug/pprof/."),
    ]
