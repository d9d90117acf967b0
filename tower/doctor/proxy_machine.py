"""``tower doctor``: the proxy's machine and its state directory, whether the proxy runs or not."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509

from tower.conch.transport.keys import KeyPair
from tower.control.admin_kubeconfig import FILE as ADMIN_KUBECONFIG
from tower.control.state_files import DATABASE, HOSTED, RESTORE, LostFile, lost_database, lost_keys
from tower.doctor.api import GROUP, SILENT_PROXY, Login, TowerServer, refusal
from tower.doctor.expiry import lasts
from tower.doctor.findings import Course, Finding, Step, Verdict, examine, fail, ok, warn
from tower.doctor.identity_provider import provider_courses
from tower.doctor.machine import Directory, ReadOnly, open_files
from tower.doctor.network import Network
from tower.doctor.route import names_of
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import load_kubeconfig
from tower.rotation.rotation import TARGETS
from tower.store.kinds import AGENT_KEYS, CREDENTIALS, MEMBER_ACCESS
from tower.store.sqlite_file import APPLICATION_ID, SCHEMA
from tower.trust.expiry import AUTHORITY_SOON, CREDENTIAL_SOON, SERVING_SOON
from tower.trust.pki import load_certificates
from tower.trust.serving_certificate import STATE_FILE
from tower.trust.vault import UnsealFailed, Vault
from tower.web.api.discovery import git_version

#: Names of every serving certificate.
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))

_HOST_KEY, _SECRETS_KEY = "ssh_host_ed25519_key", "secrets.key"


async def examine_proxy(
    network: Network, path: Path, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    """Return the findings about the proxy with the state directory *path*."""
    directory = Directory(path, "tower-proxy", is_required=True)
    state = _State(path, now)
    found = await examine(
        [Course([Step("open files", open_files)]), Course(directory.steps(), state.courses())]
    )
    if not os.path.isdir(path):  # unlike Path, False if it must not be read
        return found
    if not directory.is_locked():
        verdict = warn("tower-proxy is not running", "start it, as with: systemctl start tower-proxy")
        return [*found, Finding("proxy", verdict)]
    role = _role(path)
    if role.startswith("standby: "):
        return [*found, Finding("proxy", ok(f"tower-proxy is running as a {role}; check the leader there"))]
    found.append(Finding("proxy", ok("tower-proxy is running")))
    return [*found, *await _running(network, path, environ, now)]


async def _running(
    network: Network, path: Path, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    cure = "restart tower-proxy, which writes a new one"
    if _role(path) and not (path / ADMIN_KUBECONFIG).exists():
        cure = "see the checks of the host cluster, and the log of tower-proxy"
        return [Finding("front door", fail("tower-proxy does not serve yet", cure))]
    try:
        access = load_kubeconfig(path / ADMIN_KUBECONFIG)
        server = TowerServer(network, access, environ, now, cure)
    except ConfigurationError as e:
        return [Finding("administrator's kubeconfig", fail(str(e), cure))]
    front = _FrontDoor(server, now)
    found = await examine(
        [
            Course(
                [*server.route.steps(), *Login(server, {401: cure}).steps("answer", SILENT_PROXY)],
                [
                    Course([Step("version", front.version)]),
                    Course([Step("clusters", front.clusters)]),
                    Course([Step("given certificate", front.given_certificate)]),
                ],
            ),
            *(Course([Step("published name", partial(front.published, name))]) for name in _published(path)),
        ]
    )
    return [*found, *await examine(await provider_courses(server, environ, now))]


class _State:
    """The files of a state directory, which are only read."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._files = ReadOnly(path)

    def courses(self) -> list[Course]:
        """Return independent checks, one or more for each file."""
        courses = [
            Course([Step("database", self._database), Step("credentials of clusters", self._credentials)]),
            Course([Step("secrets key", self._secrets_key)]),
        ]
        lost = self._lost_keys()
        courses += [Course([Step(each.name, partial(_lost, each))]) for each in lost]
        if _HOST_KEY not in [each.name for each in lost]:
            courses.append(Course([Step("host key", self._host_key)]))
        names = [name for name in self._names() if name.endswith(".pem")]
        courses += [Course([Step(name, partial(self._certificates, name))]) for name in names]
        if STATE_FILE in names:
            courses.append(Course([Step("published names", self._published)]))
        return courses

    def _lost_keys(self) -> list[LostFile]:
        agents, credentials = len(self._records(AGENT_KEYS)), self._records(CREDENTIALS)
        return lost_keys(self._path, self._names(), agents, credentials, self._now())

    def _names(self) -> list[str]:
        """Return the names of the files; none if the directory must not be read."""
        return sorted(path.name for path in self._path.glob("*"))

    def _connect(self) -> sqlite3.Connection:
        path = self._path / DATABASE
        # without a log, nothing is created beside the file
        mode = "mode=ro" if path.with_name(f"{DATABASE}-wal").exists() else "mode=ro&immutable=1"
        return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)

    def _database(self) -> Verdict:
        path = self._path / DATABASE
        lost = lost_database(self._path, self._names())
        if lost is not None:
            return _lost(lost)
        if (self._path / HOSTED).exists():
            return ok("the records are in a host cluster")
        if not path.exists():
            return ok(f"{path} does not exist yet; tower-proxy creates it")
        try:
            with closing(self._connect()) as connection:
                application, schema, report = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("application_id", "user_version", "quick_check(1)")
                )
        except sqlite3.Error as e:
            return fail(f"{path}: {e}", RESTORE)
        if application != APPLICATION_ID or report != "ok":
            return fail(f"{path} is damaged: {report}", RESTORE)
        if schema > SCHEMA:
            return fail(f"{path} was written by a newer Tower (schema {schema})", "upgrade Tower here")
        return ok(f"{path} is intact (schema {schema})")

    def _records(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of one kind; none if the database is missing or damaged."""
        if not (self._path / DATABASE).exists():
            return []
        try:
            with closing(self._connect()) as connection:
                rows = connection.execute("SELECT value FROM records WHERE kind = ?", (kind,)).fetchall()
        except sqlite3.Error:
            return []
        return [json.loads(value) for (value,) in rows]

    def _credentials(self) -> Verdict:
        now, known = self._now(), self._records(MEMBER_ACCESS)
        ends = [(each["expires"], str(each["cluster"])) for each in known if each.get("expires")]
        if not ends:
            return ok("none expires")
        end, name = min(ends)
        return lasts(
            f"the credential of cluster {name}",
            end,
            now,
            f"tower cluster set {name} --member-kubeconfig FILE",
            soon=CREDENTIAL_SOON,
        )

    def _host_key(self) -> Verdict:
        path = self._path / _HOST_KEY
        text = self._files.read(_HOST_KEY)
        if text is None:
            return ok(f"{path} does not exist yet; tower-proxy creates it")
        try:
            return ok(KeyPair.from_openssh(text).fingerprint)
        except ValueError as e:
            return fail(f"{path}: {e}", f"{RESTORE}; with a new key, every agent has to join again")

    def _secrets_key(self) -> Verdict:
        path = self._path / _SECRETS_KEY
        sealed = self._records(MEMBER_ACCESS)
        if not path.exists():
            if _role(self._path):
                return ok("it is in the host cluster, or in --secrets-key-file")
            if sealed:
                cure = f"{RESTORE}, or set the credentials of {len(sealed)} clusters again"
                return warn(f"{path} is missing, unless --secrets-key-file names another file", cure)
            return ok(f"{path} does not exist yet; tower-proxy creates it")
        vault = Vault(path)
        for each in sealed[:1]:
            vault.open(each["sealed"], each["cluster_uid"])
        try:
            vault.open("", "")
        except UnsealFailed:
            pass
        return ok(f"{path} is valid" + (f" and opens {len(sealed)} credentials" if sealed else ""))

    def _certificates(self, name: str) -> Verdict:
        try:
            certificates = load_certificates(self._files.read(name) or b"")
        except ValueError:
            return fail(f"{self._path / name} has no certificate in PEM", RESTORE)
        end = min(each.not_valid_after_utc.timestamp() for each in certificates)
        target = name.removesuffix(".pem")
        cure, soon = f"tower rotate {target if target in TARGETS else 'status'}", AUTHORITY_SOON
        if name == STATE_FILE:
            cure, soon = "start tower-proxy, which renews it", SERVING_SOON
        return lasts("it", end, self._now(), cure, soon=soon)

    def _published(self) -> Verdict:
        names = _published(self._path)
        if names:
            return ok(", ".join(names))
        return warn(
            "only loopback names: other machines cannot verify this proxy",
            "set --publish-service-address HOST, the address that users and agents connect to",
        )


def _role(path: Path) -> str:
    """Return the role of a proxy with a host cluster; empty without one."""
    try:
        return (path / HOSTED).read_text(errors="replace").strip()
    except OSError:
        return ""


def _published(path: Path) -> list[str]:
    """Return the names of the serving certificate, except the loopback's."""
    try:
        certificate: x509.Certificate = load_certificates((path / STATE_FILE).read_bytes())[0]
    except (OSError, ValueError):
        return []
    return [name for name in names_of(certificate) if name not in _LOOPBACK]


_GIVEN = re.compile(
    r'^tower_certificate_expiry_timestamp_seconds\{name="tls-cert-file"\} (\S+)$', re.MULTILINE
)


class _FrontDoor:
    """The checks of a running proxy, as its administrator."""

    def __init__(self, server: TowerServer, now: Callable[[], float]) -> None:
        self._server = server
        self._now = now

    async def version(self) -> Verdict:
        """Compare the versions of the proxy and of this command."""
        _, value = await self._server.request("GET", "/version")
        theirs, ours = str(value.get("gitVersion", "unknown")), git_version()
        if theirs == ours:
            return ok(f"the proxy and this command are {theirs}")
        return warn(
            f"the proxy is {theirs}, this command is {ours}",
            "restart tower-proxy after an upgrade, or use the command of its installation",
        )

    async def clusters(self) -> Verdict:
        """Count the available clusters."""
        code, value = await self._server.request("GET", f"{GROUP}/clusters")
        if code >= 400:
            return fail(refusal(code, value), "check the proxy's log")
        enabled = [item for item in value.get("items", []) if item["spec"].get("enable")]
        away = [str(item["metadata"]["name"]) for item in enabled if not _is_available(item)]
        seen = f"{len(enabled) - len(away)} of {len(enabled)} are available"
        if not away:
            return ok(seen)
        return warn(f"{seen}; not {', '.join(away[:5])}", f"tower doctor {away[0]}")

    async def given_certificate(self) -> Verdict:
        """Check the expiry of the certificate of ``--tls-cert-file``."""
        found = _GIVEN.search(await self._server.text("/metrics"))
        if found is None:
            return ok("none: --tls-cert-file is not set")
        cure = "renew the files of --tls-cert-file and --tls-private-key-file, which the proxy reads again"
        return lasts("that of --tls-cert-file", float(found[1]), self._now(), cure, soon=SERVING_SOON)

    def published(self, name: str) -> Verdict:
        """Resolve a name of the serving certificate."""
        try:
            addresses = self._server.network.resolve(name, self._server.route.url.port)
        except (OSError, UnicodeError):
            return fail(
                f"{name} has no address", f"add a DNS record, or change --publish-service-address {name}"
            )
        return ok(f"{name} is {', '.join(addresses)}")


def _is_available(item: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in item.get("status", {}).get("conditions") or ()}
    for kind in ("Available", "AgentAvailable", "NodesAvailable"):
        if kind in conditions:
            return bool(conditions[kind] == "True")
    return False


def _lost(lost: LostFile) -> Verdict:
    return fail(lost.problem, f"{RESTORE}; without a backup, {lost.instead}")
