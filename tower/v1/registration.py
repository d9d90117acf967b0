"""What our agent tells an old proxy: its name and token, two addresses, and the cluster's credentials."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from tower import __version__
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.tunnels.targets import ServiceAddress
from tower.v1.config import LONGEST_CONFIG, AgentConfig

_SENT = (
    "kubesphere-v1: this agent sends its credential for the API server ({what}) to the proxy, which acts "
    "with it as it likes; the agent checks no request and cannot tell one user from another"
)


@frozen
class Registration:
    """What one connection is registered with.

    :ivar config: what is sent.  Secret.
    :ivar addresses: what each address in it stands for, by its lower case; nothing else is ever dialled.
    """

    config: AgentConfig = field(repr=False)
    addresses: Mapping[str, ServiceAddress]


class Registrar:
    """Makes registrations of what the member is like now.

    :param cluster: the name, as the proxy knows it.
    :param kubesphere: the KubeSphere API server, which speaks plain HTTP.
    :raise ConfigurationError: an old proxy cannot reach such a member.
    """

    def __init__(self, member: APIServer, cluster: str, token: str, kubesphere: ServiceAddress) -> None:
        self._member = member
        self._cluster = cluster
        self._token = token
        self._kubesphere = kubesphere
        self.registration()

    def registration(self) -> Registration:
        """Return the registration for a new connection.

        The API server is called by the name that is in its certificate, since the proxy verifies that;
        where it is we know ourselves.  With a client certificate old proxies do not use a token, so it stays.

        :raise ConfigurationError: saying what an old proxy cannot do.
        """
        member, material = self._member, self._member.material
        if member.tls is None:
            raise ConfigurationError(
                f"API server {member.address}: proxies of kubesphere-v1 speak TLS to it, and it has none: "
                "give an https server in the kubeconfig"
            )
        if member.upstream().prefix:
            raise ConfigurationError(
                f"API server {member.address}: proxies of kubesphere-v1 know no path in front of requests: "
                "give a server without one in the kubeconfig"
            )
        called = ServiceAddress(member.server_name, member.port)
        config = AgentConfig(
            version=__version__,
            name=self._cluster,
            token=self._token,
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
                f"the registration would have {size} B, and proxies of kubesphere-v1 take {LONGEST_CONFIG}: "
                "leave in the kubeconfig's certificate-authority only what the API server needs"
            )
        addresses = {
            config.kubesphere.lower(): self._kubesphere,
            config.kubernetes.lower(): ServiceAddress(member.host, member.port),
        }
        return Registration(config, addresses)

    @property
    def warnings(self) -> list[str]:
        """What the owner should know."""
        material = self._member.material
        found = [_SENT.format(what=_named(self._member))]
        if material.insecure:
            found.append(
                "insecure-skip-tls-verify: proxies of kubesphere-v1 always verify the API server, and will "
                "refuse it unless they find its CA: give certificate-authority in the kubeconfig instead"
            )
        elif material.authority is None:
            found.append(
                "the kubeconfig names no certificate-authority: the proxy verifies the API server by the CAs "
                "of its own machine"
            )
        return found


def _named(member: APIServer) -> str:
    material = member.material
    if material.certificate:
        return "a client certificate with its key"
    return "a bearer token" if material.token else "there is none now"
