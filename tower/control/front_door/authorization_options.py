"""Options of ``tower-proxy`` for the authorization of users, with kube-apiserver's names and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from twisted.python import usage

from tower.control.front_door.server_options import ServerOptions
from tower.kube.access.reviews import VERSIONS
from tower.options.parameters import Parameter, list_parameter, parameter
from tower.options.values import read_duration, read_path

#: Values of ``--authorization-mode``.
ALWAYS_ALLOW, ALWAYS_DENY, ABAC, RBAC, WEBHOOK = MODES = (
    "AlwaysAllow",
    "AlwaysDeny",
    "ABAC",
    "RBAC",
    "Webhook",
)

# Options with a file that a mode requires, and kube-apiserver's name for the file.
_FILES = {
    ABAC: ("authorization-policy-file", "authorization policy file"),
    WEBHOOK: ("authorization-webhook-config-file", "authorization config file"),
    RBAC: ("authorization-kubeconfig", ""),
}


def _read_modes(text: str) -> tuple[str, ...]:
    return tuple(mode.strip() for mode in text.split(","))


def _read_version(text: str) -> str:
    if text not in VERSIONS:
        known = ", ".join(f'"{each}"' for each in VERSIONS)
        raise ValueError(f'unsupported webhook authorizer version "{text}", supported versions are {known}')
    return text


def _read_cache_ttl(text: str) -> float:
    return 0.0 if text in ("0", "0s") else read_duration(text)


class AuthorizationOptions(ServerOptions):
    """Options of the modes of authorization."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        list_parameter(
            "authorization-mode",
            ALWAYS_ALLOW,
            "Comma-separated modes that authorize users' requests into clusters, in order: AlwaysAllow (the "
            "cluster decides), AlwaysDeny, ABAC, RBAC, Webhook.",
            _read_modes,
        ),
        parameter(
            "authorization-policy-file",
            None,
            "File with policies for the mode ABAC, one JSON object per line.  Read again when it changes.",
            read_path,
        ),
        parameter(
            "authorization-kubeconfig",
            None,
            "Kubeconfig of the cluster whose roles and bindings the mode RBAC uses.  [default: those of "
            "Tower's own API]",
            read_path,
        ),
        parameter(
            "authorization-webhook-config-file",
            None,
            "File in kubeconfig format that describes the webhook of the mode Webhook.",
            read_path,
        ),
        parameter(
            "authorization-webhook-version",
            "v1beta1",
            "API version of the SubjectAccessReviews for the webhook: v1 or v1beta1.",
            _read_version,
        ),
        parameter(
            "authorization-webhook-cache-authorized-ttl",
            "5m",
            "Time for which the webhook's permissions are kept; 0: not at all.",
            _read_cache_ttl,
        ),
        parameter(
            "authorization-webhook-cache-unauthorized-ttl",
            "30s",
            "Time for which the webhook's other answers are kept; 0: not at all.",
            _read_cache_ttl,
        ),
    ]

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        modes: tuple[str, ...] = self["authorization-mode"]
        for mode in dict.fromkeys(modes):
            self.check(self._check_mode, mode)
        for mode, (name, _) in _FILES.items():
            if self[name] is not None and mode not in modes:
                self.check(_fail, f"cannot specify --{name} without mode {mode}: add {mode} to the modes")
        if len(modes) != len(set(modes)):
            self.check(_fail, f"authorization-mode {_listed(modes)} has mode specified more than once")

    def _check_mode(self, mode: str) -> None:
        if mode not in MODES:
            known = ", ".join(MODES)
            raise usage.UsageError(f"authorization-mode {json.dumps(mode)} is not a valid mode: use {known}")
        name, text = _FILES.get(mode, ("", ""))
        if text and self[name] is None:
            raise usage.UsageError(f"authorization-mode {mode}'s {text} not passed: set --{name}")


def _fail(text: str) -> None:
    raise usage.UsageError(text)


def _listed(modes: Sequence[str]) -> str:
    return f"[{' '.join(map(json.dumps, modes))}]"
