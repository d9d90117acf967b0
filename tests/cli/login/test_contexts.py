"""Tests of `tower.cli.login.contexts`."""

from __future__ import annotations

import os
import stat
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tower.cli.client import CommandFailed
from tower.cli.login.contexts import (
    ATTEMPTS,
    PAUSE,
    WrittenContexts,
    current_of_others,
    write_contexts,
)

SERVER = "https://tower.example.org"
PLUGIN = {"command": "tower", "args": ["credential", "get"]}


def entries(name: str, server: str) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": "t"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "n"}}],
    }


class ContextsTests(SynchronousTestCase):
    """A kubeconfig, new or of the user's."""

    def setUp(self) -> None:
        """Choose the file."""
        self.path = Path(self.mktemp()) / ".kube" / "config"
        self.slept: list[float] = []
        self.while_waiting: Callable[[], object] = lambda: None

    def write(self, *clusters: str, server: str = SERVER, ca: str = "PEM") -> WrittenContexts:
        """Write the contexts."""
        return write_contexts(str(self.path), server, ca, "jane", clusters, PLUGIN, self.sleep)

    def sleep(self, pause: float) -> None:
        """Let time pass; the other program ends if the test wants that."""
        self.slept.append(pause)
        self.while_waiting()

    def test_lock_is_released(self) -> None:
        """The contexts are written once another program has released its lock."""
        self.put({})
        lock = Path(f"{self.path}.lock")
        lock.touch()
        self.while_waiting = lock.unlink
        self.assertEqual(self.write("alpha").names, ("tower/alpha",))
        self.assertEqual(os.listdir(self.path.parent), ["config"])

    def content(self) -> dict[str, Any]:
        """Return the file's content."""
        found: dict[str, Any] = yaml.safe_load(self.path.read_text())
        return found

    def names(self, section: str = "contexts") -> list[str]:
        """Return the names of entries."""
        return [each["name"] for each in self.content()[section]]

    def put(self, content: dict[str, Any]) -> None:
        """Write the user's own file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(yaml.safe_dump(content))

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the file, as another program does."""
        content = self.content()
        change(content)
        self.put(content)

    def test_new(self) -> None:
        """A new file has the contexts, and the first one is current."""
        self.assertEqual(
            self.write("alpha", "beta"), WrittenContexts(("tower/alpha", "tower/beta"), (), "tower/alpha")
        )
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        content = self.content()
        cluster = {"server": f"{SERVER}/clusters/alpha", "certificate-authority-data": "UEVN"}
        self.assertEqual(content["clusters"][0], {"name": "tower/alpha", "cluster": cluster})
        own = {**PLUGIN, "args": ["credential", "get", "--cluster", "alpha"]}
        self.assertEqual(content["users"][0], {"name": "tower/alpha", "user": {"exec": own}})
        self.assertFalse(Path(f"{self.path}.lock").exists())

    def test_kept(self) -> None:
        """Foreign entries, unknown fields and the user's choices stay; clusters that are lost go."""
        mine = {**entries("mine", "https://c"), "current-context": "mine", "extra": [1]}
        self.put(mine)
        self.write("alpha", "beta")
        content = self.content()
        content["contexts"][1]["context"]["namespace"] = "chosen"
        self.path.write_text(yaml.safe_dump(content))
        self.assertEqual(self.write("alpha"), WrittenContexts(("tower/alpha",), ("tower/beta",), "mine"))
        content = self.content()
        self.assertEqual(content["contexts"][1]["context"]["namespace"], "chosen")
        self.assertEqual((content["extra"], content["contexts"][0]), ([1], mine["contexts"][0]))
        for section in ("clusters", "users", "contexts"):
            self.assertEqual(self.names(section), ["mine", "tower/alpha"])
        self.assertEqual(self.write().removed, ("tower/alpha",))
        for section in ("clusters", "users", "contexts"):
            self.assertEqual(content[section][0], mine[section][0])

    def test_issued_before(self) -> None:
        """A context that 'tower kubeconfig --merge' made for the same cluster is replaced."""
        self.put(entries("tower/alpha", f"{SERVER}/clusters/alpha"))
        self.write("alpha")
        content = self.content()
        self.assertEqual(content["users"][0]["user"]["exec"]["command"], "tower")
        self.assertEqual(content["contexts"][0]["context"]["namespace"], "n")

    def test_second_tower(self) -> None:
        """Contexts of a second Tower begin with its host, and stay so."""
        other = "https://other.example:8443"
        self.write("alpha")
        self.assertEqual(self.write("alpha", server=other).names, ("other.example/alpha",))
        self.write(server=SERVER)
        self.assertEqual(self.write("alpha", "beta", server=other).names[1], "other.example/beta")
        self.assertEqual(self.names(), ["other.example/alpha", "other.example/beta"])

    def test_same_host(self) -> None:
        """If contexts of another Tower have the host, those of a further one have the port, and keep it."""
        self.write("alpha")
        for server, name in (
            ("https://other.example:8443", "other.example/alpha"),
            ("https://other.example:9443", "other.example:9443/alpha"),
            ("https://[2001:db8::1]:8443", "[2001:db8::1]/alpha"),
        ):
            for _ in range(2):
                self.assertEqual(self.write("alpha", server=server).names, (name,))
        servers = [each["cluster"]["server"] for each in self.content()["clusters"]]
        self.assertEqual(
            servers,
            [
                f"{SERVER}/clusters/alpha",
                "https://other.example:8443/clusters/alpha",
                "https://other.example:9443/clusters/alpha",
                "https://[2001:db8::1]:8443/clusters/alpha",
            ],
        )
        self.write(server="https://other.example:8443")
        names = ("other.example:9443/alpha", "other.example:9443/beta")
        self.assertEqual(self.write("alpha", "beta", server="https://other.example:9443").names, names)

    def test_current_is_removed(self) -> None:
        """A login never changes the current context, also if it removes that context."""
        self.write("alpha", "beta")
        self.change(lambda content: content.update({"current-context": "tower/beta"}))
        self.assertEqual(
            self.write("alpha"), WrittenContexts(("tower/alpha",), ("tower/beta",), "tower/beta")
        )
        self.assertEqual(self.write("alpha").current, "tower/beta")
        self.assertEqual(self.write().current, "tower/beta")
        self.assertEqual(self.write("alpha", "beta").current, "tower/beta")
        self.assertEqual(self.content()["current-context"], "tower/beta")

    def test_no_current(self) -> None:
        """If the user chose no current context, a login sets none, unless the file had no context."""
        self.put(entries("mine", "https://c"))
        self.assertEqual(self.write("alpha").current, "")
        self.assertNotIn("current-context", self.content())
        self.put({})
        self.assertEqual(self.write("alpha").current, "tower/alpha")
        self.change(lambda content: content.update({"current-context": ""}))
        self.assertEqual(self.write("alpha", "beta").current, "")

    def test_current_of_another_file(self) -> None:
        """A current context that kubectl has from another file of $KUBECONFIG stays the current one."""
        self.put({**entries("mine", "https://c"), "current-context": "mine"})
        new = self.path.with_name("new")
        environ = {"KUBECONFIG": f"{new}:{self.path}"}
        self.assertEqual(current_of_others(str(new), environ), "mine")
        self.assertEqual(current_of_others(str(self.path), environ), "")
        self.assertEqual(current_of_others(str(self.path.with_name("third")), environ), "")
        self.assertEqual(current_of_others(str(self.path), {}), "")
        written = write_contexts(str(new), SERVER, "", "jane", ["alpha"], PLUGIN, current="mine")
        self.assertEqual(written.current, "mine")
        self.assertNotIn("current-context", yaml.safe_load(new.read_text()))
        self.path.write_text("{")
        self.assertEqual(current_of_others(str(new), environ), "")

    def rename(self, before: str, after: str) -> None:
        """Rename a context, as kubectl does."""

        def change(content: dict[str, Any]) -> None:
            (context,) = [each for each in content["contexts"] if each["name"] == before]
            context["name"] = after
            if content.get("current-context") == before:
                content["current-context"] = after

        self.change(change)

    def test_renamed(self) -> None:
        """A context keeps the name that the user gave it, and each login updates it."""
        self.write("alpha", "beta")
        for before, name in (("tower/alpha", "prod"), ("prod", "a/b"), ("a/b", "tower/beta-2")):
            self.rename(before, name)
            for _ in range(2):
                self.assertEqual(self.write("alpha", "beta", ca=name).names, (name, "tower/beta"))
            content = self.content()
            self.assertEqual((self.names(), content["current-context"]), ([name, "tower/beta"], name))
            self.assertEqual(self.names("users"), ["tower/alpha", "tower/beta"])
            authority = content["clusters"][0]["cluster"]["certificate-authority-data"]
            self.assertEqual(b64decode(authority).decode(), name, "it is updated")
        self.assertEqual(self.write("alpha", "gamma").names, ("tower/beta-2", "tower/gamma"))
        self.assertEqual(self.write("gamma").removed, ("tower/beta-2",))
        self.assertEqual(self.names("clusters"), ["tower/gamma"])

    def test_all_renamed(self) -> None:
        """The prefix of new contexts does not depend on the names that the user gave to the others."""
        other = "https://other.example:8443"
        self.write("alpha")
        self.write("alpha", server=other)
        for before, name in (("tower/alpha", "x/alpha"), ("other.example/alpha", "tower/alpha")):
            self.rename(before, name)
        self.assertEqual(self.write("alpha", "beta").names, ("x/alpha", "tower/beta"))
        self.assertEqual(
            self.write("alpha", "beta", server=other).names, ("tower/alpha", "other.example/beta")
        )
        self.assertEqual(self.write().removed, ("x/alpha", "tower/beta"))
        self.assertEqual(self.names(), ["tower/alpha", "other.example/beta"])

    def test_copied(self) -> None:
        """A context that the user made for the same cluster stays, with the entries that it uses."""
        self.write("alpha")
        own = {"name": "dev", "context": {"cluster": "tower/alpha", "user": "tower/alpha", "namespace": "d"}}
        self.change(lambda content: content["contexts"].append(own))
        self.assertEqual(self.write("alpha").names, ("tower/alpha",))
        self.assertEqual(self.write().removed, ("tower/alpha",))
        self.assertEqual(self.content()["contexts"], [own])
        self.assertEqual((self.names("clusters"), self.names("users")), (["tower/alpha"], ["tower/alpha"]))

    def test_pointed_elsewhere(self) -> None:
        """A context of a login that the user gave another cluster or server is the user's."""
        self.write("alpha", "beta")

        def change(content: dict[str, Any]) -> None:
            content["contexts"][0]["context"]["user"] = "tower/beta"
            content["clusters"][1]["cluster"]["server"] = "https://elsewhere"

        self.change(change)
        before = self.content()
        self.assertEqual(self.write().removed, ())
        self.assertEqual(self.content(), before)

    def test_foreign_context(self) -> None:
        """A context of another program with the same name is not changed."""
        content = entries("other.example/alpha", "https://elsewhere")
        content["contexts"] += entries("tower/x", "https://z")["contexts"]
        self.put(content)
        before = self.path.read_bytes()
        error = self.assertRaises(CommandFailed, self.write, "alpha", server="https://other.example")
        self.assertIn("which is not of https://other.example", str(error))
        self.assertEqual(self.path.read_bytes(), before)

    def test_bad_files(self) -> None:
        """A file that is locked, or no kubeconfig, is unchanged."""
        self.put({})
        lock = Path(f"{self.path}.lock")
        lock.touch()
        self.assertIn("is locked by", str(self.assertRaises(CommandFailed, self.write, "alpha")))
        self.assertEqual(self.slept, [PAUSE] * (ATTEMPTS - 1))
        lock.unlink()
        for text in ("- 1", "a: [", "clusters: 7"):
            self.path.write_text(text)
            self.assertRaises(CommandFailed, self.write, "alpha")
            self.assertEqual(self.path.read_text(), text)
        self.assertEqual(os.listdir(self.path.parent), ["config"])

    def test_link_and_mode(self) -> None:
        """A link to the file stays, and so does its mode."""
        self.put({})
        real = self.path.rename(self.path.with_name("real"))
        real.chmod(0o640)
        self.path.symlink_to(real)
        self.write("alpha")
        self.assertTrue(self.path.is_symlink())
        self.assertEqual(stat.S_IMODE(real.stat().st_mode), 0o640)

    def test_system_authorities(self) -> None:
        """A proxy with a public certificate needs no CA in the file."""
        self.write("alpha", ca="")
        self.assertEqual(self.content()["clusters"][0]["cluster"], {"server": f"{SERVER}/clusters/alpha"})
