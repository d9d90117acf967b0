"""The hello: what agent and proxy tell each other once the agent is let in.  No I/O.

The agent sends the global request ``hello@tower.kubesphere.io`` (RFC 4254 section 4), the reply is in
the same form: a JSON object in UTF-8 of at most 16 KiB.  Unknown keys are ignored and missing ones have
a default, so that either side can learn new words first.
"""

from __future__ import annotations

import json
import math
from typing import Any

from attrs import frozen

from tower.conch.transport.fields import Malformed
from tower.escaping import LONGEST_VERSION, shortened

#: The request's name.
HELLO = b"hello@tower.kubesphere.io"
#: Longest hello accepted, B.
LONGEST_HELLO = 16 * 1024
#: Longest list and longest text accepted in one.
LONGEST_LIST = 256
LONGEST_TEXT = 256


@frozen
class AgentHello:
    """From the agent.

    :ivar version: of the agent, for people; no more than `LONGEST_VERSION` characters of it are read.
    :ivar name: of this replica, for people: the host's name; likewise.
    :ivar targets: names of the targets it leads to.
    :ivar capabilities: what it can do beyond this protocol; none so far.
    :ivar server: what it calls its API server, ``HOST[:PORT][/PATH]``: whom that sends there by an absolute
        ``Location``, the proxy sends to itself.
    """

    version: str = ""
    name: str = ""
    targets: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    server: str = ""

    def encode(self) -> bytes:
        """Return it as it is sent."""
        return _encode(
            {
                "version": self.version,
                "name": self.name,
                "targets": self.targets,
                "capabilities": self.capabilities,
                "server": self.server,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> AgentHello:
        """Return what *data* says.

        :raise Malformed: it is no hello.
        """
        words = _decode(data)
        return cls(
            version=shortened(_text(words, "version"), LONGEST_VERSION),
            name=shortened(_text(words, "name"), LONGEST_VERSION),
            targets=_texts(words, "targets"),
            capabilities=_texts(words, "capabilities"),
            server=_text(words, "server"),
        )


@frozen
class ProxyHello:
    """From the proxy, in reply.

    :ivar version: of the proxy, for people; no more than `LONGEST_VERSION` characters of it are read.
    :ivar capabilities: what it can do beyond this protocol; none so far.
    :ivar proxies: where else to dial; empty so far.
    :ivar host_keys: fingerprints of its host keys, the next ones too: an agent may pin them all.
    :ivar keepalive: how often it probes, s; 0 when it does not say.
    """

    version: str = ""
    capabilities: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    keepalive: float = 0.0

    def encode(self) -> bytes:
        """Return it as it is sent."""
        return _encode(
            {
                "version": self.version,
                "capabilities": self.capabilities,
                "proxies": self.proxies,
                "hostKeys": self.host_keys,
                "keepalive": self.keepalive,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ProxyHello:
        """Return what *data* says.

        :raise Malformed: it is no hello.
        """
        words = _decode(data)
        keepalive = words.get("keepalive", 0.0)
        if isinstance(keepalive, bool) or not isinstance(keepalive, int | float):
            raise Malformed("keepalive is no number in a hello")
        if not (math.isfinite(keepalive) and 0 <= keepalive <= 86_400):
            raise Malformed("keepalive is no number of seconds in a hello")
        return cls(
            version=shortened(_text(words, "version"), LONGEST_VERSION),
            capabilities=_texts(words, "capabilities"),
            proxies=_texts(words, "proxies"),
            host_keys=_texts(words, "hostKeys"),
            keepalive=float(keepalive),
        )


def _encode(words: dict[str, object]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    if len(data) > LONGEST_HELLO:
        raise Malformed(f"a hello of {len(data)} B exceeds the limit of {LONGEST_HELLO} B")
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("a hello that is not JSON") from None
    if not isinstance(words, dict):
        raise Malformed("a hello that is no JSON object")
    return words


def _checked(value: object, key: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or not value.isprintable():
        raise Malformed(f"{key} is no printable text in a hello")
    return value


def _text(words: dict[str, Any], key: str) -> str:
    return _checked(words.get(key, ""), key)


def _texts(words: dict[str, Any], key: str) -> tuple[str, ...]:
    values = words.get(key, [])
    if not isinstance(values, list) or len(values) > LONGEST_LIST:
        raise Malformed(f"{key} is no list of names in a hello")
    return tuple(_checked(value, key) for value in values)
