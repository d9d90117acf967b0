"""The container image: built twice, checked, listed, and run as proxy and agent."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import tower
from tests.integration.containers import STATE, Container, UnpackedImage, missing
from tests.integration.member import kubectls, member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, is_ready, run, wait_for

TOOLS = Path(__file__).resolve().parent.parent.parent / "tools" / "image"
BUILD_PATIENCE = 900.0  # s


@cache
def folder() -> Path:
    """Return the folder of the images of this run."""
    path = Path(tempfile.mkdtemp(prefix="tower-image-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(path, ignore_errors=True) if os.getpid() == owner else None)
    return path


def archive(architecture: str, number: int = 1) -> Path:
    """Return the path of an archive with an image."""
    return folder() / f"{architecture}-{number}.oci.tar"


def make(*archives: tuple[str, int]) -> None:
    """Build images, one after the other."""
    for architecture, number in archives:
        use(str(TOOLS / "make-image"), architecture, str(archive(architecture, number)))


@cache
def making() -> dict[str, Future[None]]:
    """Start to build the images for both architectures, side by side."""
    pool = ThreadPoolExecutor(2)
    return {
        "amd64": pool.submit(make, ("amd64", 1), ("amd64", 2)),
        "arm64": pool.submit(make, ("arm64", 1)),
    }


def built(architecture: str, number: int = 1) -> Path:
    """Return an archive with a newly built image."""
    making()[architecture].result()
    return archive(architecture, number)


def use(*argv: str) -> str:
    """Run a command; return its output."""
    done = run(argv, timeout=BUILD_PATIENCE)
    if done.returncode:
        raise AssertionError(f"{argv}: {(done.stdout + done.stderr).decode(errors='replace')}")
    return done.stdout.decode()


def checked(archive: Path) -> str:
    """Return the line about an image that has no faults."""
    return use(sys.executable, str(TOOLS / "check-image"), str(archive)).strip()


class ImageTests(SynchronousTestCase):
    """The image on a base of Debian's packages."""

    timeout = 1800  # s; a build takes half a minute of processor time

    def setUp(self) -> None:
        """Skip if this machine cannot build images."""
        if missing():
            raise SkipTest(f"missing packages: {' '.join(missing())}")
        if os.geteuid() != 0:
            raise SkipTest("only root can build and run images here")

    def test_reproducible(self) -> None:
        """Two builds give the same digest, have compiled modules and no fault, and are not too large."""
        first, second = checked(built("amd64")), checked(built("amd64", 2))
        self.assertEqual(first, second)
        self.assertRegex(first, r"^amd64 sha256:[0-9a-f]{64}: [0-9]+\.[0-9] MB compressed, .*, native$")

    def test_foreign(self) -> None:
        """The image for arm64 has ELF files for arm64 only, with their libraries, and no compiled modules."""
        self.assertRegex(checked(built("arm64")), r"^arm64 .* [0-9]{3} ELF files, pure$")

    def test_faults(self) -> None:
        """The check finds an image labeled with a wrong architecture."""
        wrong = folder() / "wrong"
        use("tar", "-xf", str(built("amd64")), "--one-top-level=" + str(wrong))
        for blob in (wrong / "blobs/sha256").iterdir():
            data = blob.read_bytes()
            if b'"architecture":"amd64"' in data:
                blob.write_bytes(data.replace(b'"architecture":"amd64"', b'"architecture":"arm64"'))
        use("tar", "-cf", str(folder() / "wrong.tar"), "-C", str(wrong), "index.json", "blobs")
        done = run([sys.executable, str(TOOLS / "check-image"), str(folder() / "wrong.tar")])
        self.assertEqual(done.returncode, 1)
        self.assertIn("EM_X86_64, not EM_AARCH64", done.stdout.decode(), done.stderr.decode())

    def test_contents(self) -> None:
        """The list names Tower, the packages of Python and those of Debian, with versions and licenses."""
        output = folder() / "list.cdx.json"
        use(str(TOOLS / "make-sbom"), sys.executable, "amd64", str(built("amd64")), str(output))
        found = {item["name"]: item for item in json.loads(output.read_text())["components"]}
        self.assertEqual(found["kubesphere-tower"]["version"], tower.__version__)
        for name in ("Twisted", "cryptography", "libc6", "libssl3t64", "python3.13", "ca-certificates"):
            self.assertTrue(found[name]["version"], name)
        lock = (TOOLS / "runtime.lock").read_text()
        self.assertIn(f"Twisted=={found['Twisted']['version']} ".lower(), lock.lower())
        self.assertTrue(found["Twisted"]["licenses"])

    def test_runs(self) -> None:
        """Proxy and agent run in read-only containers without rights; kubectl works through them."""
        place = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, place, True)
        image = UnpackedImage(built("amd64"), place)
        self.assertEqual(image.settings["Cmd"], ["tower-proxy"])
        labels = image.settings["Labels"]
        self.assertEqual(labels["org.opencontainers.image.version"], tower.__version__)
        self.assertEqual(labels["org.opencontainers.image.licenses"], "Apache-2.0")
        port, secure, health = free_port(), free_port(), free_port()
        words = [f"--host={LOOPBACK}", f"--port={port}", f"--secure-port={secure}", "--cluster-ports=none"]
        proxy = Container("proxy", image, place, ["tower-proxy", f"--state-dir={STATE}/state", *words])
        self.addCleanup(proxy.stop)
        proxy.program.start()
        wait_for("the proxy", lambda: is_ready(port, "/health") or not proxy.program.running())
        self.assertTrue(proxy.program.running(), proxy.program.tail())

        self.assertEqual(proxy.execute("tower", "--version").strip(), f"tower {tower.__version__} (native)")
        command = ("tower", "--state-dir", f"{STATE}/state")
        proxy.execute(*command, "cluster", "add", "alpha")
        line = shlex.split(proxy.execute(*command, "join", "alpha"))
        token, argv = line[2], line[line.index("tower-agent") : line.index("--token-file")]
        argv += [f"--state-dir={STATE}/state", f"--health-address={LOOPBACK}:{health}"]
        argv += [f"--token-file={STATE}/token", f"--kubeconfig={STATE}/kubeconfig"]
        agent = Container("agent", image, place, argv)
        agent.give("token", token.encode())
        agent.give("kubeconfig", member().agent.read_bytes())
        self.addCleanup(agent.stop)
        agent.program.start()
        wait_for("the agent", lambda: is_ready(health, "/readyz") or not agent.program.running())
        self.assertTrue(agent.program.running(), agent.program.tail())

        config = place / "jane.kubeconfig"
        config.write_text(proxy.execute(*command, "kubeconfig", "alpha", "--user=jane", "--group=dev"))
        asked = [str(kubectls()[-1]), f"--kubeconfig={config}", f"--cache-dir={place}", "get", "pod", "shell"]
        self.assertIn("shell", use(*asked))
        for container in (agent, proxy):
            self.assertTrue(container.stop(), container.program.tail())
        self.assertIn("tower-proxy stopped", proxy.program.output())
