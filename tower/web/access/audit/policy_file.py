"""The audit policy in the file of ``--audit-policy-file``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.kube.audit.policy import AuditPolicy, CompiledPolicy
from tower.kube.audit.policy_file import parse_audit_policy, strict_errors
from tower.options.followed_file import FollowedFile

OPTION = "audit-policy-file"


def read_audit_policy(content: bytes, path: Path) -> AuditPolicy:
    """Return the policy in the *content* of the file at *path*.

    :raise ConfigurationError: it is wrong; the text has upstream's.
    """
    try:
        return parse_audit_policy(content)
    except ValueError as e:
        raise ConfigurationError(f"loading audit policy file: {e}: from file {path}") from e


class AuditPolicyFile:
    """Follows the file at *path*; *use* takes its policy, and each new one.

    :raise ConfigurationError: the file cannot be read or is wrong; the text has upstream's.
    :ivar file: follows it.
    """

    _log = Logger()

    def __init__(self, path: Path, use: Callable[[CompiledPolicy], None]) -> None:
        self._path, self._use = path, use
        self.file = FollowedFile(OPTION, path, self._parse)
        self.file.on_change = self._changed
        self._changed()

    def _changed(self) -> None:
        self._use(self.file.value)

    def _parse(self, content: bytes) -> CompiledPolicy:
        policy = read_audit_policy(content, self._path)
        if errors := strict_errors(content):
            self._log.warn(
                "audit policy {path} contains errors, falling back to lenient decoding: strict decoding "
                "error: {errors}: correct them",
                path=str(self._path),
                errors=", ".join(errors),
            )
        return CompiledPolicy(policy)
