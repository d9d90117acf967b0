"""The units of `deploy/systemd/`, checked by systemd's own tools; they need no running systemd."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.programs import run
from tower.cli.systemd.install import install
from tower.cli.systemd.machine import ServiceHost
from tower.cli.systemd.service_files import ServiceFiles

#: Highest exposure, in tenths: systemd's scale ends at 10.0, "OK" at 4.9.
EXPOSURE = 30


class UnitTests(SynchronousTestCase):
    """Both units, installed to an image with all drop-ins."""

    def setUp(self) -> None:
        """Install them."""
        if shutil.which("systemd-analyze") is None:
            raise SkipTest("systemd-analyze is missing: install systemd")
        self.root = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.root, True)
        for program in ("proxy", "agent"):
            executable = self.root / f"opt/bin/tower-{program}"
            executable.parent.mkdir(parents=True, exist_ok=True)
            executable.touch(0o755)
            service = ServiceFiles(program, executable)
            install(service, ServiceHost(self.root))

    def units(self) -> list[str]:
        """Return the paths of the units."""
        paths = sorted((self.root / "etc/systemd/system").glob("*.service"))
        self.assertEqual([path.name for path in paths], ["tower-agent.service", "tower-proxy.service"])
        return [str(path) for path in paths]

    def analyze(self, *argv: str, code: int = 0) -> str:
        """Run systemd-analyze; return its output."""
        done = run(["systemd-analyze", "--no-pager", *argv])
        output = (done.stdout + done.stderr).decode()
        self.assertEqual(done.returncode, code, output)
        return output

    def test_valid(self) -> None:
        """All settings and their values are known to systemd; another setting is reported."""
        self.assertEqual(self.analyze("verify", *self.units()), "")
        for unit in self.units():
            with open(unit, "a") as stream:
                stream.write("[Service]\nNoSuchSetting=yes\n")
            self.assertIn("NoSuchSetting", self.analyze("verify", unit))

    def test_exposure(self) -> None:
        """The sandbox of each unit is at least as tight as documented, also with low ports."""
        for unit in self.units():
            self.assertIn("Overall exposure", self.analyze(*self.security(unit)))
        proxy = self.units()[-1]
        with open(proxy, "a") as stream:
            stream.write(ServiceFiles("proxy", Path("/x")).low_ports.content)
        self.assertIn("Overall exposure", self.analyze(*self.security(proxy)))
        open_unit = self.root / "open.service"
        open_unit.write_text("[Service]\nExecStart=/bin/true\n")
        self.analyze(*self.security(str(open_unit)), code=1)

    def security(self, unit: str) -> list[str]:
        """Return the arguments of the check of a sandbox."""
        return ["security", "--offline=true", f"--threshold={EXPOSURE}", unit]

    def test_users(self) -> None:
        """The users are created without a login."""
        if os.geteuid() != 0:
            raise SkipTest("only root can create users")
        run(["systemd-sysusers", f"--root={self.root}"])
        lines = (self.root / "etc/passwd").read_text().splitlines()
        found = {line.split(":")[0]: line.split(":")[5:] for line in lines}
        self.assertEqual(found["tower"], ["/var/lib/tower", "/usr/sbin/nologin"])
        self.assertEqual(found["tower-agent"], ["/var/lib/tower-agent", "/usr/sbin/nologin"])

    def test_enabled(self) -> None:
        """The services of an image can be enabled."""
        service = ServiceFiles("proxy", self.root / "opt/bin/tower-proxy")
        install(service, ServiceHost(self.root), enable=True)
        link = self.root / "etc/systemd/system/multi-user.target.wants/tower-proxy.service"
        self.assertTrue(link.is_symlink())
