"""The proxy's front door, as a client of a login sees it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from tower.cli.client import CallFailed, CommandFailed, UsageFailed
from tower.cli.login.exchange import Reply, Unreachable, Untrusted, ask
from tower.kube.kubeconfig import KubeAccess

#: Path of the configuration of logins.
DISCOVERY = "/.well-known/tower-login"

_CA_LIMIT = 1 << 20
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def server_of(text: str) -> str:
    """Return the URL of a front door: scheme, host and port.

    :raise UsageFailed: *text* is not one.
    """
    if "@" in text:  # the error omits what may be a password
        raise UsageFailed(
            f"the URL {'…' + text[text.rindex('@') :]!r} has credentials, which a login does not use: give "
            "https://HOST or https://HOST:PORT"
        )
    try:
        url = urlsplit(text if "://" in text else f"https://{text}")
        port, name = url.port, url.hostname or ""
        name = name if name.isascii() else name.encode("idna").decode("ascii")
        is_plain = url.scheme == "https" and not (url.path.strip("/") or url.query or url.fragment)
    except ValueError:
        port, name, is_plain = None, "", False
    if not (is_plain and name) or port == 0:
        raise UsageFailed(f"{text!r} is not the URL of a proxy: give https://HOST or https://HOST:PORT")
    host = f"[{name}]" if ":" in name else name
    return f"https://{host}" + (f":{port}" if port not in (None, 443) else "")


@attrs.frozen
class Door:
    """The front door with the CAs that verify it.

    :ivar access: without a credential.
    """

    access: KubeAccess

    @property
    def server(self) -> str:
        """Its URL."""
        return self.access.server

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        token: str = "",
        timeout: float = 30.0,
    ) -> Reply:
        """Return the answer to a request.

        :raise Unreachable: there is none.
        """
        return ask(self.access, method, self.server + path, body=body, token=token, timeout=timeout)

    def call(self, method: str, path: str, *, body: dict[str, Any] | None = None, token: str = "") -> Reply:
        """Return the answer to a request that must succeed.

        :raise CommandFailed: it did not.
        """
        reply = self.ask(method, path, body=body, token=token)
        if reply.status >= 400:
            raise CallFailed(reply.status, str(reply.value.get("reason", "")), reply.message)
        return reply

    @property
    def ca_text(self) -> str:
        """Its CAs, PEM; empty: the system's."""
        return (self.access.ca_data or b"").decode("ascii")


def find_door(server: str, ca_file: str | None, ca_hash: str | None, known: str) -> tuple[Door, Reply]:
    """Return the front door, verified, and its configuration of logins.

    :param ca_file: file with its CAs, PEM; excludes *ca_hash*.
    :param ca_hash: hash of the public key of its CA.
    :param known: CAs of an earlier login, PEM, or empty.
    :raise CommandFailed: it cannot be verified, or has no logins.
    """
    if ca_file is not None:
        door = Door(KubeAccess(server, _certificates(ca_file)))
    elif ca_hash is not None:
        door = _pinned(server, ca_hash)
    else:
        door = Door(KubeAccess(server, known.encode() or None))
    try:
        reply = _configuration(door)
    except Untrusted as e:
        changed = ", and the CA of the earlier login did not issue it" if door.ca_text == known != "" else ""
        raise CommandFailed(
            f"{e}{changed}: give --certificate-authority FILE or --ca-hash sha256:..., which an "
            "administrator of Tower has ('tower login --help')"
        ) from e
    except Unreachable as e:
        if urlsplit(server).port is None:
            raise Unreachable(f"{e}; this was port 443, and tower-proxy's default is {server}:8443") from e
        raise
    published = str(reply.value.get("certificateAuthority", ""))
    if published and published != door.ca_text:
        lasting = Door(KubeAccess(server, published.encode()))
        try:
            return lasting, _configuration(lasting)
        except CommandFailed:
            pass  # a load balancer has its own certificate
    return door, reply


def _configuration(door: Door) -> Reply:
    reply = door.ask("GET", DISCOVERY)
    if reply.status != 200 or reply.value.get("kind") != "LoginConfiguration":
        more = reply.message if reply.value.get("kind") == "Status" else "it is not the front door of a Tower"
        raise CommandFailed(f"cannot log in to {door.server}: {more}")
    return reply


def _pinned(server: str, ca_hash: str) -> Door:
    """Return the door with the CA that has this hash, which it publishes."""
    from tower.trust.pki import ca_hash as hash_of

    if not _HASH.fullmatch(ca_hash):
        raise UsageFailed(f"--ca-hash {ca_hash!r}: must be sha256: and 64 hexadecimal digits")
    unverified = Door(KubeAccess(server, insecure=True))
    published = str(_configuration(unverified).value.get("certificateAuthority", ""))
    if not published:
        raise CommandFailed(
            f"--ca-hash {ca_hash}: {server} publishes no CA, because a public CA issued its certificate: "
            "omit --ca-hash; for a private CA, give its file as --certificate-authority"
        )
    for pem in _CERTIFICATE.findall(published.encode()):
        try:
            if hash_of(pem) == ca_hash:
                return Door(KubeAccess(server, pem))
        except ValueError:
            continue
    raise CommandFailed(
        f"{server} has no CA with the hash {ca_hash}: it is another server, or the proxy's CA was replaced: "
        "ask an administrator of Tower for the hash"
    )


def _certificates(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_CA_LIMIT)
    except OSError as e:
        raise CommandFailed(f"--certificate-authority {path}: {(e.strerror or str(e)).lower()}") from e
    found = _CERTIFICATE.findall(data)  # a file of the proxy may also have the private key
    if not found:
        raise CommandFailed(f"--certificate-authority {path}: has no certificates in PEM")
    return b"".join(found)


def reachable(door: Door, token: str) -> Reply | None:
    """Return what the front door knows about the session of *token*; None: it does not answer soon."""
    try:
        return door.ask("GET", "/login/session", token=token, timeout=5.0)
    except Unreachable:
        return None
