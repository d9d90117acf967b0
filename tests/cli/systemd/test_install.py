"""`tower install-systemd` on an image, and on a machine whose commands are recorded."""

from __future__ import annotations

import contextlib
import io
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.client import CommandFailed
from tower.cli.command import main
from tower.cli.systemd import install as installing
from tower.cli.systemd import machine as machines
from tower.cli.systemd.install import check_reachable, install, uninstall
from tower.cli.systemd.machine import ServiceHost, run_command
from tower.cli.systemd.service_files import ServiceFile, ServiceFiles

UNIT, SETTINGS = "etc/systemd/system/tower-proxy.service", "etc/tower/proxy.env"


class ServiceTestCase(SynchronousTestCase):
    """An empty image with its own systemd commands."""

    def setUp(self) -> None:
        """Make it, with the programs installed in it."""
        self.root = Path(self.mktemp()).absolute()
        scripts = self.root / "opt/tower/bin"
        scripts.mkdir(parents=True)
        for name in ("tower-proxy", "tower-agent"):
            (scripts / name).touch(0o755)
        self.patch(sysconfig, "get_path", lambda name: str(scripts))
        self.commands: list[str] = []
        self.machine = ServiceHost(self.root, lambda argv: self.commands.append(" ".join(argv)))
        self.proxy = ServiceFiles("proxy", Path("/opt/tower/bin/tower-proxy"))

    def text(self, path: str) -> str:
        """Return a file of the image."""
        return (self.root / path).read_text()

    def mode(self, path: str) -> int:
        """Return the mode of a file of the image."""
        return (self.root / path).stat().st_mode & 0o777


class InstallTests(ServiceTestCase):
    """Installation and update."""

    def test_files(self) -> None:
        """All files are written with their modes, whatever the umask."""
        before = os.umask(0o077)
        try:
            lines = install(self.proxy, self.machine, low_ports=True).splitlines()
        finally:
            os.umask(before)
        self.assertEqual([line.split()[0] for line in lines], ["created"] * 4)
        self.assertIn("ExecStart=/opt/tower/bin/tower-proxy\n", self.text(UNIT))
        self.assertIn("CAP_NET_BIND_SERVICE", self.text(f"{UNIT}.d/low-ports.conf"))
        self.assertIn("u tower ", self.text("etc/sysusers.d/tower-proxy.conf"))
        self.assertEqual((self.mode(UNIT), self.mode(SETTINGS)), (0o644, 0o600))
        self.assertEqual((self.mode("etc"), self.mode(f"{UNIT}.d")), (0o755, 0o755))
        self.assertEqual(self.commands, [])

    def test_again(self) -> None:
        """A second call changes nothing, a later version replaces the unit, and the settings are kept."""
        install(self.proxy, self.machine)
        (self.root / SETTINGS).write_text("TOWER_PORT=none\n")
        lines = install(self.proxy, self.machine).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["kept", "unchanged", "unchanged"])
        newer = ServiceFiles("proxy", Path("/opt/tower-2/bin/tower-proxy"))
        (self.root / UNIT).chmod(0o600)
        self.assertIn(f"replaced {self.root / UNIT}", install(newer, self.machine))
        self.assertIn("ExecStart=/opt/tower-2/bin/tower-proxy\n", self.text(UNIT))
        self.assertEqual((self.mode(UNIT), self.text(SETTINGS)), (0o644, "TOWER_PORT=none\n"))
        self.assertEqual(list(self.root.rglob("*.new")), [])

    def test_foreign(self) -> None:
        """A unit of another origin, or a masked one, stops the command before anything is written."""
        unit = self.root / UNIT
        unit.parent.mkdir(parents=True)
        unit.write_text("[Service]\n")
        error = str(self.assertRaises(CommandFailed, install, self.proxy, self.machine))
        self.assertEqual(error, f"{unit} was not written by this command: rename or remove it first")
        unit.unlink()
        unit.symlink_to("/dev/null")
        error = str(self.assertRaises(CommandFailed, install, self.proxy, self.machine))
        self.assertIn("systemctl unmask tower-proxy.service", error)
        self.assertFalse((self.root / SETTINGS).exists())

    def test_unwritable(self) -> None:
        """A directory that cannot be created is named."""
        (self.root / "etc").touch()
        error = str(self.assertRaises(CommandFailed, install, self.proxy, self.machine))
        self.assertTrue(error.endswith("Not a directory"), error)

    def test_enable_image(self) -> None:
        """A service of an image is enabled, but not started."""
        install(self.proxy, self.machine, enable=True)
        self.assertEqual(self.commands, [f"systemctl --root={self.root} enable tower-proxy.service"])

    def test_uninstall(self) -> None:
        """The service's files are removed; its settings, and drop-ins of the administrator, are kept."""
        install(self.proxy, self.machine, low_ports=True)
        preview = uninstall(self.proxy, self.machine, dry_run=True)
        self.assertEqual(len([line for line in preview.splitlines() if "would remove" in line]), 3)
        self.assertTrue((self.root / UNIT).exists())
        text = uninstall(self.proxy, self.machine)
        self.assertIn("the user tower: remove", text)
        left = [str(path.relative_to(self.root / "etc")) for path in (self.root / "etc").rglob("*")]
        self.assertEqual(
            sorted(left), ["systemd", "systemd/system", "sysusers.d", "tower", "tower/proxy.env"]
        )
        self.assertEqual(self.commands, [f"systemctl --root={self.root} disable tower-proxy.service"])
        self.assertIn("there is no service to remove", uninstall(self.proxy, self.machine))

        install(self.proxy, self.machine, low_ports=True)
        own = self.root / f"{UNIT}.d/override.conf"
        own.touch()
        uninstall(self.proxy, self.machine)
        self.assertTrue(own.exists())


class LiveHost(ServiceHost):
    """A machine with systemd, whose files are in an image."""

    is_image = False


class MachineTests(ServiceTestCase):
    """A machine on which systemd runs."""

    def setUp(self) -> None:
        """Let the checks of the machine succeed."""
        super().setUp()
        self.machine = LiveHost(self.root, lambda argv: self.commands.append(" ".join(argv)))
        self.patch(os, "geteuid", lambda: 0)
        self.patch(machines, "BOOTED", self.root)
        self.patch(installing, "check_reachable", lambda *paths: None)

    def test_proxy(self) -> None:
        """The user is created before systemd reads the unit; a proxy starts with its defaults."""
        text = install(self.proxy, self.machine, enable=True)
        self.assertEqual(
            self.commands,
            [
                "systemd-sysusers /etc/sysusers.d/tower-proxy.conf",
                "systemctl daemon-reload",
                "systemctl enable --now tower-proxy.service",
            ],
        )
        self.assertIn(
            "set TOWER_PUBLISH_SERVICE_ADDRESS in /etc/tower/proxy.env, then run: systemctl restart", text
        )

    def test_agent(self) -> None:
        """An agent does not start before it has its options, which it cannot guess."""
        agent = ServiceFiles("agent", Path("/opt/tower/bin/tower-agent"))
        text = install(agent, self.machine, enable=True)
        self.assertEqual(self.commands[-1], "systemctl enable tower-agent.service")
        self.assertIn("set the options in /etc/tower/agent.env, then run: systemctl start tower-agent", text)
        install(agent, self.machine, enable=True)
        self.assertEqual(self.commands[-1], "systemctl enable --now tower-agent.service")

    def test_later(self) -> None:
        """Without --enable, the next step is named."""
        self.assertIn("then run: systemctl enable --now tower-proxy", install(self.proxy, self.machine))
        self.assertIn("systemctl restart tower-proxy", install(self.proxy, self.machine))

    def test_uninstall(self) -> None:
        """The service is stopped before its files are removed."""
        install(self.proxy, self.machine)
        self.commands.clear()
        uninstall(self.proxy, self.machine)
        self.assertEqual(
            self.commands, ["systemctl disable --now tower-proxy.service", "systemctl daemon-reload"]
        )

    def test_rejected(self) -> None:
        """Other users than root, and a machine without systemd, get the cure."""
        self.patch(os, "geteuid", lambda: 1000)
        self.assertIn("sudo", str(self.assertRaises(CommandFailed, install, self.proxy, self.machine)))
        self.patch(os, "geteuid", lambda: 0)
        self.patch(machines, "BOOTED", self.root / "none")
        for action in (install, uninstall):
            (self.root / UNIT).parent.mkdir(parents=True, exist_ok=True)
            (self.root / UNIT).touch()
            self.assertIn(
                "--root DIR", str(self.assertRaises(CommandFailed, action, self.proxy, self.machine))
            )


class ReachTests(SynchronousTestCase):
    """Programs that the service's user can or cannot run."""

    def test_hidden(self) -> None:
        """Home directories and temporary directories are hidden from the service."""
        for path in ("/home/jane/tower/bin/tower-proxy", "/root/.pyenv/bin/python", "/tmp/venv"):
            error = str(self.assertRaises(CommandFailed, check_reachable, Path(path)))
            self.assertIn(f"{path} is below ", error)
            self.assertIn("python3 -m venv /opt/tower", error)
        check_reachable(Path("/usr/bin"), Path("/opt/none/bin/tower-proxy"))

    def test_private(self) -> None:
        """A directory without access for other users is named."""
        folder = Path(self.mktemp()).absolute()
        (folder / "bin").mkdir(parents=True)
        self.patch(installing, "_HIDDEN", ())
        (folder / "bin").chmod(0o700)
        error = str(self.assertRaises(CommandFailed, check_reachable, folder / "bin"))
        self.assertIn(f"{folder / 'bin'} is not accessible", error)


class CommandTests(ServiceTestCase):
    """The command line."""

    def tower(self, *argv: str) -> tuple[int, str, str]:
        """Run the command; return its exit code and both outputs."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["install-systemd", *argv], environ={})
        return code, out.getvalue(), err.getvalue()

    def test_dry_run(self) -> None:
        """A dry run shows the contents and the commands, and writes nothing."""
        code, out, _ = self.tower("proxy", "--root", str(self.root), "--dry-run", "--low-ports", "--enable")
        self.assertEqual(code, 0)
        for text in (
            "(mode 0600)",
            "ExecStart=/opt/tower/bin/tower-proxy\n",
            "CAP_NET",
            "would run systemctl --root=",
        ):
            self.assertIn(text, out)
        self.assertFalse((self.root / "etc").exists())
        self.tower("proxy", "--root", str(self.root))
        self.assertIn("would keep", self.tower("proxy", "--root", str(self.root), "--dry-run")[1])

    def test_wrong_use(self) -> None:
        """Options that contradict each other, and a missing image, are rejected."""
        for argv, code, text in (
            (("agent", "--low-ports"), 2, "--low-ports is for the proxy"),
            (("proxy", "--uninstall", "--enable"), 2, "omit --enable"),
            (("proxy", "--root", f"{self.root}/none"), 1, "is not a directory"),
        ):
            found, out, err = self.tower(*argv)
            self.assertEqual((found, out, err.count("\n")), (code, "", 1))
            self.assertIn(text, err)

    def test_uninstall(self) -> None:
        """The files can be removed from an image that never had them."""
        code, out, _ = self.tower("agent", "--root", str(self.root), "--uninstall")
        self.assertEqual(code, 0)
        self.assertIn("there is no service to remove", out)

    def test_not_installed(self) -> None:
        """A command without the programs next to it is rejected."""
        self.patch(sysconfig, "get_path", lambda name: "/none")
        self.patch(installing.sys, "argv", ["/none/tower"])  # type: ignore[attr-defined]
        self.assertIn("tower-proxy is not installed", self.tower("proxy", "--dry-run")[2])


class FileAndCommandTests(SynchronousTestCase):
    """Files and commands."""

    def test_large(self) -> None:
        """A directory is neither read nor replaced."""
        machine = ServiceHost(Path(self.mktemp()).absolute())
        (machine.root / "etc/x").mkdir(parents=True)
        file = ServiceFile(Path("/etc/x"), "")
        for action in (machine.check_owner, machine.write):
            self.assertIn("cannot read", str(self.assertRaises(CommandFailed, action, file)))
        self.assertIn("cannot remove", str(self.assertRaises(CommandFailed, machine.remove, file)))

    def test_commands(self) -> None:
        """A missing command, and the last line of one that fails, are in the error."""
        for argv, text in (
            (
                ["none-such-command", "x"],
                "cannot run 'none-such-command x': No such file or directory: install",
            ),
            (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "failed: two"),
            (["sh", "-c", "exit 3"], "failed: exit code 3"),
        ):
            argument: Sequence[str] = argv
            self.assertIn(text, str(self.assertRaises(CommandFailed, run_command, argument)))
        run_command(["true"])
