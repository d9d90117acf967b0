"""Readers of option values: durations, sizes, ports, addresses, files.

Each returns the value, or raises `ValueError` with the problem and the cure; `tower.options.parameters`
adds the option's name.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

#: Largest file that holds a secret, B.
SECRET_FILE_LIMIT = 64 * 1024

#: Longest duration, s: a hundred years, so that every sum of times stays a date.
LONGEST = 100 * 365 * 86400.0

#: Smallest memory budget, B.
LEAST_BUDGET = 1 << 20

_DURATION_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
# Unambiguous, so that matching many digits without a unit does not take quadratic time.
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)

#: Longest text of a duration, characters.
_DURATION_LIMIT = 256

# Go's strconv.ParseBool.
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True)
_BOOLEANS |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False)

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "ki": 2**10,
    "kib": 2**10,
    "mi": 2**20,
    "mib": 2**20,
    "gi": 2**30,
    "gib": 2**30,
}
_SIZE = re.compile(r"([0-9]{1,18})\s*([A-Za-z]{0,3})", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_HOST = re.compile(
    r"(?=.{1,253}\.?$)[A-Za-z0-9_]([-A-Za-z0-9_]{0,62})(\.[A-Za-z0-9_][-A-Za-z0-9_]{0,62})*\.?"
)


def parse_duration(text: str) -> float:
    """Return a duration in Go's syntax plus days (``1h30m``, ``500ms``, ``1d``), s.

    :raise ValueError: *text* is not a duration, negative, or longer than `LONGEST`.
    """
    if text == "0":
        return 0.0
    if len(text) > _DURATION_LIMIT:
        raise ValueError(
            f"is not a duration: {len(text)} characters are too many; give a duration such as 10s or 1h30m"
        )
    total, end = Decimal(0), 0
    while part := _DURATION_PART.match(text, end):
        total += Decimal(part[1]) * _DURATION_UNITS[part[2]]
        end = part.end()
    if not text or end != len(text) or not text.isprintable():
        raise ValueError("is not a duration: give numbers with units, such as 10s, 1h30m, 500ms or 1d")
    if total > Decimal(LONGEST):
        raise ValueError("is too long: the limit is 36500d")
    return float(total)


def format_duration(seconds: float) -> str:
    """Return *seconds* as `parse_duration` reads it, such as ``1h30m``; down to milliseconds."""
    left = round(seconds * 1000)
    sign, left = ("-", -left) if left < 0 else ("", left)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts) if parts else "0s"


def read_duration(text: str) -> float:
    """Return a duration above 0, s."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("must be more than 0, such as 10s")
    return seconds


def read_size(text: str) -> int:
    """Return a size, such as ``32MiB`` or ``1000000``, B."""
    match = _SIZE.fullmatch(text)
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError("is not a size: give a number and KiB, MiB or GiB, such as 32MiB")
    if int(match[1]) == 0:
        raise ValueError("must be more than 0, such as 32MiB")
    return int(match[1]) * unit


def read_budget(text: str) -> int:
    """Return a size of at least `LEAST_BUDGET`, B: a number without unit is bytes."""
    size = read_size(text)
    if size < LEAST_BUDGET:
        raise ValueError(f"is {size} B, and the minimum is 1MiB: give a unit, such as 32MiB")
    return size


def read_count(text: str) -> int:
    """Return a whole number, 0 or more."""
    if text.startswith("-") and _DIGITS.fullmatch(text[1:]):
        raise ValueError("can not be negative value: give 0 or more")
    if not _DIGITS.fullmatch(text):
        raise ValueError("is not a whole number: give 0 or more")
    return int(text)


def read_port(text: str) -> int:
    """Return a TCP port."""
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise ValueError("is not a port: give a number from 1 to 65535")
    return int(text)


def read_optional_port(text: str) -> int | None:
    """Return a port, or None for ``none``."""
    if text == "none":
        return None
    try:
        return read_port(text)
    except ValueError as e:
        raise ValueError(f"{e}, or none") from None


def read_port_range(text: str) -> range | None:
    """Return a range of ports such as ``6000-7000``, both ends included; None for ``none``."""
    if text == "none":
        return None
    first, dash, last = text.partition("-")
    try:
        ports = range(read_port(first), read_port(last if dash else first) + 1)
    except ValueError:
        ports = range(0)
    if not ports:
        raise ValueError("is not a port range: give the first and the last port, such as 6000-7000, or none")
    return ports


def unless_empty(read: Callable[[str], object], default: object = None) -> Callable[[str], object]:
    """Return *read* for an option whose empty value is its default, as templates of deployments expect."""
    return lambda text: read(text) if text else default


def read_boolean(text: str) -> bool:
    """Return a boolean in a form that Go's flags accept."""
    if text not in _BOOLEANS:
        raise ValueError("is not a boolean: give true or false")
    return _BOOLEANS[text]


def read_public_host(text: str) -> str:
    """Return a host without the dot of absolute DNS names, which certificates and URLs do not have."""
    return read_host(text).removesuffix(".")


def read_host(text: str) -> str:
    """Return a DNS name or an IP address; brackets around an IPv6 address are removed."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if _HOST.fullmatch(text) and not re.fullmatch(r"[0-9.]+", text):
            return text
    raise ValueError("is not a host: give a name such as tower.example.com or an IP address, without port")


def read_ip_address(text: str) -> str:
    """Return an IP address of one machine."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'failed to parse IP: "{text}": give an address such as 192.0.2.10') from None
    if address.is_unspecified:
        raise ValueError("is not the address of a machine: give one such as 192.0.2.10")
    return str(address)


def read_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address needs brackets."""
    host, colon, port = text.rpartition(":")
    try:
        if colon and (host.startswith("[") or ":" not in host):
            return read_host(host), read_port(port)
    except ValueError:
        pass
    raise ValueError("is not an address: give host:port, such as db.example.com:5432 or [::1]:5432")


def read_path(text: str) -> Path | None:
    """Return a path; None if it is empty, as for an option of kube-apiserver that is not set."""
    return Path(text) if text else None


def read_file(text: str) -> Path:
    """Return the path of a readable file."""
    path = Path(text)
    try:
        with path.open("rb"):
            return path
    except OSError as e:
        raise ValueError(f"cannot be read ({e.strerror}): name a readable file") from e


class FileSecret(str):
    """A secret that was read from a file.

    :ivar path: of the file; empty: it was standard input.
    """

    path: str = ""


def read_secret_file(text: str) -> FileSecret:
    """Return the secret in a file, without surrounding whitespace.

    ``-`` is standard input, which may be empty: a restarted program has read it before.
    """
    try:
        data = _read_input() if text == "-" else _read_some(text)
        secret = data.decode().strip()
    except OSError as e:
        raise ValueError(f"cannot be read ({e.strerror}): name a readable file") from e
    except UnicodeDecodeError:
        raise ValueError("is not text: name a file with only the secret in it") from None
    if (not secret and text != "-") or len(data) > SECRET_FILE_LIMIT:
        raise ValueError("is empty or too large: name a file with only the secret in it")
    found = FileSecret(secret)
    found.path = "" if text == "-" else text
    return found


def _read_some(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(SECRET_FILE_LIMIT + 1)


def _read_input() -> bytes:
    """Return standard input, up to the limit and a byte; empty if it is closed."""
    if sys.stdin is None:  # another file may have its descriptor by now
        return b""
    if sys.stdin.isatty():
        raise ValueError("is a terminal: pipe the secret in, as with 'printf %s SECRET |', or name a file")
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file:
        data = b""
        while len(data) <= SECRET_FILE_LIMIT and (part := file.read(SECRET_FILE_LIMIT + 1)):
            data += part
    return data
