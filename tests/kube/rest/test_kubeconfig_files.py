"""Tests for `tower.kube.rest.kubeconfig_files`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.rest.kubeconfig_files import KubeconfigFiles, cluster_of


def content(
    name: str, server: str, user: dict[str, Any], current: str = "", **cluster: object
) -> dict[str, Any]:
    """Return a kubeconfig whose context, cluster and user have one name."""
    return {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


class FilesTests(SynchronousTestCase):
    """Kubeconfigs of a user."""

    def setUp(self) -> None:
        """Make two directories."""
        self.home = Path(self.mktemp()).absolute()
        self.first, self.second = self.home / "a" / "config", self.home / "b" / "config"
        for path in (self.first, self.second):
            path.parent.mkdir(parents=True)

    def both(self) -> KubeconfigFiles:
        """Return both files as one."""
        return KubeconfigFiles((self.first, self.second))

    def test_paths(self) -> None:
        """$KUBECONFIG precedes the file in the home directory; files that do not exist are left out."""
        self.assertEqual(KubeconfigFiles.of({}).paths, ())
        self.assertEqual(KubeconfigFiles.of({"HOME": str(self.home)}).paths, ())
        own = self.home / ".kube" / "config"
        own.parent.mkdir()
        for path in (own, self.first, self.second):
            path.write_text("{}")
        environ = {"HOME": str(self.home)}
        self.assertEqual(KubeconfigFiles.of(environ).paths, (own,))
        environ["KUBECONFIG"] = f"{self.first}:/nowhere::{self.second}"
        self.assertEqual(KubeconfigFiles.of(environ).paths, (self.first, self.second))

    def test_forbidden(self) -> None:
        """A file in an unreadable directory is kept: reading it gives the reason."""

        def refuse(path: Path) -> bool:
            raise PermissionError(13, "Permission denied", str(path))

        self.patch(Path, "exists", refuse)
        self.assertEqual(len(KubeconfigFiles.of({"HOME": str(self.home)}).paths), 1)

    def test_merged(self) -> None:
        """The first file that has an entry or a current context counts; entries can be in several files."""
        first = content("one", "https://first", {"token": "t1"})
        first["contexts"].append({"name": "mixed", "context": {"cluster": "two", "user": "one"}})
        second = content("one", "https://other", {"token": "t9"}, "mixed")
        second["clusters"].append({"name": "two", "cluster": {"server": "https://second"}})
        self.first.write_text(yaml.safe_dump(first))
        self.second.write_text(yaml.safe_dump(second))
        self.assertEqual(self.both().current(), "mixed")
        access = self.both().load(None)
        self.assertEqual((access.server, access.token), ("https://second", "t1"))
        self.assertEqual(self.both().load("one").server, "https://first")
        error = self.assertRaises(ConfigurationError, self.both().load, "three")
        self.assertIn(f"kubeconfig {self.first}:{self.second}: has no context 'three'", str(error))

    def test_relative_paths(self) -> None:
        """Paths in a file are relative to it, also those of plugins; the name of a program is not a path."""
        user = {"tokenFile": "token", "exec": {"command": "bin/plugin"}}
        self.first.write_text(yaml.safe_dump(content("one", "https://h", {"exec": {"command": "tower"}})))
        self.second.write_text(yaml.safe_dump(content("two", "https://h", user, "two")))
        access = self.both().load(None)
        self.assertEqual(access.token_file, self.second.parent / "token")
        self.assertEqual(access.plugin, {"command": str(self.second.parent / "bin" / "plugin")})
        self.assertEqual(self.both().load("one").plugin, {"command": "tower"})

    def test_clusters(self) -> None:
        """Contexts for clusters behind Tower are known by the path of their servers."""
        self.first.write_text(yaml.safe_dump(content("tower/a", "https://h:1/clusters/a", {})))
        self.second.write_text(yaml.safe_dump(content("mine", "https://h:6443", {})))
        self.assertEqual(self.both().clusters(), {"tower/a": "a"})
        self.assertEqual(cluster_of("https://h/clusters/a/"), "a")
        for server in ("https://h", "https://h/k8s/clusters/a", "https://h/clusters/a/b"):
            self.assertIsNone(cluster_of(server))

    def test_damaged(self) -> None:
        """Entries of wrong types are ignored; a file that is not YAML is named."""
        self.first.write_text("{contexts: [1, {name: a}, {name: b, context: 3}], clusters: {}, users: x}")
        self.second.write_text("[]")
        self.assertEqual(self.both().clusters(), {})
        self.assertEqual(self.both().current(), "")
        self.second.write_text("{")
        error = self.assertRaises(ConfigurationError, self.both().clusters)
        self.assertIn(f"kubeconfig {self.second}: not YAML", str(error))
