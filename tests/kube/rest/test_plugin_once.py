"""Tests of `tower.kube.rest.plugin_once`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.programs import SECRET, V1
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.exec_plugin import TIMEOUT
from tower.kube.rest.plugin_once import with_credential

PLUGIN = {"apiVersion": V1, "command": "/bin/sh", "args": ["x"], "interactiveMode": "Never"}


class PluginOnceTests(SynchronousTestCase):
    """A plugin whose runs are of the test."""

    def setUp(self) -> None:
        """Let it write a token."""
        self.access = KubeAccess("https://h", plugin=PLUGIN, user="jane")
        self.runs: list[tuple[list[str], dict[str, str]]] = []
        status = {"token": SECRET, "expirationTimestamp": "2026-11-23T10:00:00Z"}
        written = {"kind": "ExecCredential", "apiVersion": V1, "status": status}
        self.result: subprocess.CompletedProcess[bytes] | Exception
        self.result = subprocess.CompletedProcess([], 0, json.dumps(written).encode())
        self.patch(subprocess, "run", self.run_plugin)

    def run_plugin(self, argv: list[str], *, env: dict[str, str], **_: Any) -> Any:
        """Run it."""
        self.runs.append((argv, env))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def failed(self) -> str:
        """Return the error."""
        text = str(self.assertRaises(ConfigurationError, with_credential, self.access, {}))
        self.assertIn("exec of user 'jane': /bin/sh", text)
        self.assertNotIn(SECRET, text)
        return text

    def test_token(self) -> None:
        """The token and its expiry are used, and the plugin stays for the next one."""
        found, until = with_credential(self.access, {"A": "b"})
        self.assertEqual((found.token, found.plugin, until), (SECRET, PLUGIN, 1795428000.0))
        ((argv, environ),) = self.runs
        self.assertEqual((argv, environ["A"]), (["/bin/sh", "x"], "b"))
        self.assertIn("KUBERNETES_EXEC_INFO", environ)

    def test_none(self) -> None:
        """Without a plugin, nothing runs."""
        access = KubeAccess("https://h", token="t")
        self.assertEqual(with_credential(access, {}), (access, None))
        self.assertEqual(self.runs, [])

    def test_failures(self) -> None:
        """Each failure is one line with the cause."""
        for result, text in (
            (subprocess.CompletedProcess([], 3, SECRET.encode()), "exit code 3"),
            (subprocess.CompletedProcess([], 0, SECRET.encode()), "no JSON"),
            (subprocess.TimeoutExpired("x", TIMEOUT), "did not end within"),
            (PermissionError(13, "Permission denied"), "Permission denied"),
        ):
            self.result = result
            self.assertIn(text, self.failed())
        self.access = KubeAccess("https://h", plugin={**PLUGIN, "command": "/no/such"}, user="jane")
        error = self.assertRaises(ConfigurationError, with_credential, self.access, {})
        self.assertIn("/no/such was not found", str(error))

    def test_current_directory(self) -> None:
        """A program of the current directory is found by a path only."""
        self.access = KubeAccess("https://h", plugin={**PLUGIN, "command": "sh"}, user="jane")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir("/bin")
        for path in ("", ".", "../bin", ":."):
            error = self.assertRaises(ConfigurationError, with_credential, self.access, {"PATH": path})
            self.assertIn("sh was not found in PATH", str(error))
        with_credential(self.access, {"PATH": ".:/bin"})
        self.assertEqual(self.runs[0][0][0], "/bin/sh")
