"""`tower backup` and `tower restore`: the proxy's records and keys in one file."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tower.cli.client import CommandFailed, UsageFailed
from tower.cli.output import note
from tower.cli.values import ROLE
from tower.store.archive import HOST_OBJECTS, disk_problem, read
from tower.store.backup import take, write
from tower.store.restore import restore as restore_into

_LATER = "revoke again what you revoked since the backup"


def backup(options: argparse.Namespace) -> str:
    """Write a backup of the state directory, or of the host cluster's objects; the proxy may run."""
    is_streamed = options.file == "-"
    if is_streamed and sys.stdout.isatty():
        raise UsageFailed("standard output is a terminal, and a backup is binary: redirect it to a file")
    if _is_hosted(options):
        from tower.cli.records.host_backup import take_objects  # installs Twisted's reactor

        made = take_objects(options, time.time(), with_secrets=not options.without_secrets)
        source, rest = "objects", f"Secret {options.namespace}/tower-state"
    else:
        made = take(_state_dir(options), time.time(), with_secrets=not options.without_secrets)
        source, rest = "files", "the key files of the state directory"
    path = Path(options.file).absolute()
    if is_streamed:
        _stream(made.encode())
        text = f"backup written to standard output: {made.count} {source}"
    else:
        write(made, path, replace=options.force)
        text = f"backup written to {path}: {made.count} {source}, verified"
    if made.has_secrets:
        text += "; it contains the proxy's keys: protect it like them"
    else:
        text += f"; it contains no keys: a restore also needs {rest}"
    if is_streamed:
        note(text)
        return ""
    return text


def restore(options: argparse.Namespace) -> str:
    """Write a backup to an empty state directory or host cluster, in which no proxy runs."""
    found = read(Path(options.file))
    made = f"{datetime.fromtimestamp(found.created, UTC):%Y-%m-%d %H:%M} UTC, Tower {found.version}"
    if HOST_OBJECTS in found.files:
        from tower.cli.records.host_backup import put_objects  # installs Twisted's reactor

        put_objects(options, found, time.time())
        text = f"restored {found.count} objects of {made}, to namespace {options.namespace}"
        if found.has_secrets:
            return f"{text}: start the proxies; {_LATER}"
        return f"{text}: apply a saved copy of Secret tower-state before you start a proxy; {_LATER}"
    if options.host_kubeconfig:
        raise CommandFailed(
            f"{options.file} is the backup of a state directory: restore it with --state-dir, then copy it "
            "with 'tower store copy --from sqlite --to kubernetes'"
        )
    directory = _state_dir(options)
    restore_into(found, directory)
    text = f"restored {found.count} files of {made}, to {directory}"
    if found.has_secrets:
        return f"{text}: start tower-proxy with this --state-dir; {_LATER}"
    return (
        f"{text}: the backup has no keys: copy the key files there before you start tower-proxy; without "
        f"them, it needs --new-host-key and --new-ca, all agents have to join again, and users need new "
        f"kubeconfigs; {_LATER}"
    )


def _stream(data: bytes) -> None:
    """Write *data* to standard output, past its buffer: after an error, nothing is left for the exit."""
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
            file.write(data)
    except OSError as e:
        raise CommandFailed(f"cannot write the backup to standard output: {disk_problem(e)}") from e


def _is_hosted(options: argparse.Namespace) -> bool:
    """Return whether the proxy's records are in a host cluster."""
    if options.host_kubeconfig:
        return True
    return bool(options.state_dir) and (Path(options.state_dir) / ROLE).exists()


def _state_dir(options: argparse.Namespace) -> Path:
    if not options.state_dir:
        raise UsageFailed("--state-dir is missing: set it to the proxy's state directory on this machine")
    return Path(options.state_dir).absolute()
