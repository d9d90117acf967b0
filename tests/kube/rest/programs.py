"""A clock that runs credential plugins, and kubeconfigs with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.task import Clock

from tests.fakes.programs import FakeProgram

V1 = "client.authentication.k8s.io/v1"
SECRET = "s3cret-of-the-plugin"


class PluginClock(Clock):
    """A clock that runs programs: each writes what is wanted, and ends.

    :ivar writes: the output; None: the program waits.
    :ivar problem: raised instead of a start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[FakeProgram] = []
        self.status: int | None = 0
        self.problem: Exception | None = None
        self.writes: bytes | None = b""
        self.write(token=SECRET)

    def write(self, version: str = V1, **status: Any) -> None:
        """Set the status of the credential that is written."""
        credential = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        self.writes = json.dumps(credential).encode()

    def spawnProcess(self, protocol: Any, program: str, words: Any, environ: dict[str, str]) -> FakeProgram:
        """See ``IReactorProcess``."""
        if self.problem is not None:
            raise self.problem
        run = FakeProgram(protocol, program, list(words), environ)
        self.runs.append(run)
        if self.writes is not None:
            protocol.errReceived(b"stderr-" + SECRET.encode())
            protocol.outReceived(self.writes)
            run.end(self.status)
        return run


class PluginFolder:
    """A folder with a kubeconfig, and a program that can be found.

    :ivar user: the user of the kubeconfig.
    :ivar entry: the plugin of that user.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.path.mkdir()
        self.program = self.path / "get-token"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)
        self.environ = {"PATH": str(self.path.absolute()), "HOME": "/home/x"}
        self.entry: dict[str, Any] = {
            "apiVersion": V1,
            "command": "get-token",
            "interactiveMode": "Never",
        }
        self.user: dict[str, Any] = {"exec": self.entry}
        self.cluster: dict[str, Any] = {"server": "https://10.0.0.1:6443"}
        self._time = 1_000_000_000

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file whose time differs from that of all before it."""
        path = self.path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._time += 1
        os.utime(path, (self._time, self._time))
        return path

    def kubeconfig(self) -> Path:
        """Write the kubeconfig and return its path."""
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        }
        return self.write("kubeconfig", yaml.safe_dump(content))
