"""ABAC: the authorizer of ``--authorization-policy-file``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.logger import Logger

from tower.kube.access.abac import NO_MATCH, PolicyList, parse_policies
from tower.options.followed_file import FollowedFile
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Decision, Ruling

_ALLOWED = Decision(Ruling.ALLOW)
_NO_MATCH = Decision(Ruling.NO_OPINION, NO_MATCH)


class AbacFile:
    """Allows what the policies in the file at *path* allow.

    :param on_change: called after the policies have changed.
    :raise ConfigurationError: the file cannot be read or is wrong.
    :ivar file: follows it.
    """

    _log = Logger()

    def __init__(self, path: Path, on_change: Callable[[], object] = lambda: None) -> None:
        self._path = path
        self.file = FollowedFile("authorization-policy-file", path, self._parse)
        self.file.on_change = on_change

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        user = attributes.user
        policies = self.file.value
        is_allowed = policies.allows(user.name, user.groups, attributes.request, attributes.cluster)
        return _ALLOWED if is_allowed else _NO_MATCH

    def _parse(self, content: bytes) -> PolicyList:
        policies = parse_policies(content, str(self._path))
        if policies.unversioned:
            self._log.warn(
                "policy file {path}: {count} lines without a version are read as version v0, which grants "
                "more by default: add the apiVersion abac.authorization.kubernetes.io/v1beta1",
                path=str(self._path),
                count=policies.unversioned,
            )
        return policies
