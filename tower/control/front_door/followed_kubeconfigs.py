"""The kubeconfigs that options of the proxy name, followed so that the audit log has their changes.

Their clients read them again by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.options.followed_file import FollowedFile

#: Options that name a kubeconfig.
KUBECONFIGS = (
    "kubeconfig",
    "authentication-token-webhook-config-file",
    "authentication-kubeconfig",
    "authorization-webhook-config-file",
    "authorization-kubeconfig",
    "audit-webhook-config-file",
)


def followed_kubeconfigs(options: Mapping[str, Any]) -> Sequence[FollowedFile[KubeAccess]]:
    """Return the kubeconfigs of the options that are set.

    :raise ConfigurationError: a file cannot be used.
    """
    return [_followed(option, options[option]) for option in KUBECONFIGS if options[option] is not None]


def _followed(option: str, path: Path) -> FollowedFile[KubeAccess]:
    def parse(_content: bytes) -> KubeAccess:
        return load_kubeconfig(path, allow_plugin=True)  # with the files that it names

    return FollowedFile(option, path, parse)
