"""Options and values that several commands have."""

from __future__ import annotations

import argparse
import ipaddress
import re

from tower.clusters.object_meta import LONGEST_DRAIN
from tower.options.values import format_duration, parse_duration

#: Role of a proxy with a host cluster, in its state directory.
ROLE = "host-cluster"

#: Output formats of objects.
FORMS = ("table", "wide", "json", "yaml", "name")


def output_option(command: argparse.ArgumentParser, *forms: str) -> None:
    """Add ``--output`` with *forms*, the default first."""
    choice(command, "-o --output", "output format", *forms)


def choice(command: argparse.ArgumentParser, flags: str, text: str, *choices: str) -> None:
    """Add an option whose default is the first of *choices*."""
    text += " (default: %(default)s)"
    command.add_argument(*flags.split(), choices=choices, default=choices[0], help=text)


def yes_option(command: argparse.ArgumentParser) -> None:
    """Add ``--yes``, which omits a question."""
    command.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; without a terminal, it never asks"
    )


def list_options(command: argparse.ArgumentParser) -> None:
    """Add the options of all lists: ``--output``, ``--selector`` and ``--watch``."""
    output_option(command, *FORMS)
    command.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        default="",
        help="only objects with these labels, such as env=prod,tier!=test",
    )
    watch_option(command)


def watch_option(command: argparse.ArgumentParser) -> None:
    """Add ``--watch``, for lists."""
    command.add_argument(
        "-w", "--watch", action="store_true", help="after the list, print each change until Ctrl-C"
    )


def duration(text: str) -> str:
    """Return *text*, if it is a duration."""
    try:
        parse_duration(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r} {e}") from e
    return text


def drain(text: str) -> str:
    """Return *text*, if it is a duration of at most `LONGEST_DRAIN`."""
    if parse_duration(duration(text)) > LONGEST_DRAIN:
        raise argparse.ArgumentTypeError(f"{text!r} must be at most {format_duration(LONGEST_DRAIN)}")
    return text


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    if re.fullmatch(r"[0-9]{1,6}", text) is None or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT` or `PORT` (on 127.0.0.1)."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if host == "localhost" or not host:
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {host!r} is not an IP address: give HOST:PORT, such as 127.0.0.1:5432"
        ) from None
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no port from 0 to 65535: give one, as in 127.0.0.1:5432"
        )
    return host, int(port)
