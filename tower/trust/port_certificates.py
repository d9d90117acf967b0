"""Certificates of the clusters' ports: the names of the front door, and those of the cluster's Service.

Each port with more names has its own certificate, so a client of one cluster does not see the names of the
others.  It is issued for the first connection after the names, or a CA, have changed; nothing is stored.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence

from attrs import define, field
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.trust.pki import AS_HOST_NAME, general_names
from tower.trust.serving_certificate import ServingCertificate


@define(eq=False)
class _Context:
    """A context in use.

    :ivar until: when it must be replaced, s since the epoch.
    """

    context: ssl.SSLContext
    generation: int
    until: float


@define(eq=False)
class PortCertificates:
    """The TLS contexts of the clusters' ports."""

    _log = Logger()

    _serving: ServingCertificate
    _names: dict[str, tuple[str, ...]] = field(factory=dict, init=False)
    _contexts: dict[tuple[str, bool], _Context] = field(factory=dict, init=False)

    def set_names(self, cluster: str, names: Sequence[str]) -> None:
        """Set the further names of a cluster's port, for its next connection.

        :param names: host names and IP addresses; IPv4 addresses are host names, too.  Others are logged.
        """
        fitting = [form for name in names for form in self._forms(cluster, name)]
        wanted = tuple(dict.fromkeys(fitting))
        if wanted == self._names.get(cluster, ()):
            return
        if wanted:
            self._names[cluster] = wanted
        else:
            del self._names[cluster]
        for is_open in (False, True):
            self._contexts.pop((cluster, is_open), None)

    def context(self, cluster: str) -> ssl.SSLContext:
        """Return the context for a new connection to the port of a cluster."""
        return self._current(cluster, is_open=False)

    def open_context(self, cluster: str) -> ssl.SSLContext:
        """Return the same without a request for a client certificate."""
        return self._current(cluster, is_open=True)

    def _current(self, cluster: str, *, is_open: bool) -> ssl.SSLContext:
        common = self._serving.open_context if is_open else self._serving.context
        names = self._names.get(cluster)
        if names is None:
            return common
        known = self._contexts.get((cluster, is_open))
        generation = self._serving.generation
        if known is not None and known.generation == generation and self._serving.now < known.until:
            return known.context
        try:
            context, until = self._serving.context_for(names, is_open=is_open)
        except (ConfigurationError, OSError):
            self._log.failure(
                "cannot issue the certificate for the port of cluster {cluster}", cluster=cluster
            )
            return common if known is None else known.context
        self._contexts[cluster, is_open] = _Context(context, generation, until)
        return context

    def _forms(self, cluster: str, name: str) -> Sequence[str]:
        """Return the forms of a name in the certificate; none if it does not fit."""
        try:
            general_names([name])
        except ConfigurationError as e:
            self._log.warn("port of cluster {cluster}: {reason}", cluster=cluster, reason=str(e))
            return ()
        try:
            is_ipv4 = ipaddress.ip_address(name).version == 4
        except ValueError:
            is_ipv4 = False
        return (name, AS_HOST_NAME + name) if is_ipv4 else (name,)
