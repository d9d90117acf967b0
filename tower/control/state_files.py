"""Check of the files in the state directory before the proxy uses them and creates missing ones.

A new proxy creates all files.  Later, a new file does not replace a lost one: agents and users accept only
the old key or CA.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from tower.conch.transport.keys import KeyPair
from tower.control.admin_kubeconfig import USER
from tower.errors import ConfigurationError
from tower.rotation import serving_ca, users_ca
from tower.rotation.host_key import FILE as HOST_KEY
from tower.store.kinds import AGENT_KEYS, CREDENTIALS
from tower.store.sqlite import SQLiteStore
from tower.store.store import IStore
from tower.trust.authorities import NEXT
from tower.trust.serving_certificate import STATE_FILE as SERVING_CERTIFICATE
from tower.trust.statedir import StateDir

_log = Logger()

DATABASE = "tower.db"

#: Marks the directory of a proxy whose records are in a host cluster; has ``leader: …`` or ``standby: …``.
HOSTED = "host-cluster"

#: File of the key that encrypts secrets, without ``--secrets-key-file``.
SECRETS_KEY = "secrets.key"

SERVING_CA = f"{serving_ca.NAME}.pem"
USERS_CA = f"{users_ca.NAME}.pem"

#: Files that each proxy with the same records must have; all others are made again.
SHARED_FILES = (
    HOST_KEY,
    f"{HOST_KEY}{NEXT}",
    SERVING_CA,
    f"{serving_ca.NAME}{NEXT}.pem",
    USERS_CA,
    users_ca.OLD,
    SECRETS_KEY,
    SERVING_CERTIFICATE,
)

#: The cure of every lost file.
RESTORE = "restore it from a backup"


@frozen
class LostFile:
    """A missing file on which agents or users depend.

    :ivar problem: names the file and the dependents.
    :ivar instead: the cure without a backup.
    """

    name: str
    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.problem}: {RESTORE}; without a backup, {self.instead}"

    def in_source(self, source: str) -> str:
        """Return the same for a directory whose files are a copy of *source*."""
        return (
            f"{source} is missing, or lacks {self.name} ({self.problem}): apply a saved copy of it with "
            f"kubectl; without one, {self.instead}"
        )


def open_database(reactor: IReactorFromThreads, state: StateDir) -> SQLiteStore:
    """Return the records of a proxy without a host cluster; log that there were none.

    :raise ConfigurationError: see `check_database`; or the database cannot be opened.
    """
    check_database(state)
    path = state.path / DATABASE
    is_new = not path.exists()
    store = SQLiteStore(reactor, path)
    if is_new:
        _log.info(
            "no database in {path}: creating a new installation (keys, CAs, database); if you expected an "
            "existing one, check --state-dir",
            path=str(state.path),
        )
    return store


def check_database(state: StateDir) -> None:
    """Check that the database is there, or the directory new.

    :raise ConfigurationError: it was removed, or the records are in a host cluster; the text has the cure.
    """
    if state.read(HOSTED) is not None:
        raise ConfigurationError(
            f"{state.path} is the state directory of a proxy with --store kubernetes: set another --state-dir"
        )
    names = [path.name for path in state.path.iterdir()]
    lost = lost_database(state.path, names)
    if lost is not None:
        raise ConfigurationError(str(lost))


def check_keys(
    state: StateDir, store: IStore, now: float, *, new_host_key: bool, new_ca: bool, is_given: bool
) -> None:
    """Check that host key and CAs are there, or that no agent or user needs them.

    :param now: s since the epoch.
    :param new_host_key: whether enrolled agents may lose their proxy (``--new-host-key``).
    :param new_ca: whether issued kubeconfigs and join lines may become invalid (``--new-ca``).
    :param is_given: whether the CA of the front door is that of ``--ca-cert``.
    :raise ConfigurationError: with the file, the consequence and the cure.
    """
    allowed = [HOST_KEY] * new_host_key + [SERVING_CA, USERS_CA] * new_ca + [SERVING_CA] * is_given
    files = [path.name for path in state.path.iterdir()]
    credentials = [record.value for record in store.snapshot(CREDENTIALS).values()]
    for lost in lost_keys(state.path, files, len(store.snapshot(AGENT_KEYS)), credentials, now):
        if lost.name not in allowed:
            raise ConfigurationError(lost.in_source(state.source) if state.source else str(lost))
    text = state.read(HOST_KEY)
    try:
        if text is not None:
            KeyPair.from_openssh(text)
    except ValueError as e:
        raise ConfigurationError(
            f"SSH host key {state.path / HOST_KEY} is damaged ({e}): {RESTORE}; if you delete it, every "
            "agent has to join again"
        ) from e


def lost_database(directory: Path, files: Collection[str]) -> LostFile | None:
    """Return the lost database, or None.

    :param files: names of the files in *directory*.
    """
    keys = [name for name in (HOST_KEY, USERS_CA) if name in files]
    if DATABASE in files or HOSTED in files or not keys:
        return None
    return LostFile(
        DATABASE,
        f"{directory / DATABASE} with all clusters and credentials is missing, although the directory is "
        f"not new (it has {keys[0]})",
        "to start without clusters and credentials, create it as an empty file that the proxy's user can "
        "write, or set another --state-dir",
    )


def lost_keys(
    directory: Path, files: Collection[str], agents: int, credentials: Iterable[Mapping[str, Any]], now: float
) -> list[LostFile]:
    """Return the missing keys and CAs on which agents or users depend.

    :param files: names of the files in *directory*.
    :param agents: number of enrolled keys of agents.
    :param credentials: values of the records of users' credentials.
    :param now: s since the epoch.
    """
    valid = [
        each
        for each in credentials
        if each["revoked_at"] is None and not each["ended"] and now < each["expires"] and each["user"] != USER
    ]
    certificates = sum(each["kind"] == "cert" for each in valid)
    lost = []
    if HOST_KEY not in files and agents:
        enrolled = "1 enrolled agent accepts" if agents == 1 else f"{agents} enrolled agents accept"
        lost.append(
            LostFile(
                HOST_KEY,
                f"SSH host key {directory / HOST_KEY} is missing, and {enrolled} no other one",
                "set --new-host-key, and every agent has to join again",
            )
        )
    if USERS_CA not in files and certificates:
        lost.append(
            LostFile(
                USERS_CA,
                f"CA {directory / USERS_CA} is missing, and {_some(certificates, 'client certificate')} of "
                "users cannot be verified without it",
                "set --new-ca, and issue their kubeconfigs again",
            )
        )
    if SERVING_CA not in files and (agents or valid):
        dependents = [_some(len(valid), "kubeconfig")] * bool(valid) + [_some(agents, "agent")] * bool(agents)
        lost.append(
            LostFile(
                SERVING_CA,
                f"CA {directory / SERVING_CA} of the front door is missing; {' and '.join(dependents)} may "
                "trust only this CA",
                "set --ca-cert if you used it, or set --new-ca, issue the kubeconfigs again, and let agents "
                "join again",
            )
        )
    return lost


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
