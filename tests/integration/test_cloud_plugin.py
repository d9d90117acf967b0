"""Cloud providers of other packages, as in ``docs/cloud-providers.md``; and keys with a real sshd."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.guide import Guide
from tests.integration.programs import run
from tests.integration.sshd import SSHD, Sshd, write_key

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = "cloud-providers.md"
HEADING = "How to write a provider"
PACKAGE, PROVIDER, TESTS, INSTALL, USE = range(5)
REFUSED = 255  # ssh's exit code for a failed login

#: A provider that prints its configuration.
MIRROR = """
from zope.interface import implementer
from tower.cloud import gcfg
from tower.cloud.interfaces import ICloudProvider

@implementer(ICloudProvider)
class Mirror:
    def __init__(self, config):
        self.config = config

def make(config):
    gcfg.parse(config)
    return Mirror(config)
"""

#: Builds a package that has one module, without anything that would have to be fetched.
BACKEND = """
import tomllib, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with open("pyproject.toml", "rb") as file:
        content = tomllib.load(file)
    project, (module,) = content["project"], content["tool"]["setuptools"]["py-modules"]
    stem = f"{module}-{project['version']}"
    info = f"{stem}.dist-info"
    groups = "".join(
        f"[{group}]\\n" + "".join(f"{name} = {value}\\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    name, version = project["name"], project["version"]
    files = {
        f"{module}.py": open(f"{module}.py").read(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: us\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": groups,
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{wheel_directory}/{stem}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return f"{stem}-py3-none-any.whl"
"""

#: Makes a provider and prints the result.
ASK = """
import sys
from tower.cloud.registry import cloud_providers, init_cloud_provider
from tower.errors import ConfigurationError
print(*cloud_providers())
for name in sys.argv[2:]:
    try:
        provider = init_cloud_provider(name, sys.argv[1])
    except ConfigurationError as e:
        print(f"{name}: {e}")
    else:
        print(f"{name}: {type(provider).__name__} of {provider.config.path}: {provider.config.text}")
"""

INSTALL_KEY = """
import sys
from twisted.internet.defer import Deferred
from tower.cloud.registry import init_cloud_provider
cloud = init_cloud_provider("fake", sys.argv[1])
key = open(sys.argv[3], "rb").read()
done = Deferred.fromCoroutine(cloud.instances().add_ssh_key_to_all_instances(sys.argv[2], key))
done.addErrback(lambda failure: sys.exit(str(failure.value)))
assert done.called
"""


class PluginCase(SynchronousTestCase):
    """A folder, in which packages are put on the path of child processes."""

    def setUp(self) -> None:
        """Make it."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-plugins-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.config = self.folder / "acme.conf"
        self.config.write_text("[global]\npool = beta\n")

    def package(self, name: str, entry_points: Mapping[str, str], code: str = "") -> None:
        """Put a package there, as an installer leaves it."""
        module = name.replace("-", "_")
        info = self.folder / "site" / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{provider} = {value}\n" for provider, value in entry_points.items()]
        (info / "entry_points.txt").write_text("".join(["[tower.cloud_providers]\n", *lines]))
        (self.folder / "site" / f"{module}.py").write_text(code)

    def python(self, code: str, *arguments: str) -> str:
        """Run code in a process that has the packages; it must succeed; return its output."""
        done = run(
            [sys.executable, "-c", code, *arguments], environment=self.environment(), folder=self.folder
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def environment(self) -> dict[str, str]:
        """Return what child processes find: our Python, and the packages."""
        commands = str(Path(sys.executable).parent)
        return {"PYTHONPATH": f"{self.folder / 'site'}:{ROOT}", "PATH": f"{commands}:/usr/bin:/bin"}

    def ask(self, *names: str) -> list[str]:
        """Return the names of all providers, and what is made of some of them."""
        return self.python(ASK, str(self.config), *names).splitlines()


class PluginTests(PluginCase):
    """Entry points."""

    def test_found(self) -> None:
        """An installed package's provider is found, and gets its configuration; Tower's own stay."""
        self.package("tower-acme", {"acme": "tower_acme:make"}, MIRROR)
        names, *made = self.ask("acme")
        self.assertEqual(names, "acme aws azure fake gce openstack")
        self.assertEqual(made, [f"acme: Mirror of {self.config}: [global]", "pool = beta", ""])

    def test_its_errors(self) -> None:
        """An error in its configuration names file and line."""
        self.package("tower-acme", {"acme": "tower_acme:make"}, MIRROR)
        self.config.write_text("[global]\npool beta\n")
        self.assertIn(f'could not init cloud provider "acme": {self.config}:2: ', self.ask("acme")[1])

    def test_broken_neighbours(self) -> None:
        """A package that cannot be imported affects no others, and its error names it."""
        self.package("tower-acme", {"acme": "tower_acme:make"}, MIRROR)
        self.package("tower-broken", {"broken": "tower_broken:make"}, "raise RuntimeError('no licence')")
        self.package("tower-exits", {"exits": "tower_exits:make"}, "1 +")
        names, acme, _, _, *errors = self.ask("acme", "broken", "exits")
        self.assertEqual(names, "acme aws azure broken exits fake gce openstack")
        for name, why, error in zip(
            ("broken", "exits"), ("RuntimeError: no licence", "SyntaxError"), errors, strict=True
        ):
            self.assertTrue(error.startswith(f'{name}: could not init cloud provider "{name}": '), error)
            self.assertIn(f"its package tower-{name} cannot be imported", error)
            self.assertIn(why, error)
            self.assertIn(f"pip install --force-reinstall tower-{name}", error)
        self.assertIn("Mirror", acme)

    def test_same_name(self) -> None:
        """Two packages with one name are an error for that name only, also if it is a provider of Tower."""
        for name in ("one", "two"):
            self.package(f"tower-{name}", {"acme": f"tower_{name}:make", name: f"tower_{name}:make"}, MIRROR)
        self.package("tower-third", {"gce": "tower_third:make"}, MIRROR)
        _, acme, gce, one, *_ = self.ask("acme", "gce", "one")
        self.assertIn(
            'Cloud provider "acme" was registered twice: by the packages tower-one, tower-two', acme
        )
        self.assertIn("by the packages kubesphere-tower, tower-third", gce)
        self.assertTrue(one.startswith("one: Mirror of"), one)


class GuideTests(PluginCase):
    """The page, block by block."""

    def test_page(self) -> None:
        """The page's package is installed by pip, passes its tests, and its provider is made.

        Only what builds it is another, so that nothing has to be fetched.
        """
        site = self.folder / "site"
        names = {
            'requires = ["setuptools>=61"]': "requires = []",
            '"setuptools.build_meta"': '"backend"\nbackend-path = ["."]',
            "pip install ./": f"pip install --quiet --no-index --no-deps --target {site} ./",
        }
        guide = Guide(PAGE, self.folder, self.environment(), names)
        self.assertEqual(len(guide.blocks[HEADING]), USE + 1)
        for number in (PACKAGE, PROVIDER, TESTS):
            guide.run(HEADING, number)
        (self.folder / "tower-acme" / "backend.py").write_text(BACKEND)
        said = guide.run(HEADING, INSTALL)
        self.assertIn("PASSED (successes=5)", said)
        self.assertEqual(said.splitlines()[-1], "acme aws azure fake gce openstack")
        self.config.unlink()
        self.assertIn("<tower_acme.AcmeCloud object", guide.run(HEADING, USE))
        self.assertEqual(self.config.stat().st_mode & 0o777, 0o600)


class KeyTests(PluginCase):
    """The fake cloud's keys."""

    def test_real_sshd(self) -> None:
        """A key that the fake cloud installs works with real sshds, and existing keys still do."""
        if SSHD is None or shutil.which("ssh") is None:
            raise SkipTest("no OpenSSH")
        old = write_key(self.folder / "old")
        servers = [Sshd(self.folder / f"node-{n}", authorized=[old]) for n in (1, 2)]
        for server in servers:
            self.addCleanup(server.kill)
            server.start()
        lines = [f"instance = {server.directory.name} {server.address}\n" for server in servers]
        self.config.write_text(
            f"[fake]\nauthorized-keys = {self.folder}/%h/authorized_keys\n{''.join(lines)}"
        )
        public = self.folder / "new.pub"
        public.write_text(f"{write_key(self.folder / 'new')}\n")
        user = servers[0].user
        self.assertEqual([self.is_let_in(server, "new") for server in servers], [False, False])
        self.python(INSTALL_KEY, str(self.config), user, str(public))
        self.assertEqual([self.is_let_in(server, "new") for server in servers], [True, True])
        self.assertTrue(self.is_let_in(servers[0], "old"))

    def is_let_in(self, server: Sshd, key: str) -> bool:
        """Return whether ssh can log in with a key."""
        argv = ["ssh", "-F", "none", "-T", "-i", str(self.folder / key), "-p", str(server.port)]
        for option in ("BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "ConnectTimeout=10"):
            argv += ["-o", option]
        argv += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        done = run([*argv, f"{server.user}@{server.host}", "true"], timeout=30)
        return done.returncode != REFUSED
