"""The ``config`` of an agent of ``kubesphere-v1``: its identity, and its cluster's credentials.  No I/O.

It is the first global request after authentication, named ``config``: the raw JSON of a Go struct.  Like Go,
this accepts keys in any case, treats ``null`` as missing, ignores unknown keys and uses standard base64 for
``[]byte``.  Credentials are never part of an error or ``repr``.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import Any

from attrs import field, frozen

from tower.conch.transport.fields import Malformed

CLIENT_VERSION = b"SSH-kubesphere-v1-client"
SERVER_VERSION = b"SSH-kubesphere-v1-server"

#: Names of the global requests: registration and keepalive.
CONFIG = b"config"
PING = b"ping"

#: Type of the channels; its data is ``host:port``, without a length.
CHANNEL = b"kubesphere"

#: Longest config, B: packets of deployed peers end at 256 KiB.
LONGEST_CONFIG = 255 * 1024

#: Longest name, address, version or token, characters.
LONGEST_TEXT = 1024


@frozen
class AgentConfig:
    """An agent's registration.

    :ivar kubernetes: ``host:port`` of the API server, for channels.
    :ivar kubesphere: ``host:port`` of the KubeSphere API server, which uses plain HTTP.
    :ivar authority: PEM, the CAs of the API server's certificate.
    :ivar certificate: PEM, a client certificate; used only together with *key*.
    :ivar bearer: a token for the API server; used only without a certificate.
    """

    version: str = ""
    name: str = ""
    token: str = field(default="", repr=False)
    kubernetes: str = ""
    kubesphere: str = ""
    authority: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    bearer: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """Return the encoded config.  Secret."""
        fields: dict[str, str] = {
            "Version": self.version,
            "Name": self.name,
            "Token": self.token,
            "KubernetesSvcHost": self.kubernetes,
            "KubeSphereSvcHost": self.kubesphere,
        }
        for key, data in (
            ("CertData", self.certificate),
            ("KeyData", self.key),
            ("CAData", self.authority),
            ("BearerToken", self.bearer),
        ):
            if data:
                fields[key] = b64encode(data).decode("ascii")
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> AgentConfig:
        """Return the decoded config.

        :raise Malformed: *data* is not a valid config; the text names the key and has no value.
        """
        fields = _decode(data)
        return cls(
            version=_text(fields, "Version"),
            name=_text(fields, "Name"),
            token=_text(fields, "Token"),
            kubernetes=_text(fields, "KubernetesSvcHost"),
            kubesphere=_text(fields, "KubeSphereSvcHost"),
            authority=_bytes(fields, "CAData"),
            certificate=_bytes(fields, "CertData"),
            key=_bytes(fields, "KeyData"),
            bearer=_bytes(fields, "BearerToken"),
        )


def _decode(data: bytes) -> dict[str, Any]:
    if len(data) > LONGEST_CONFIG:
        raise Malformed(f"a config of {len(data)} B exceeds the limit of {LONGEST_CONFIG} B")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("the config is not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("the config is not a JSON object")
    return {key.lower(): value for key, value in fields.items() if value is not None}


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key.lower(), "")
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not value.isprintable():
        raise Malformed(f"{key} is not a printable text of at most {LONGEST_TEXT} characters in the config")
    return value


def _bytes(fields: dict[str, Any], key: str) -> bytes:
    value = fields.get(key.lower(), "")
    if not isinstance(value, str):
        raise Malformed(f"{key} is not a text in the config")
    try:
        return b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{key} is not base64 in the config") from None
