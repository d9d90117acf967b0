"""Targets of streams: what in a cluster a stream leads to."""

from __future__ import annotations

import re

from attrs import frozen

from tower.errors import ConfigurationError
from tower.net.addresses import join_address, parse_address

#: The target that leads to the member's API server, always by way of `HeadPolicy`.
KUBERNETES = "kubernetes"
#: The target that leads to the member's KubeSphere, which speaks plain HTTP and has a login of its own.
KUBESPHERE = "kubesphere"

#: Where KubeSphere's API server mostly is: old agents' default, with the port that theirs lacks.
KUBESPHERE_SERVICE = ("ks-apiserver.kubesphere-system.svc", 80)
TARGET_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?")


@frozen
class Target:
    """A named address that streams may lead to.

    :ivar host: a host name or an address, IPv6 without brackets.
    """

    name: str
    host: str
    port: int


def parse_target(text: str) -> Target:
    """Read one `name=host:port`.

    :raise ConfigurationError: naming the text and what is wanted.
    """
    name, equals, address = text.partition("=")
    if not equals or TARGET_NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{text!r} is not name=host:port with a name of lower-case letters, digits, '-' and '.'"
        )
    if name == KUBERNETES:
        raise ConfigurationError(
            f"{text!r}: the target {KUBERNETES!r} is the API server, see --kubernetes-service"
        )
    host, port = parse_address(address)
    return Target(name, host, port)


@frozen
class ServiceAddress:
    """:ivar host: a host name or an address, IPv6 without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``, with brackets if need be."""
        return join_address(self.host, self.port)
