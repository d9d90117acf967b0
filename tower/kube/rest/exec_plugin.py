"""Credentials from a plugin, which runs for the first one, and again when it expires or is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from attrs import field, frozen
from twisted.internet import defer
from twisted.internet.defer import DeferredLock

from tower.errors import ConfigurationError
from tower.kube.rest.plugin_command import PluginCommand
from tower.reactor.interfaces import IReactor
from tower.reactor.program_run import ProgramFailed, ProgramRun

#: Timeout of the program, s.
TIMEOUT = 20.0

#: Maximum size of its output, B.
OUTPUT_LIMIT = 1 << 20

#: Shortest interval between two runs, s; a failure counts for as long.
PAUSE = 5.0


@frozen
class ExecCredential:
    """A credential that a plugin wrote.  Secret.

    :ivar token: bearer token; empty without one.
    :ivar certificate: PEM, with `key`; None without one.
    :ivar expiry: s since the epoch; None: unlimited.
    """

    token: str = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    expiry: float | None


class ExecPlugin:
    """Runs one plugin, never twice at once, and keeps its last credential.

    :param environ: of this process; its ``PATH`` is searched for the program.
    :param epoch: returns the time of day, s since the epoch.
    """

    def __init__(
        self,
        command: PluginCommand,
        reactor: IReactor,
        environ: Mapping[str, str],
        epoch: Callable[[], float],
    ) -> None:
        self.command = command
        self._reactor = reactor
        self._environ = environ
        self._epoch = epoch
        self._lock = DeferredLock()
        self._current: ExecCredential | None = None
        self._error = ""
        self._last_run: float | None = None

    async def credential(self, rejected: ExecCredential | None = None) -> ExecCredential:
        """Return a credential; the last one if it is still valid.

        :param rejected: by the API server, so another one is needed.
        :raise ConfigurationError: the program fails, takes too long, or writes no valid credential; one
            line with the cure.
        """
        await self._lock.acquire()
        try:
            if self._counts(rejected):
                if self._current is None:
                    raise ConfigurationError(self._error)
                return self._current
            self._last_run = None  # if it is canceled, the next request runs it again
            try:
                self._current = await self._run()
            except ConfigurationError as e:
                self._current, self._error = None, str(e)
                self._last_run = self._reactor.seconds()
                raise
            self._last_run = self._reactor.seconds()
            return self._current
        finally:
            self._lock.release()

    def discard(self, problem: str) -> None:
        """Forget the credential, which cannot be used, until the next run.

        :param problem: one line.
        """
        self._current, self._error = None, f"{self.command.where}: {self.command.shown}: {problem}"

    def _counts(self, rejected: ExecCredential | None) -> bool:
        """Return whether the outcome of the last run is still used."""
        if self._last_run is None:
            return False
        if self._reactor.seconds() < self._last_run + PAUSE:
            return True
        current = self._current
        if current is None or current is rejected:
            return False
        return current.expiry is None or self._epoch() < current.expiry

    async def _run(self) -> ExecCredential:
        command = self.command
        program = command.program(self._environ)
        run = ProgramRun(OUTPUT_LIMIT)
        environment = command.environment(self._environ)
        try:
            self._reactor.spawnProcess(run, program, command.words, environment)
        except OSError as e:
            raise ConfigurationError(
                f"{command.where}: cannot run {command.shown}: {e.strerror}; run it manually to see why"
            ) from e
        try:
            written = await run.ended.addTimeout(TIMEOUT, self._reactor)
        except defer.TimeoutError:
            text = f"it did not end within {TIMEOUT:g} s; run it manually to see why"
            raise ConfigurationError(f"{command.where}: {command.shown}: {text}") from None
        except ProgramFailed as e:
            raise ConfigurationError(f"{command.where}: {command.shown}: {e}") from None
        try:
            return read_credential(written, command.version)
        except ValueError as e:
            text = f"{e}; run it manually and compare with the documentation of client-go credential plugins"
            raise ConfigurationError(f"{command.where}: {command.shown} wrote {text}") from None


def read_credential(written: bytes, version: str) -> ExecCredential:
    """Return the credential in an ``ExecCredential`` object.

    :param version: its required ``apiVersion``.
    :raise ValueError: it has none; the text has no secrets.
    """
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(found, dict) or found.get("kind") != "ExecCredential":
        raise ValueError("no object of kind ExecCredential")
    if found.get("apiVersion") != version:
        raise ValueError(f"an object whose apiVersion is not {version}")
    status = found.get("status") or {}
    has_status = isinstance(status, dict) and status
    if not has_status:
        raise ValueError("an ExecCredential without status")
    token = _text(status, "token")
    certificate, key = _text(status, "clientCertificateData"), _text(status, "clientKeyData")
    if bool(certificate) != bool(key):
        raise ValueError("only one of clientCertificateData and clientKeyData")
    if not token and not certificate:
        raise ValueError("neither a token nor a client certificate")
    return ExecCredential(
        token,
        certificate.encode() if certificate else None,
        key.encode() if key else None,
        _moment(_text(status, "expirationTimestamp")),
    )


def _text(status: dict[str, Any], key: str) -> str:
    value = status.get(key) or ""
    if isinstance(value, str):
        return value
    raise ValueError(f"a {key} that is not a string")


def _moment(text: str) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("an expirationTimestamp that is not a time such as 2026-11-23T10:00:00Z")
    return moment.timestamp()
