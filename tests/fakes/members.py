"""Credentials of members' API servers."""

from __future__ import annotations

import base64
import json

from tests.fakes.certificates import NOW, authority
from tower.clusters.ssh_spec import SSHSpec
from tower.kube.kubeconfig import KubeAccess

#: A secret that must not be found anywhere.
TOKEN = "hush-token-of-the-member"

SERVER = "https://10.0.0.1:6443"

#: CA of the API server's certificate, PEM.
AUTHORITY = authority("member").pem

#: The least that a cluster of type ssh needs.
SPEC = SSHSpec("tower", "/etc/tower/id", nodes=("10.0.0.11", "10.0.0.12:2222"))


def by_token(token: str = TOKEN) -> KubeAccess:
    """Return a credential with a bearer token."""
    return KubeAccess(SERVER, ca_data=AUTHORITY, token=token)


def by_certificate(lifetime: float = 3600.0) -> KubeAccess:
    """Return one with a client certificate that expires *lifetime* s after `tests.fakes.certificates.NOW`."""
    issued = authority("clients").client_certificate("tower", (), "", "", lifetime, NOW)
    return KubeAccess(
        SERVER,
        ca_data=AUTHORITY,
        client_certificate=issued.certificate_pem,
        client_key=issued.key_pem,
    )


def jwt(expires: float) -> str:
    """Return a token with an expiry time."""
    parts = ({"alg": "none"}, {"exp": expires, "sub": "hush"})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2ln"])


def secrets_of(access: KubeAccess) -> list[bytes]:
    """Return the secrets of *access*, plain and in base64, which must not be found anywhere."""
    found = []
    if access.token:
        found.append(access.token.encode())
    if access.client_key:
        body = b"".join(access.client_key.splitlines()[1:-1])  # without PEM's first and last line
        found += [access.client_key, body[8:60], base64.b64decode(body)[8:40]]
    return [form for secret in found for form in (secret, base64.b64encode(secret)[:-4])]
