"""Tests of `tower.kube.rest.plugin_command`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, pem
from tests.kube.rest.programs import SECRET, V1, PluginFolder
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import load_kubeconfig
from tower.kube.rest.plugin_command import PluginCommand


class PluginCommandTests(SynchronousTestCase):
    """Entries of kubeconfigs."""

    def setUp(self) -> None:
        """Make a folder."""
        self.folder = PluginFolder(self.mktemp())

    def read(self) -> PluginCommand:
        """Return the plugin of the kubeconfig."""
        command = PluginCommand.of(load_kubeconfig(self.folder.kubeconfig(), allow_plugin=True))
        assert command is not None
        return command

    def wrong(self, **entry: Any) -> str:
        """Return the error for a changed entry: one line with the file and the user, without secrets."""
        before = dict(self.folder.entry)
        self.folder.entry.update(entry)
        error = str(self.assertRaises(ConfigurationError, self.read))
        self.folder.entry.clear()
        self.folder.entry.update(before)
        self.assertIn(f"kubeconfig {self.folder.path / 'kubeconfig'}: exec of user 'u'", error)
        self.assertNotIn("\n", error)
        self.assertNotIn(SECRET, error)
        return error

    def test_least(self) -> None:
        """A command alone gets the protocol's input, and its name is searched for."""
        command = self.read()
        self.assertEqual(command.words, ("get-token",))
        environment = command.environment({"PATH": "/bin"})
        self.assertEqual(environment["PATH"], "/bin")
        self.assertEqual(
            json.loads(environment["KUBERNETES_EXEC_INFO"]),
            {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}},
        )

    def test_arguments(self) -> None:
        """Arguments and variables are passed; a path refers to the kubeconfig's folder."""
        env = [{"name": "A", "value": SECRET}, {"name": "PATH", "value": "/x"}, {"name": "B"}]
        self.folder.entry.update(command="./bin/get", args=["--secret", SECRET], env=env)
        command = self.read()
        self.assertEqual(
            command.words, (str(self.folder.path.absolute() / "bin" / "get"), "--secret", SECRET)
        )
        environment = command.environment({"PATH": "/bin", "C": "1"})
        del environment["KUBERNETES_EXEC_INFO"]
        self.assertEqual(environment, {"A": SECRET, "PATH": "/x", "B": "", "C": "1"})
        self.assertNotIn(SECRET, command.shown + command.where)

    def test_relative_kubeconfig(self) -> None:
        """A path stays one if the kubeconfig is named without a directory."""
        self.folder.entry.update(command="./get")
        self.folder.kubeconfig()
        before = Path.cwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder.path)
        command = PluginCommand.of(load_kubeconfig("kubeconfig", allow_plugin=True))
        assert command is not None
        self.assertEqual(command.words, (str(Path.cwd() / "get"),))

    def test_absolute(self) -> None:
        """An absolute path stays."""
        self.folder.entry.update(command="/opt/bin/get")
        self.assertEqual(self.read().words, ("/opt/bin/get",))

    def test_cluster(self) -> None:
        """With provideClusterInfo the program gets the cluster and its settings."""
        authority = pem(family()[0][0])
        self.folder.write("ca.crt", authority)
        config = {"audience": "x"}
        self.folder.cluster |= {
            "certificate-authority": "ca.crt",
            "tls-server-name": "kubernetes",
            "insecure-skip-tls-verify": True,
            "proxy-url": "http://squid:3128",
            "extensions": [{"name": "o"}, {"name": "client.authentication.k8s.io/exec", "extension": config}],
        }
        self.folder.entry["provideClusterInfo"] = True
        cluster = json.loads(self.read().input)["spec"]["cluster"]
        self.assertTrue(cluster.pop("certificate-authority-data"))
        self.assertEqual(
            cluster,
            {
                "server": "https://10.0.0.1:6443",
                "tls-server-name": "kubernetes",
                "insecure-skip-tls-verify": True,
                "proxy-url": "http://squid:3128",
                "config": config,
            },
        )

    def test_versions(self) -> None:
        """Only current protocols are supported; v1 requires the mode."""
        self.assertIn(
            "'client.authentication.k8s.io/v1alpha1'",
            self.wrong(apiVersion="client.authentication.k8s.io/v1alpha1"),
        )
        self.assertIn("apiVersion ''", self.wrong(apiVersion=None))
        self.assertIn("interactiveMode ''", self.wrong(interactiveMode=None))
        self.folder.entry["apiVersion"] = f"{V1}beta1"
        del self.folder.entry["interactiveMode"]
        self.assertEqual(self.read().version, f"{V1}beta1")

    def test_terminal(self) -> None:
        """A plugin that needs a terminal is rejected; one that can use one is not."""
        self.assertIn("needs a terminal", self.wrong(interactiveMode="Always"))
        self.assertIn("'never'", self.wrong(interactiveMode="never"))
        self.folder.entry["interactiveMode"] = "IfAvailable"
        self.read()

    def test_odd_entries(self) -> None:
        """Values of other types are named."""
        for key, value in (
            ("command", ""),
            ("command", ["get-token"]),
            ("command", "a\0b"),
            ("args", "x"),
            ("args", [1]),
            ("args", ["a\0b"]),
            ("env", "x"),
            ("env", ["A=b"]),
            ("env", [{"name": 1, "value": "x"}]),
            ("env", [{"name": "A", "value": 1}]),
            ("env", [{"name": "A", "value": "\0"}]),
            ("env", [{"name": "A=B", "value": "x"}]),
            ("env", [{"value": "x"}]),
            ("installHint", 1),
        ):
            self.assertIn(key, self.wrong(**{key: value}))

    def test_not_found(self) -> None:
        """The text for a missing program has the hint and the cure."""
        self.folder.entry["installHint"] = "run\n  apt install it"
        self.folder.program.unlink()
        error = self.assertRaises(ConfigurationError, self.read().program, self.folder.environ)
        self.assertIn("get-token was not found in PATH; run apt install it: install it, or give", str(error))
        self.folder.entry.update(command="/nowhere/get", installHint="")
        error = self.assertRaises(ConfigurationError, self.read().program, self.folder.environ)
        self.assertIn("/nowhere/get was not found: install it", str(error))
