"""Targets: the named destinations of streams in a cluster."""

from __future__ import annotations

import re

from attrs import frozen

from tower.errors import ConfigurationError
from tower.net.addresses import join_address, parse_address

#: The member's API server, always through `HeadPolicy`.
KUBERNETES = "kubernetes"
#: The member's KubeSphere, which uses plain HTTP and its own login.
KUBESPHERE = "kubesphere"

#: Usual address of KubeSphere's API server: old agents' default, plus the port that theirs lacks.
KUBESPHERE_SERVICE = ("ks-apiserver.kubesphere-system.svc", 80)
TARGET_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?")


@frozen
class Target:
    """A named destination of streams.

    :ivar host: a host name or an address, IPv6 without brackets.
    """

    name: str
    host: str
    port: int


def parse_target(text: str) -> Target:
    """Read one `name=host:port`.

    :raise ConfigurationError: with the text and the expected form.
    """
    name, equals, address = text.partition("=")
    if not equals or TARGET_NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{text!r} is not NAME=HOST:PORT with a name of lower-case letters, digits, '-' and '.'"
        )
    if name == KUBERNETES:
        raise ConfigurationError(
            f"{text!r}: the target {KUBERNETES!r} is the API server: set it with --kubernetes-service"
        )
    host, port = parse_address(address)
    return Target(name, host, port)


@frozen
class ServiceAddress:
    """:ivar host: a host name or an address, IPv6 without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``, IPv6 in brackets."""
        return join_address(self.host, self.port)
