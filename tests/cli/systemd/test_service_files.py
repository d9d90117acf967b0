"""The files of the services, without a machine."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.client import CommandFailed
from tower.cli.systemd.service_files import MARK, ServiceFiles
from tower.control.proxy_options import Options as ProxyOptions
from tower.member.options import Options as AgentOptions

FINGERPRINT, CA_HASH = "SHA256:" + "A" * 43, "sha256:" + "0" * 64


def service(program: str, executable: str = "/srv/tower/bin/x") -> ServiceFiles:
    """Return the files of a program."""
    return ServiceFiles(program, Path(executable))


def settings(content: str, section: str = "Service") -> dict[str, str]:
    """Return the last values of a unit's section."""
    part = content.partition(f"[{section}]\n")[2].partition("\n[")[0]
    return dict(line.partition("=")[::2] for line in part.splitlines() if re.match(r"\w+=", line))


class FilesTests(SynchronousTestCase):
    """Names, modes and contents."""

    def test_marks(self) -> None:
        """The command recognizes its own files; the settings belong to the administrator, with mode 0600."""
        for program in ("proxy", "agent"):
            files = service(program)
            for file in (files.service, files.account):
                self.assertTrue(file.content.startswith(MARK), file.path)
                self.assertEqual((file.mode, file.kept), (0o644, False))
            self.assertEqual((files.settings.mode, files.settings.kept), (0o600, True))
        self.assertTrue(service("proxy").low_ports.content.startswith(MARK))

    def test_unit(self) -> None:
        """The unit runs the given program as its user, with its settings and its state directory."""
        for program, user in (("proxy", "tower"), ("agent", "tower-agent")):
            files = service(program)
            values = settings(files.service.content)
            self.assertEqual(values["ExecStart"], "/srv/tower/bin/x")
            self.assertEqual(values["EnvironmentFile"], str(files.settings.path))
            self.assertEqual((values["User"], values["StateDirectory"], values["LogsDirectory"]), (user,) * 3)
            self.assertIn(f"TOWER_STATE_DIR=%S/{user} ", values["Environment"])
            self.assertEqual((values["StateDirectoryMode"], values["Type"]), ("0700", "notify"))
            self.assertEqual(files.state, Path("/var/lib", user))
            self.assertIn(f'\nu {user} - "Tower {program}" /var/lib/{user}\n', files.account.content)

    def test_path(self) -> None:
        """A program's path that systemd would split or expand is rejected."""
        for path in ("/opt/my tower/x", "/opt/%h/x", "/opt/$x", '/opt/"x', "/opt/x\ny", "/opt/é"):
            error = self.assertRaises(CommandFailed, lambda path=path: service("proxy", path).service)
            self.assertIn("install Tower in /opt/tower", str(error))

    def test_low_ports(self) -> None:
        """The drop-in grants one capability, for which the user namespace of the unit must go."""
        values = settings(service("proxy").low_ports.content)
        self.assertEqual(values.pop("PrivateUsers"), "no")
        self.assertEqual(set(values.values()), {"CAP_NET_BIND_SERVICE"})
        self.assertEqual(set(values), {"AmbientCapabilities", "CapabilityBoundingSet"})


class SettingsTests(SynchronousTestCase):
    """The environment files, as a new administrator gets and fills them."""

    def variables(self, program: str) -> dict[str, str]:
        """Return the variables of all examples."""
        content = service(program).settings.content
        lines = [line.removeprefix("#") for line in content.splitlines() if line.startswith("#TOWER_")]
        self.assertEqual([line for line in content.splitlines() if line and not line.startswith("#")], [])
        return dict(line.split("=", 1) for line in lines)

    def test_proxy(self) -> None:
        """The proxy accepts all examples."""
        variables = self.variables("proxy")
        self.assertEqual(variables["TOWER_KUBECONFIG"], "/etc/tower/host.kubeconfig")
        kubeconfig = Path(self.mktemp())
        kubeconfig.write_text("{}")
        variables["TOWER_KUBECONFIG"] = str(kubeconfig)
        options = ProxyOptions(variables)
        options.parse([])
        self.assertEqual(set(options.given.values()), {"environment"})
        self.assertEqual(len(options.given), len(variables))
        self.assertEqual(options["publish-service-address"], "tower.example.org")

    def test_agent(self) -> None:
        """The agent accepts all examples, once the abbreviated values are complete."""
        kubeconfig = Path(self.mktemp())
        kubeconfig.write_text("{}")
        variables = self.variables("agent")
        self.assertEqual(variables["TOWER_KUBECONFIG"], "/etc/tower/agent.kubeconfig")
        variables |= {
            "TOWER_HOST_KEY": FINGERPRINT,
            "TOWER_CA_HASH": CA_HASH,
            "TOWER_TOKEN": "tower-x",
            "TOWER_KUBECONFIG": str(kubeconfig),
        }
        options = AgentOptions(variables)
        options.parse([])
        self.assertEqual(len(options.given), len(variables))
        self.assertEqual(options["name"], "alpha")
