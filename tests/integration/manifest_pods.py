"""Pods of a Deployment as processes, with its arguments and variables and the service account's files."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from tests.integration.member import Member
from tests.integration.programs import Program, is_ready, script, wait_for

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")

#: Mounts the files of the service account, $1, at their path in pods, and becomes the rest.
_IN_POD = (
    "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && "
    'mount --bind "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"'
)


class ManifestPod:
    """One pod of a Deployment.

    :param deployment: as the API server returns it.
    :param address: its address, in 127.0.0.0/8.
    """

    def __init__(
        self, member: Member, deployment: dict[str, Any], folder: Path, name: str, address: str
    ) -> None:
        self._member = member
        self._namespace = deployment["metadata"]["namespace"]
        self._pod = deployment["spec"]["template"]["spec"]
        (self._container,) = self._pod["containers"]
        self.address = address
        environment = self._environment()
        files = folder / f"{name}-account"
        self._write_account(files)
        command = [script(self._container["command"][0]), *self._container["command"][1:]]
        arguments = [
            _VARIABLE.sub(lambda match: environment[match[1]], word) for word in self._container["args"]
        ]
        argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _IN_POD, "pod", str(files)]
        self.program = Program(name, [*argv, *command, *arguments], folder, environment)
        (port,) = (each["containerPort"] for each in self._container["ports"] if each["name"] == "health")
        self._port = port

    def ready(self) -> bool:
        """Return whether its readiness probe succeeds."""
        if not self.program.running():
            raise AssertionError(f"{self.program.name} ended: {self.program.tail()}")
        return self._answers("readinessProbe")

    def live(self) -> bool:
        """Return whether its liveness probe succeeds."""
        return self._answers("livenessProbe")

    def wait_until_ready(self) -> None:
        """Return once it is ready."""
        wait_for(f"readiness of {self.program.name}", self.ready)

    def wait_for_log(self, text: str) -> None:
        """Return once its log has *text*."""
        wait_for(f"{text!r} in the log of {self.program.name}", lambda: text in self.program.output())

    def _answers(self, probe: str) -> bool:
        get = self._container[probe]["httpGet"]
        assert get["port"] == "health", get
        return is_ready(self._port, get["path"], self.address)

    def _environment(self) -> dict[str, str]:
        host, _, port = self._member.service.rpartition(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nonexistent"}
        for variable in self._container["env"]:
            source = variable["valueFrom"]
            if "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "status.podIP", source
                found[variable["name"]] = self.address
            elif (value := self._secret(**source["secretKeyRef"])) is not None:
                found[variable["name"]] = value
        return found

    def _secret(self, name: str, key: str, *, optional: bool = False) -> str | None:
        text = self._member.kubectl(
            "-n", self._namespace, "get", "secret", name, "-o", "json", "--ignore-not-found"
        )
        if not text.strip():
            assert optional, f"there is no Secret {name}"
            return None
        return base64.b64decode(json.loads(text)["data"][key]).decode()

    def _write_account(self, files: Path) -> None:
        assert self._pod["automountServiceAccountToken"] is True
        account = self._pod["serviceAccountName"]
        token = self._member.kubectl("-n", self._namespace, "create", "token", account, "--duration=1h")
        files.mkdir()
        (files / "token").write_text(token.strip())
        (files / "ca.crt").write_bytes(self._member.ca.read_bytes())
        (files / "namespace").write_text(self._namespace)
