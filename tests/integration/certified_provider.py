"""``oidc-provider``, a certified OpenID Connect provider, installed with npm."""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from benchmarks.processes import cached_result
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, wait_for
from tests.integration.token_issuer import tls_files

SOURCES = Path(__file__).resolve().parent / "npmprovider"
CLIENT, SECRET = "tower-login", "known-to-all-users"

_PATIENCE = 300.0  # s for npm


@cache
def installed() -> Path:
    """Return the folder of the program with its packages; install them if they changed.

    :raise AssertionError: npm is not installed, or fails.
    """
    place = cached_result(SOURCES, {".json", ".mjs"})
    if place.exists():
        return place
    npm = shutil.which("npm")
    assert npm is not None, "install Node.js and npm (apt-get install nodejs npm)"
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    try:
        shutil.copytree(SOURCES, draft, dirs_exist_ok=True)
        done = run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder=draft, timeout=_PATIENCE
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


class CertifiedProvider:
    """One provider, with its records in memory.  Its pages accept any password.

    :ivar url: of the issuer; `ca` is the file with its CA.
    """

    def __init__(self, folder: Path, users: Mapping[str, Collection[str]]) -> None:
        self.ca, certificate, key = tls_files(folder, "certified")
        port = free_port()
        self.url = f"https://{LOOPBACK}:{port}"
        self._users = folder / "users.json"
        self.set_users(users)
        settings: dict[str, object] = {
            "issuer": self.url,
            "port": port,
            "client": CLIENT,
            "users": str(self._users),
        }
        settings["secret"] = SECRET
        file = folder / "certified.json"
        file.write_text(json.dumps({**settings, "certificate": str(certificate), "key": str(key)}))
        node = shutil.which("node")
        assert node is not None, "install Node.js (apt-get install nodejs)"
        self.program = Program("certified", [node, str(installed() / "server.mjs"), str(file)], folder)

    def set_users(self, users: Mapping[str, Collection[str]]) -> None:
        """Replace all users: their groups by name."""
        draft = self._users.with_suffix(".draft")
        draft.write_text(json.dumps({name: list(groups) for name, groups in users.items()}))
        draft.rename(self._users)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.program.start()
        wait_for("the provider", self._answers)

    def stop(self) -> None:
        """End it."""
        self.program.stop()

    def count(self, event: str) -> int:
        """Return how often its log has an event."""
        return sum(line.startswith(event) for line in self.program.output().splitlines())

    def _answers(self) -> bool:
        if not self.program.running():
            raise AssertionError(f"the provider ended: {self.program.tail()}")
        context = ssl.create_default_context(cafile=str(self.ca))
        try:
            with urlopen(
                f"{self.url}/.well-known/openid-configuration", context=context, timeout=10
            ) as found:
                return bool(found.status == 200)
        except OSError:
            return False
