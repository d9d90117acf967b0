"""Ways into a member's API server, for tests of what keeps them."""

from __future__ import annotations

import base64
import json

from tests.fakes.certificates import NOW, authority
from tower.clusters.ssh_spec import SSHSpec
from tower.kube.kubeconfig import KubeAccess

#: Words of which nothing may be found anywhere.
TOKEN = "hush-token-of-the-member"

SERVER = "https://10.0.0.1:6443"

#: Who signs the API server's certificate, PEM.
AUTHORITY = authority("member").pem

#: The least that a cluster of type ssh needs.
SPEC = SSHSpec("tower", "/etc/tower/id", nodes=("10.0.0.11", "10.0.0.12:2222"))


def by_token(token: str = TOKEN) -> KubeAccess:
    """Return a way in by a bearer token."""
    return KubeAccess(SERVER, ca_data=AUTHORITY, token=token)


def by_certificate(lifetime: float = 3600.0) -> KubeAccess:
    """Return a way in by a client certificate that ends *lifetime* s after `tests.fakes.certificates.NOW`."""
    issued = authority("clients").client_certificate("tower", (), "", "", lifetime, NOW)
    return KubeAccess(
        SERVER,
        ca_data=AUTHORITY,
        client_certificate=issued.certificate_pem,
        client_key=issued.key_pem,
    )


def jwt(expires: float) -> str:
    """Return a token that says when it ends."""
    parts = ({"alg": "none"}, {"exp": expires, "sub": "hush"})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2ln"])


def secrets_of(access: KubeAccess) -> list[bytes]:
    """Return what must not be found anywhere: the secrets of *access*, as they are and in base64."""
    found = []
    if access.token:
        found.append(access.token.encode())
    if access.client_key:
        body = b"".join(access.client_key.splitlines()[1:-1])  # as PEM has it
        found += [access.client_key, body[8:60], base64.b64decode(body)[8:40]]
    return [form for secret in found for form in (secret, base64.b64encode(secret)[:-4])]
