"""Tests of `tower.nodes.record_files`."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.cluster import Cluster
from tower.clusters.ssh_spec import DefaultCluster, SSHSpec
from tower.clusters.ssh_spec_object import PATHS
from tower.errors import ConfigurationError, Invalid
from tower.files import Beneath
from tower.nodes.record_files import NodeFiles

SPEC = SSHSpec("core", "id", nodes=("a:1",))


def changed(attribute: str, name: str) -> SSHSpec:
    """Return a spec that names a file."""
    change: Any = {attribute: name}
    return evolve(SPEC, **change)


class NodeFilesTests(SynchronousTestCase):
    """Which files may be named."""

    files = NodeFiles(Path("/srv/files"))

    def test_good(self) -> None:
        """A name is relative to the directory, and an absolute path may be in it."""
        for name, path in (("id", "id"), ("a/b", "a/b"), ("/srv/files/a", "a"), ("..data/id", "..data/id")):
            for attribute in PATHS:
                spec = changed(attribute, name)
                self.files.check("beta", spec)
                placed = self.files.find("beta", attribute, spec)
                self.assertEqual(placed.path, Path("/srv/files") / path)
                self.assertIsInstance(placed.files, Beneath)
                self.assertEqual(list(self.files.problems("beta", spec)), [])

    def test_linked_directory(self) -> None:
        """If the directory is a link, paths in its target are accepted too."""
        folder = Path(self.mktemp()).absolute()
        (folder / "real").mkdir(parents=True)
        (folder / "link").symlink_to("real")
        files = NodeFiles(folder / "link")
        for name in ("link", "real"):
            files.check("beta", evolve(SPEC, key_file=f"{folder}/{name}/id"))

    def test_bad(self) -> None:
        """Everything else is refused by field and value, unless the record has it already."""
        for path in ("/etc/shadow", "../id", "/srv/files/../x", "a/../b", "/srv/files", ".", "/srv/files2/x"):
            for attribute in PATHS:
                spec = changed(attribute, path)
                error = self.assertRaises(Invalid, self.files.check, "beta", spec)
                self.assertIn(f"{path!r}: must be below /srv/files (--node-files of tower-proxy)", str(error))
                self.files.check("beta", spec, spec)
                self.assertRaises(Invalid, self.files.check, "beta", spec, SPEC)

    def test_given(self) -> None:
        """Files of the command line may be anywhere, for that cluster and that field alone."""
        given = evolve(SPEC, key_file="/etc/tower/id", known_hosts="/etc/tower/known")
        files = NodeFiles(Path("/srv/files"), DefaultCluster("default", given, None))
        files.check("default", given)
        placed = files.find("default", "key_file", given)
        self.assertEqual(placed.path, Path("/etc/tower/id"))
        self.assertNotIsInstance(placed.files, Beneath)
        self.assertRaises(Invalid, files.check, "beta", given)
        self.assertRaises(Invalid, files.check, "default", evolve(given, key_file="/etc/tower/other"))
        self.assertRaises(Invalid, files.check, "default", evolve(SPEC, nodes_file="/etc/tower/id"))

    def test_unshared(self) -> None:
        """Files in a cache, which other proxies do not have, are a problem with its cure; others are not."""
        beta, gamma = (Cluster(name, "uid", 0, 0.0, ssh=SPEC) for name in ("beta", "gamma"))
        agent = Cluster("alpha", "uid", 0, 0.0)
        self.assertEqual(self.files.unshared([agent, beta]), [])
        files = evolve(self.files, is_cache=True)
        (text,) = files.unshared([agent, beta])
        self.assertIn("cluster beta names files below /srv/files, which is a cache of this proxy", text)
        self.assertIn("set --node-files", text)
        (text,) = files.unshared([gamma, agent, beta])
        self.assertIn("2 clusters such as beta name files", text)
        self.assertEqual(files.unshared([agent]), [])
        given = evolve(files, given=DefaultCluster("beta", SPEC, None))
        self.assertEqual(given.unshared([beta]), [])

    def test_problems(self) -> None:
        """Each file of an old record is reported, with a command that copies it."""
        spec = evolve(SPEC, key_file="/etc/tower/id rsa", known_hosts="/etc/tower/beta.known_hosts")
        key, known = self.files.problems("beta", spec)
        self.assertIn("spec.connection.ssh.keyFile: '/etc/tower/id rsa' is outside /srv/files", key)
        self.assertIn("cp -p '/etc/tower/id rsa' '/srv/files/beta-id rsa' && ", key)
        self.assertIn("&& tower cluster set beta --ssh-keyfile 'beta-id rsa'", key)
        self.assertIn("cp -p /etc/tower/beta.known_hosts /srv/files/beta.known_hosts && ", known)
        self.assertIn("tower cluster set beta --ssh-known-hosts beta.known_hosts", known)


class PrepareTests(SynchronousTestCase):
    """The start of the program."""

    def setUp(self) -> None:
        """A state directory."""
        self.folder = Path(self.mktemp()).absolute()
        self.state = self.folder / "state"
        self.state.mkdir(parents=True)

    def test_made(self) -> None:
        """The directory is created with mode 0700; an existing one is unchanged."""
        files = NodeFiles(self.state / "node-files")
        files.prepare(self.state)
        self.assertEqual(stat.S_IMODE(files.directory.stat().st_mode), 0o700)
        files.directory.chmod(0o750)
        files.prepare(self.state)
        self.assertEqual(stat.S_IMODE(files.directory.stat().st_mode), 0o750)

    def test_holds_secrets(self) -> None:
        """The state directory, what is above it, and what holds other keys are refused."""
        (self.folder / "link").symlink_to("state")
        for path, apart in (
            (self.state, self.state),
            (self.folder, self.state),
            (self.folder / "link", self.state),
            (self.folder / "files", self.folder / "files" / "ca.key"),
        ):
            error = self.assertRaises(ConfigurationError, NodeFiles(path).prepare, apart)
            self.assertIn(f"--node-files {path}: contains {apart}", str(error))

    def test_no_directory(self) -> None:
        """An unusable directory is rejected at the start."""
        (self.folder / "file").touch()
        error = self.assertRaises(ConfigurationError, NodeFiles(self.folder / "file").prepare)
        self.assertIn("--node-files", str(error))
