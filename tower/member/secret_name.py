"""Names of Secrets in the agent's options."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import evolve, frozen

from tower.errors import ConfigurationError
from tower.kube.apiserver import SERVICE_ACCOUNT

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@frozen
class SecretName:
    """Namespace and name of a Secret.

    :ivar namespace: empty: that of the agent's pod.
    """

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> SecretName:
        """Parse ``NAMESPACE/NAME`` or ``NAME``.

        :raise ValueError: with the problem and the cure.
        """
        namespace, slash, name = text.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _NAMESPACE.fullmatch(namespace)):
            raise ValueError("is not the name of a Secret: give NAME, or NAMESPACE/NAME")
        return cls(namespace, name)

    def in_pod(self, directory: Path | None = None) -> SecretName:
        """Return the name with a namespace, by default that of the pod.

        :param directory: of the pod's service account; None: the usual one.
        :raise ConfigurationError: there is no namespace, and this process is not in a pod.
        """
        if self.namespace:
            return self
        directory = directory or SERVICE_ACCOUNT
        try:
            namespace = (directory / "namespace").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            namespace = ""
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigurationError(
                f"--key-secret {self.name}: {directory}/namespace does not name the namespace of a pod: "
                f"set --key-secret NAMESPACE/{self.name}"
            )
        return evolve(self, namespace=namespace)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
