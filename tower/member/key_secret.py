"""The agent's state in a Secret of the member: its key, and what it knows of the proxy.

It replaces the state directory for agents in pods, which have no disk.  All replicas of an agent share the
Secret, so they share one key: a join token with one use is enough for them, a pod that replaces another needs
none, and one revocation rejects them all.  If several replicas start with an empty Secret, the first one
writes its key with the version that it read, and the others, whose writes conflict, use that key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.conch.transport.keys import KeyPair
from tower.errors import TowerError
from tower.kube.client import APIClient, APIError
from tower.member.object_name import ObjectName
from tower.member.options import AGENT_KEY
from tower.reactor.repeating import RepeatingTask

#: Delay of the next attempt after a write failed, s.
RETRY = 10.0

#: Time limit of a write, s.
_WRITE_LIMIT = 20.0

#: Most attempts to write the key while other agents change the Secret.
_ATTEMPTS = 5


class KeySecretFailed(TowerError):
    """The Secret cannot be read or written; the text has the cure."""


class KeySecret:
    """The state in a Secret; a `tower.conch.transport.keys.Folder` once it was loaded.

    :param api: client of the member, with the agent's credential.
    :param cluster: name of the cluster, for the cures.
    :ivar saving: service that writes what `write` was given.
    """

    _log = Logger()

    def __init__(self, reactor: IReactorTime, api: APIClient, name: ObjectName, cluster: str) -> None:
        self._api = api
        self._name = name
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{name.namespace}/secrets/{name.name}"
        self._files: dict[str, bytes] = {}
        self._unsaved: dict[str, bytes] = {}
        self._problem = ""
        self.saving = RepeatingTask(reactor, RETRY, self._save, _WRITE_LIMIT)

    def __str__(self) -> str:
        return f"Secret {self._name}"

    @property
    def is_saved(self) -> bool:
        """Whether the Secret has all that was written."""
        return not self._unsaved

    def read(self, name: str) -> bytes | None:
        """Return the content of an entry, or None if it does not exist."""
        return self._files.get(name)

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Replace an entry here at once, and in the Secret soon: see `is_saved`."""
        self._files[name] = self._unsaved[name] = data
        self.saving.run_soon()

    async def refresh(self) -> None:
        """Read the Secret again; nothing is written.

        :raise KeySecretFailed: as `load`.
        """
        self._files = {**_entries(await self._get()), **self._unsaved}

    async def load(self) -> KeyPair:
        """Read the Secret again, and return its key; a Secret without a key gets a new one.

        :raise KeySecretFailed: the Secret does not exist, rights are missing, or there is no answer.
        """
        for _ in range(_ATTEMPTS):
            secret = await self._get()
            stored = _entries(secret)
            if AGENT_KEY in stored:
                return self._loaded(stored)
            key = KeyPair.generate()
            if await self._created(key, secret["metadata"]["resourceVersion"]):
                self._log.info(
                    "new agent key {key} stored in Secret {secret}",
                    key=key.fingerprint,
                    secret=str(self._name),
                )
        raise KeySecretFailed(
            f"Secret {self._name} was changed during {_ATTEMPTS} attempts to store the agent's key: no other "
            "program may write it"
        )

    def _loaded(self, stored: dict[str, bytes]) -> KeyPair:
        try:
            key = KeyPair.from_openssh(stored[AGENT_KEY])
        except ValueError as e:
            raise KeySecretFailed(
                f"Secret {self._name}: the entry {AGENT_KEY} is damaged: {e}; restore it, or remove it to "
                f"create a new key, which needs a new join token: 'tower join {self._cluster}'"
            ) from e
        self._files = {**stored, **self._unsaved}
        return key

    async def _get(self) -> dict[str, Any]:
        try:
            secret = await self._api.get(self._path)
        except APIError as e:
            raise self._failed("get", e) from e
        finally:
            self._api.close()
        if not isinstance(secret, dict) or not (secret.get("metadata") or {}).get("resourceVersion"):
            raise KeySecretFailed(
                f"Secret {self._name}: the API server's answer is not a Secret: check the server's address"
            )
        return secret

    async def _created(self, key: KeyPair, version: object) -> bool:
        """Store a first key if the Secret still has this version; return whether it was stored."""
        try:
            await self._patch({AGENT_KEY: key.to_openssh()}, {"resourceVersion": version})
        except APIError as e:
            if e.code != _CONFLICT:
                raise self._failed("patch", e) from e
            return False
        return True

    async def _patch(self, files: dict[str, bytes], metadata: dict[str, object]) -> None:
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        try:
            await self._api.patch(self._path, {"metadata": metadata, "data": data})
        finally:
            self._api.close()

    async def _save(self) -> None:
        """Write what is not written yet; an error is logged once, and `saving` tries again."""
        unsaved = dict(self._unsaved)
        if not unsaved:
            return
        try:
            await self._patch(unsaved, {})
        except APIError as e:
            problem = str(self._failed("patch", e))
            if problem != self._problem:
                self._log.warn(
                    "cannot store {names}: {problem}; retrying every {period:g} s",
                    names=", ".join(unsaved),
                    problem=problem,
                    period=RETRY,
                )
            self._problem = problem
            return
        self._problem = ""
        for name, data in unsaved.items():
            if self._unsaved.get(name) == data:
                del self._unsaved[name]

    def _failed(self, verb: str, error: APIError) -> KeySecretFailed:
        """Return the error with its cure."""
        namespace, name = self._name.namespace, self._name.name
        manifest = f"apply the manifest of 'tower join {self._cluster} --format manifest' again"
        if error.code == _NOT_FOUND:
            return KeySecretFailed(
                f"Secret {self._name} for the agent's key does not exist: run 'kubectl -n {namespace} create "
                f"secret generic {name}', or {manifest}"
            )
        if error.code == _FORBIDDEN:
            return KeySecretFailed(
                f"the agent is not allowed to {verb} Secret {self._name} ({error.message}): {manifest}; "
                "its Role allows get and patch"
            )
        return KeySecretFailed(f"cannot {verb} Secret {self._name} with the agent's key: {error}")


_CONFLICT, _FORBIDDEN, _NOT_FOUND = 409, 403, 404


def _entries(secret: dict[str, Any]) -> dict[str, bytes]:
    """Return the decoded entries of a Secret; one that is not base64 is empty."""
    data = secret.get("data")
    return {str(name): _decoded(value) for name, value in data.items()} if isinstance(data, dict) else {}


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except binascii.Error:
        return b""
