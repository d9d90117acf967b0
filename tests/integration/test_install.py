"""Files that ``pip install`` gives to a user without a checkout."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.member import kubectls
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, is_ready, run, wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
PIP_PATIENCE = 300.0  # s
SOURCES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "deploy", "tools/wheels", "tower", "twisted")


class InstallTests(SynchronousTestCase):
    """The wheel in a new environment, used from outside the source tree."""

    def setUp(self) -> None:
        """Make an empty folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def do(self, *argv: str | Path, path: Path | None = None) -> str:
        """Run a command in the empty folder; it must succeed; return its output."""
        environment = {"TOWER_NATIVE": "", "CC": "/nonexistent/cc", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment["PYTHONPATH"] = ""  # the checkout there would count as an installed Tower
        if path is not None:
            environment["PATH"] = f"{path}:/usr/bin:/bin"
        done = run(
            [str(each) for each in argv], timeout=PIP_PATIENCE, environment=environment, folder=self.folder
        )
        output = (done.stdout + done.stderr).decode(errors="replace")
        self.assertEqual(done.returncode, 0, output)
        return output

    def wheel(self) -> Path:
        """Build the wheel from a copy of the sources, without leftovers, a compiler or a warning."""
        copy = self.folder / "source"
        copy.mkdir()
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source,
                    copy / name,
                    symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__", "dropin.cache"),
                )
            else:
                shutil.copy(source, copy / name)
        pip = (sys.executable, "-m", "pip")
        self.assertEqual(self.do(*pip, "wheel", "-q", "--no-deps", "-w", self.folder / "dist", copy), "")
        shutil.rmtree(copy)
        (built,) = (self.folder / "dist").glob("*.whl")
        return built

    def test_wheel(self) -> None:
        """The wheel has both programs, twistd's services and kubectl's plugin; the unit starts the proxy."""
        wheel = self.wheel()
        archive = zipfile.ZipFile(wheel)
        names = archive.namelist()
        self.assertIn("twisted/plugins/tower_plugins.py", names)
        self.assertNotIn("twisted/__init__.py", names)
        self.assertNotIn("twisted/plugins/__init__.py", names)
        self.assertFalse([name for name in names if name.startswith(("tests/", "demo/", "benchmarks/"))])
        deployed = {
            f"tower/{path.relative_to(ROOT)}" for path in (ROOT / "deploy").rglob("*") if path.is_file()
        }
        self.assertIn("tower/deploy/systemd/tower-proxy.service", deployed)
        self.assertEqual({name for name in names if name.startswith("tower/deploy/")}, deployed)
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(about).decode()
        self.assertIn("\nLicense-Expression: Apache-2.0\n", metadata)
        self.assertIn("\nLicense-File: LICENSE\n", metadata)
        (license_file,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
        self.assertIn(b"Apache License\n                           Version 2.0", archive.read(license_file))

        environment = self.folder / "venv"
        self.do(sys.executable, "-m", "venv", environment)
        commands = environment / "bin"
        lock = ROOT / "requirements.lock"
        self.assertEqual(self.do(commands / "python", "-m", "pip", "install", "-q", "-c", lock, wheel), "")

        services = self.do(commands / "twistd", "--help")
        for name in ("tower-proxy", "tower-agent"):
            self.assertIn(name, services)
            self.assertIn("--state-dir", self.do(commands / "twistd", name, "--help"))
            text = self.do(commands / name, "--help")
            self.assertTrue(text.startswith(f"Usage: {name} [options]\n"), text)
            self.assertNotIn("twist", text.lower())
        self.assertIn("cluster", self.do(commands / "tower", "--help"))
        (commands / "kubectl").symlink_to(kubectls()[-1])
        self.assertIn("cluster", self.do("kubectl", "tower", "--help", path=commands))
        self.start_unit(commands)

    def start_unit(self, commands: Path) -> None:
        """Start the proxy as the unit that `tower install-systemd` writes does, and use it."""
        image = self.folder / "image"
        image.mkdir()
        self.do(commands / "tower", "install-systemd", "proxy", "--root", image)
        unit = (image / "etc/systemd/system/tower-proxy.service").read_text()
        settings = dict(line.partition("=")[::2] for line in unit.splitlines())
        port, state = free_port(), self.folder / "state"
        environment = dict(word.split("=", 1) for word in settings["Environment"].split())
        self.assertEqual(environment["TOWER_STATE_DIR"], "%S/tower")
        environment["TOWER_PUBLISH_SERVICE_ADDRESS"] = "tower.example.org"
        environment |= {
            "TOWER_STATE_DIR": str(state),
            "TOWER_HOST": LOOPBACK,
            "TOWER_CLUSTER_PORTS": "none",
            "TOWER_NATIVE": "",
        }
        environment |= {"TOWER_PORT": str(port), "TOWER_SECURE_PORT": str(free_port())}
        self.assertEqual(settings["ExecStart"], str(commands / "tower-proxy"))
        proxy = Program("unit", [settings["ExecStart"]], self.folder, environment)
        self.addCleanup(proxy.stop)
        proxy.start()
        wait_for("the proxy", lambda: is_ready(port, "/health") or not proxy.running())
        self.do(commands / "tower", "--state-dir", state, "cluster", "add", "alpha")
        line = self.do(commands / "tower", "--state-dir", state, "join", "alpha")
        self.assertIn(f"wss://{environment['TOWER_PUBLISH_SERVICE_ADDRESS']}:", line)
        self.assertTrue(proxy.stop(), proxy.tail())
        self.assertEqual(list(self.folder.glob("*.pid")), [])
