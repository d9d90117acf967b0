"""Credential plugins of kubeconfigs: the entry ``exec`` of a user."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess

#: Supported protocols.  The first one requires ``interactiveMode``.
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

_MODES = ("Never", "IfAvailable", "Always")
_INSTEAD = "or give the user a token or a client certificate"


@frozen
class PluginCommand:
    """A credential plugin, as the kubeconfig configures it.

    :ivar words: program and arguments; a program with a slash is a path.
    :ivar environ: additional variables of the program.
    :ivar version: of the protocol.
    :ivar hint: on its installation.
    :ivar input: value of ``KUBERNETES_EXEC_INFO``.
    :ivar where: the entry, for errors.
    """

    words: tuple[str, ...] = field(repr=False)
    environ: tuple[tuple[str, str], ...] = field(repr=False)
    version: str
    hint: str
    input: str = field(repr=False)
    where: str

    @property
    def shown(self) -> str:
        """The program, for errors; arguments can be secret."""
        return self.words[0]

    @classmethod
    def of(cls, access: KubeAccess) -> PluginCommand | None:
        """Return the plugin of *access*, if any.

        :raise ConfigurationError: its entry is invalid, or it needs a terminal.
        """
        if access.plugin is None:
            return None
        file = access.files[0] if access.files else None
        where = f"kubeconfig {file}: exec of user {access.user!r}"
        entry = _Entry(access.plugin, where)
        version = entry.text("apiVersion")
        if version not in VERSIONS:
            raise entry.invalid(
                f"apiVersion {version!r} is not supported: the plugin must support {VERSIONS[0]}, {_INSTEAD}"
            )
        entry.check_mode(version)
        command = entry.text("command")
        if not command:
            raise entry.invalid("command is missing")
        if "/" in command and file is not None:
            command = str(file.absolute().parent / command)
        spec: dict[str, Any] = {"interactive": False}
        if access.plugin.get("provideClusterInfo") is True:
            spec["cluster"] = _cluster(access)
        return cls(
            words=(command, *entry.args()),
            environ=entry.environ(),
            version=version,
            hint=entry.text("installHint"),
            input=json.dumps({"kind": "ExecCredential", "apiVersion": version, "spec": spec}),
            where=where,
        )

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program, from that of this process."""
        return {**environ, **dict(self.environ), "KUBERNETES_EXEC_INFO": self.input}

    def program(self, environ: Mapping[str, str]) -> str:
        """Return the path of the program.

        Like client-go, it ignores entries of ``PATH`` that depend on the current directory.

        :raise ConfigurationError: it is not installed.
        """
        name = self.words[0]
        if os.sep in name:
            found = shutil.which(name)
        else:
            entries = environ.get("PATH", os.defpath).split(os.pathsep)
            found = shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, entries)))
        if found is not None:
            return found
        hint = f"; {' '.join(self.hint.split())}" if self.hint else ""
        place = "" if os.sep in name else " in PATH"
        raise ConfigurationError(
            f"{self.where}: {self.shown} was not found{place}{hint}: install it, {_INSTEAD}"
        )


@frozen
class _Entry:
    """The entry with its errors."""

    _content: dict[str, Any]
    _where: str

    def invalid(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {text}")

    def text(self, key: str) -> str:
        value = self._content.get(key) or ""
        if not isinstance(value, str) or "\0" in value:
            raise self.invalid(f"{key} is not a string")
        return value

    def check_mode(self, version: str) -> None:
        mode = self.text("interactiveMode") or ("" if version == VERSIONS[0] else "IfAvailable")
        if mode not in _MODES:
            raise self.invalid(f"interactiveMode {mode!r} is not one of {', '.join(_MODES)}: set Never")
        if mode == "Always":
            raise self.invalid(
                f"interactiveMode Always: the plugin needs a terminal, which a service does not have: "
                f"set Never if it works without, {_INSTEAD}"
            )

    def args(self) -> list[str]:
        args = self._content.get("args") or []
        if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
            raise self.invalid("args is not a list of strings")
        return args

    def environ(self) -> tuple[tuple[str, str], ...]:
        found = []
        entries = self._content.get("env") or []
        for entry in entries if isinstance(entries, list) else [None]:
            name, value = (
                (entry.get("name"), entry.get("value", "")) if isinstance(entry, dict) else (None, None)
            )
            if not isinstance(name, str) or not isinstance(value, str) or "\0" in name + value:
                raise self.invalid("env is not a list of names and values, which are strings")
            if not name or "=" in name:
                raise self.invalid(f"env: {name!r} is not a name of a variable")
            found.append((name, value))
        return tuple(found)


def _cluster(access: KubeAccess) -> dict[str, Any]:
    """Return the cluster's description for the plugin."""
    found: dict[str, Any] = {"server": access.server}
    if access.tls_server_name:
        found["tls-server-name"] = access.tls_server_name
    if access.insecure:
        found["insecure-skip-tls-verify"] = True
    if access.ca_data is not None:
        found["certificate-authority-data"] = b64encode(access.ca_data).decode("ascii")
    if access.proxy_url:
        found["proxy-url"] = access.proxy_url
    if access.plugin_config is not None:
        found["config"] = access.plugin_config
    return found
