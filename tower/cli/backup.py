"""`tower backup` and `tower restore`: the proxy's state directory in one file."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from tower.cli.client import CommandFailed, UsageFailed
from tower.cli.values import ROLE
from tower.store.archive import read
from tower.store.backup import take, write
from tower.store.restore import restore as restore_into


def backup(options: argparse.Namespace) -> str:
    """Write a backup of the state directory; the proxy may run."""
    path = Path(options.file).absolute()
    directory = _state_dir(options)
    if (directory / ROLE).exists():
        raise CommandFailed(
            f"{directory} is a cache, its proxy keeps records and keys in a host cluster: back up that "
            "cluster's etcd, or stop all proxies and copy them to a new directory with 'tower store copy'"
        )
    made = take(directory, time.time(), with_secrets=not options.without_secrets)
    write(made, path, replace=options.force)
    text = f"backup written to {path}: {len(made.files)} files, verified"
    if made.has_secrets:
        return f"{text}; it contains the proxy's keys: keep it as secret as the state directory"
    return f"{text}; it contains no keys: a restore also needs the key files of the state directory"


def restore(options: argparse.Namespace) -> str:
    """Write a backup to an empty state directory, in which no proxy runs."""
    directory = _state_dir(options)
    found = read(Path(options.file))
    restore_into(found, directory)
    made = f"{datetime.fromtimestamp(found.created, UTC):%Y-%m-%d %H:%M} UTC, Tower {found.version}"
    text = f"restored {len(found.files)} files of {made}, to {directory}"
    later = "revoke again what you revoked since the backup"
    if found.has_secrets:
        return f"{text}: start tower-proxy with this --state-dir; {later}"
    return (
        f"{text}: the backup has no keys: copy the key files there before you start tower-proxy; without "
        f"them, it needs --new-host-key and --new-ca, all agents have to join again, and users need new "
        f"kubeconfigs; {later}"
    )


def _state_dir(options: argparse.Namespace) -> Path:
    if not options.state_dir:
        raise UsageFailed("--state-dir is missing: set it to the proxy's state directory on this machine")
    return Path(options.state_dir).absolute()
