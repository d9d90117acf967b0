"""Names of Secrets and ConfigMaps in the agent's options."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import evolve, frozen

from tower.errors import ConfigurationError
from tower.kube.apiserver import SERVICE_ACCOUNT

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@frozen
class ObjectName:
    """Namespace and name of an object.

    :ivar namespace: empty: that of the agent's pod.
    """

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, kind: str = "Secret") -> ObjectName:
        """Parse ``NAMESPACE/NAME`` or ``NAME``.

        :param kind: of the object, for the error.
        :raise ValueError: with the problem and the cure.
        """
        namespace, slash, name = text.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _NAMESPACE.fullmatch(namespace)):
            raise ValueError(f"is not the name of a {kind}: give NAME, or NAMESPACE/NAME")
        return cls(namespace, name)

    def in_pod(self, directory: Path | None = None, option: str = "key-secret") -> ObjectName:
        """Return the name with a namespace, by default that of the pod.

        :param option: that has the name.
        :param directory: of the pod's service account; None: the usual one.
        :raise ConfigurationError: there is no namespace, and this process is not in a pod.
        """
        if self.namespace:
            return self
        directory = directory or SERVICE_ACCOUNT
        namespace = pod_namespace(directory)
        if not namespace:
            raise ConfigurationError(
                f"--{option} {self.name}: {directory}/namespace does not name the namespace of a pod: "
                f"set --{option} NAMESPACE/{self.name}"
            )
        return evolve(self, namespace=namespace)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def pod_namespace(directory: Path | None = None) -> str:
    """Return the namespace of this pod; empty outside pods.

    :param directory: of the pod's service account; None: the usual one.
    """
    try:
        namespace = ((directory or SERVICE_ACCOUNT) / "namespace").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return namespace if _NAMESPACE.fullmatch(namespace) else ""
