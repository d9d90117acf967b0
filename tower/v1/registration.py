"""Our agent's registration with an old proxy: name, token, two addresses, the cluster's credentials."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from tower import __version__
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.tunnels.targets import ServiceAddress
from tower.v1.config import LONGEST_CONFIG, AgentConfig
from tower.v1.token_source import TokenSource

_SENT = (
    "kubesphere-v1: this agent sends its credential for the API server ({what}) to the proxy, which can use "
    "it without restriction; the agent checks no request and cannot distinguish users"
)


@frozen
class Registration:
    """The registration of one connection.

    :ivar config: sent to the proxy.  Secret.
    :ivar addresses: the address to dial for each one in *config*, in lower case; no other is dialed.
    """

    config: AgentConfig = field(repr=False)
    addresses: Mapping[str, ServiceAddress]


@define(eq=False)
class Registrar:
    """Makes registrations from the current state of the member.

    :param token: the cluster's token at the proxy, read for each registration.
    :param kubesphere: the KubeSphere API server, which uses plain HTTP.
    :raise ConfigurationError: an old proxy cannot connect to such a member.
    """

    _member: APIServer
    _cluster: str
    _token: TokenSource
    _kubesphere: ServiceAddress

    def __attrs_post_init__(self) -> None:
        """Check that the member can be registered."""
        self.registration()

    def registration(self) -> Registration:
        """Return the registration for a new connection.

        It names the API server as its certificate does, because the proxy verifies that; the agent dials the
        configured address.  Old proxies ignore a token if there is a client certificate, so none is sent
        then.

        :raise ConfigurationError: the member needs a feature that old proxies lack.
        """
        member, material = self._member, self._member.material
        if member.tls is None:
            raise ConfigurationError(
                f"API server {member.address}: proxies of kubesphere-v1 need TLS, and it has none: "
                "set an https server in the kubeconfig"
            )
        if member.upstream().prefix:
            raise ConfigurationError(
                f"API server {member.address}: proxies of kubesphere-v1 do not support a path in its URL: "
                "set a server without a path in the kubeconfig"
            )
        called = ServiceAddress(member.server_name, member.port)
        config = AgentConfig(
            version=__version__,
            name=self._cluster,
            token=self._token.read(),
            kubernetes=str(called),
            kubesphere=str(self._kubesphere),
            authority=material.authority or b"",
            certificate=material.certificate,
            key=material.key,
            bearer=b"" if material.certificate else material.token,
        )
        size = len(config.encode())
        if size > LONGEST_CONFIG:
            raise ConfigurationError(
                f"the registration has {size} B, and proxies of kubesphere-v1 accept {LONGEST_CONFIG} B: "
                "keep only the API server's CA in the kubeconfig's certificate-authority"
            )
        addresses = {
            config.kubesphere.lower(): self._kubesphere,
            config.kubernetes.lower(): ServiceAddress(member.host, member.port),
        }
        return Registration(config, addresses)

    @property
    def warnings(self) -> list[str]:
        """Warnings for the owner."""
        material = self._member.material
        found = [_SENT.format(what=_named(self._member))]
        if material.insecure:
            found.append(
                "insecure-skip-tls-verify: proxies of kubesphere-v1 always verify the API server, and will "
                "reject it unless they know its CA: set certificate-authority in the kubeconfig instead"
            )
        elif material.authority is None:
            found.append(
                "the kubeconfig has no certificate-authority: the proxy verifies the API server with the CAs "
                "of its own machine"
            )
        return found


def _named(member: APIServer) -> str:
    material = member.material
    if material.certificate:
        return "a client certificate with its key"
    return "a bearer token" if material.token else "none now"
