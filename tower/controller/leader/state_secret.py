"""The keys of the proxy in a Secret of the host cluster, so that each leader has the same ones."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

from attrs import define, field
from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from tower.control.state_files import SECRETS_KEY, SHARED_FILES
from tower.errors import ConfigurationError, TowerError, one_line
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import SECRETS
from tower.rotation.host_key import FILE as HOST_KEY
from tower.store.records import StoreFailed
from tower.trust.statedir import StateDir

#: Default name of the Secret.
STATE_OBJECT = "tower-state"

#: Annotation with the identity of the leader that took the Secret over last.
OWNER = "tower.kubesphere.io/leader"

#: Interval of checks for files that changed and are not saved yet, s.
SAVE_PERIOD = 10.0

_NOT_FOUND, _CONFLICT = 404, 409

#: Attempts of a write that others may disturb.
_ATTEMPTS = 3


@define(eq=False)
class StateSecret:
    """The Secret of one leader; other files of the state directory stay where they are.

    All writes are conditional, and `take_over` is a write: a former leader cannot write any more.

    :param identity: of this leader.
    :param use_own: whether a missing Secret gets the keys in the directory (``--keys-from-state-dir``).
    """

    _log = Logger()

    _api: HostAPI
    _namespace: str
    _state: StateDir
    _identity: str
    _use_own: bool = False
    _name: str = STATE_OBJECT
    _version: str = field(default="", init=False)
    _saved: dict[str, bytes] = field(factory=dict, init=False)
    _writing: DeferredLock = field(factory=DeferredLock, init=False)
    _problem: str = field(default="", init=False)

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    @property
    def problem(self) -> str:
        """Why changed keys are not saved; empty: they are."""
        return self._problem

    async def exists(self) -> bool:
        """Return whether any leader has saved its keys.

        :raise APIError: the API server rejects the request or does not answer.
        """
        return await self._get() is not None

    async def take_over(self) -> None:
        """Put the saved files into the state directory; create a missing Secret.

        :raise StoreFailed: it has no keys, but the directory has, which may be old.
        :raise TowerError: the Secret cannot be used, or the files cannot be written.
        """
        for _ in range(_ATTEMPTS):
            secret = await self._get()
            has_keys = secret is not None and HOST_KEY in (secret.get("data") or {})
            own = {} if has_keys else self._own_files()
            try:
                if secret is None:
                    secret = await self._api.create(SECRETS, self._new(own))
                else:
                    metadata = {"resourceVersion": _version(secret), "annotations": {OWNER: self._identity}}
                    patch = {"metadata": metadata, "data": _encoded(own)}
                    secret = await self._api.patch(SECRETS, self._name, patch, self._namespace)
            except APIError as e:
                if e.code != _CONFLICT and not (e.code == _NOT_FOUND and secret is not None):
                    raise
                continue
            self._version, self._saved = _version(secret), self._files(secret)
            self.restore()
            return
        raise StoreFailed(f"{self} was changed by another program at the same time: retry later")

    def restore(self) -> None:
        """Undo the changes of files in the directory that are not saved.

        :raise ConfigurationError: they cannot be written.
        """
        for name in SHARED_FILES:
            data = self._saved.get(name)
            if data is None:
                self._state.remove(name)
            elif data != self._state.read(name):
                self._state.write(name, data)

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Save files; see `StateDir.save`.

        :raise StoreFailed: the Secret cannot be written; it may have been written anyway.
        """
        async with self._writing:
            for _ in range(_ATTEMPTS):
                try:
                    if await self._write(changes):
                        break
                except APIError as e:
                    writing = f"save {', '.join(changes)} in" if changes else "write again the removed"
                    raise StoreFailed(f"cannot {writing} {self}: {one_line(e)}") from e
            else:
                raise StoreFailed(f"{self} was changed by another program at the same time: retry later")
            self._saved = _changed(self._saved, changes)

    async def save_changed(self) -> None:
        """Save the files that differ from the saved ones, such as a renewed certificate.

        :raise TowerError: they cannot be read or saved.
        """
        found = {name: self._state.read(name) for name in SHARED_FILES}
        changes = {name: data for name, data in found.items() if data != self._saved.get(name)}
        if changes:
            await self.save(changes)

    async def try_to_save_changed(self) -> None:
        """Do the same, write a removed Secret again, and log an error once."""
        try:
            await self.save_changed()
            await self._replace_removed()
        except TowerError as e:
            if str(e) != self._problem:
                self._problem = str(e)
                self._log.error("{problem}", problem=one_line(e))
        else:
            self._problem = ""

    async def _replace_removed(self) -> None:
        """Write the Secret again if another program removed it: without it, the next leader has no keys.

        :raise TowerError: it cannot be read or written.
        """
        if self._saved and await self._get() is None:
            await self.save({})

    def _own_files(self) -> dict[str, bytes]:
        """Return the files in the directory for a Secret without keys.

        :raise StoreFailed: they may be old.
        """
        files = {name: data for name in SHARED_FILES if (data := self._state.read(name)) is not None}
        names = ", ".join(name for name in files if name != SECRETS_KEY)
        if names and not self._use_own:
            raise StoreFailed(
                f"there is no {self} with keys, and {self._state.path} has a copy of them, which may be old "
                f"({names}): apply a saved copy of the Secret with kubectl; if these keys are current, set "
                "--keys-from-state-dir; for new keys, use an empty --state-dir"
            )
        if names:
            self._log.warn(
                "there is no {secret} with keys: it gets those in {path} ({names})",
                secret=str(self),
                path=str(self._state.path),
                names=names,
            )
        return files

    async def _get(self) -> Object | None:
        try:
            return await self._api.get(SECRETS, self._name, self._namespace)
        except APIError as e:
            if e.code == _NOT_FOUND:
                return None
            raise

    async def _write(self, changes: Mapping[str, bytes | None]) -> bool:
        """Write *changes*; return False if the Secret must be read again, which is done.

        :raise APIError: it cannot be written.
        :raise StoreFailed: another leader has taken it over.
        """
        try:
            if self._version:
                patch = {"metadata": {"resourceVersion": self._version}, "data": _encoded(changes)}
                secret = await self._api.patch(SECRETS, self._name, patch, self._namespace)
            else:
                secret = await self._api.create(SECRETS, self._new(_changed(self._saved, changes)))
        except APIError as e:
            if e.code == _CONFLICT or (e.code == _NOT_FOUND and self._version):
                await self._read_again()
                return False
            raise
        self._version = _version(secret)
        return True

    async def _read_again(self) -> None:
        secret = await self._get()
        if secret is None:
            self._version = ""
            self._log.warn("{secret} was removed: this leader writes it again", secret=str(self))
            return
        owner = (secret["metadata"].get("annotations") or {}).get(OWNER, self._identity)
        if owner != self._identity:
            raise StoreFailed(f"{self} was taken over by {owner}: this proxy does not lead any more")
        self._version = _version(secret)

    def _new(self, files: Mapping[str, bytes]) -> Object:
        return {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/name": "tower", "app.kubernetes.io/managed-by": "tower-proxy"},
                "annotations": {OWNER: self._identity},
            },
            "type": "Opaque",
            "data": _encoded(files),
        }

    def _files(self, secret: Object) -> dict[str, bytes]:
        """Return the files in *secret*; keys with other names are not the proxy's."""
        data = secret.get("data") or {}
        try:
            return {name: b64decode(data[name], validate=True) for name in SHARED_FILES if name in data}
        except ValueError as e:
            raise ConfigurationError(f"{self}: its data is not base64: restore it from a backup") from e


def _changed(files: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Return *files* with *changes*."""
    return {name: data for name, data in {**files, **changes}.items() if data is not None}


def _encoded(files: Mapping[str, bytes | None]) -> dict[str, str | None]:
    return {name: None if data is None else b64encode(data).decode() for name, data in files.items()}


def _version(secret: Object) -> str:
    version: str = secret["metadata"]["resourceVersion"]
    return version
