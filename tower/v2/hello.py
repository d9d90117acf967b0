"""The hello messages that agent and proxy exchange after authentication.  No I/O.

The agent sends the global request ``hello@tower.kubesphere.io`` (RFC 4254 section 4); the reply has the same
form: a JSON object in UTF-8 of at most 16 KiB.  Unknown keys are ignored and missing ones have a default, so
either side can add keys first.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict, frozen

from tower.conch.transport.fields import Malformed
from tower.escaping import VERSION_LIMIT, shortened

#: Name of the request.
HELLO = b"hello@tower.kubesphere.io"
#: Capability of both sides: the agent reports the state of its API server.
MEMBER_STATUS = "member-status"
#: Capability of the agent: it checks its API server when the proxy requests that.
CHECK_MEMBER = "check-member"
#: Name of the proxy's request that updates the pins of its hello.
ANNOUNCE = b"announce@tower.kubesphere.io"
#: Longest hello accepted, B.
LONGEST_HELLO = 16 * 1024
#: Longest list and longest text accepted in a hello.
LONGEST_LIST = 256
LONGEST_TEXT = 256


@frozen
class AgentHello:
    """The agent's hello.

    :ivar version: of the agent, for display; truncated to `VERSION_LIMIT` characters.
    :ivar name: of this replica, for display: the host's name; truncated likewise.
    :ivar capabilities: extensions of the protocol, such as `MEMBER_STATUS`.
    :ivar server: the agent's name for its API server, ``HOST[:PORT][/PATH]``: the proxy rewrites absolute
        ``Location`` headers that point to it.
    """

    version: str = ""
    name: str = ""
    targets: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    server: str = ""

    def encode(self) -> bytes:
        """Return the encoded hello."""
        return _encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> AgentHello:
        """Return the decoded hello.

        :raise Malformed: *data* is not a valid hello.
        """
        fields = _decode(data)
        return cls(
            version=shortened(_text(fields, "version"), VERSION_LIMIT),
            name=shortened(_text(fields, "name"), VERSION_LIMIT),
            targets=_texts(fields, "targets"),
            capabilities=_texts(fields, "capabilities"),
            server=_text(fields, "server"),
        )


@frozen
class ProxyHello:
    """The proxy's hello, the reply.

    :ivar version: of the proxy, for display; truncated to `VERSION_LIMIT` characters.
    :ivar capabilities: extensions of the protocol, such as `MEMBER_STATUS`.
    :ivar proxies: other proxies to dial; empty so far.
    :ivar host_keys: fingerprints of its host keys, also future ones: an agent may pin them all.
    :ivar ca_hashes: hashes of the CAs of its serving certificate, also future ones, likewise.
    :ivar keepalive: interval of its keepalives, s; 0: unknown.
    """

    version: str = ""
    capabilities: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    keepalive: float = 0.0
    ca_hashes: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded hello."""
        return _encode(
            {
                "version": self.version,
                "capabilities": self.capabilities,
                "proxies": self.proxies,
                "hostKeys": self.host_keys,
                "caHashes": self.ca_hashes,
                "keepalive": self.keepalive,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ProxyHello:
        """Return the decoded hello.

        :raise Malformed: *data* is not a valid hello.
        """
        fields = _decode(data)
        keepalive = fields.get("keepalive", 0.0)
        if isinstance(keepalive, bool) or not isinstance(keepalive, int | float):
            raise Malformed("hello: keepalive is not a number")
        if not 0 <= keepalive <= 86_400:
            raise Malformed("hello: keepalive is not between 0 and 86400 s")
        return cls(
            version=shortened(_text(fields, "version"), VERSION_LIMIT),
            capabilities=_texts(fields, "capabilities"),
            proxies=_texts(fields, "proxies"),
            host_keys=_texts(fields, "hostKeys"),
            keepalive=float(keepalive),
            ca_hashes=_texts(fields, "caHashes"),
        )


@frozen
class Announcement:
    """Pins of the proxy, for now and for after a rotation: sent to live agents with `ANNOUNCE`.

    :ivar host_keys: as in `ProxyHello`.
    :ivar ca_hashes: as in `ProxyHello`.
    """

    host_keys: tuple[str, ...] = ()
    ca_hashes: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded announcement."""
        return _encode({"hostKeys": self.host_keys, "caHashes": self.ca_hashes})

    @classmethod
    def decode(cls, data: bytes) -> Announcement:
        """Return the decoded announcement.

        :raise Malformed: *data* is not a valid announcement.
        """
        fields = _decode(data)
        return cls(_texts(fields, "hostKeys"), _texts(fields, "caHashes"))


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    if len(data) > LONGEST_HELLO:
        raise Malformed(f"a hello of {len(data)} B exceeds the limit of {LONGEST_HELLO} B")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("hello: not JSON") from None
    if not isinstance(fields, dict):
        raise Malformed("hello: not a JSON object")
    return fields


def _checked(value: object, key: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not value.isprintable():
        raise Malformed(f"hello: {key} is not printable text of at most {LONGEST_TEXT} characters")
    return value


def _text(fields: dict[str, Any], key: str) -> str:
    return _checked(fields.get(key, ""), key)


def _texts(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    values = fields.get(key, [])
    if not isinstance(values, list) or len(values) > LONGEST_LIST:
        raise Malformed(f"hello: {key} is not a list of at most {LONGEST_LIST} names")
    return tuple(_checked(value, key) for value in values)
