"""The kubelets of a cluster that is reached by SSH: connections to them, and the authorization of users."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import NoReturn

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ClusterUnreachable, ConfigurationError, StreamRefused
from tower.files import read_plain
from tower.kube.apiserver import client_context
from tower.kube.canonical_head import identity_lines
from tower.kube.client import APIClient
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.net.pipes import Pipe
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published
from tower.nodes.access_review import VERBS, AccessReview, NodeReview, subresource_of
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.kubelet_address import KubeletAddresses, internal_addresses
from tower.nodes.record_files import RecordFile
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.tunnels.apiserver_gate import not_secured
from tower.tunnels.tls_handshake import TLSHandshake

#: Largest part of a file with CAs that is read, B.
AUTHORITY_LIMIT = 1 << 20

#: Most names of nodes in the error about an unknown node.
_NAMED = 10

# Headers that identify the client; the only credential that kubelets get is the proxy's.
_IDENTITY = re.compile(rb"(?i:host|authorization|impersonate-[^:]*|x-remote-[^:]*):[^\r\n]*\r\n")

# Paths that a kubelet and the proxy might parse differently.
_AMBIGUOUS = re.compile(rb"[%\\]|//|/\.{1,2}(?:/|\Z)")

#: OpenSSL's text about a valid certificate of another host.
_MISMATCH = " mismatch, certificate is not valid for "

#: A request that is never sent: the API server's gate decides by it whether the user may be impersonated.
_AS = b"GET / HTTP/1.1\r\n%bHost: kubernetes\r\n\r\n"


@define(eq=False, repr=False)
class Kubelets:
    """All kubelets of one cluster.

    :param cluster: its name.
    :param api: for access reviews.
    :param authority: file with the kubelets' CAs; read only if *spec* names one.
    :ivar draining: set when another object replaces this one; see
        `tower.tunnels.apiserver_gate.APIServerGate`.
    """

    _clock: IReactorTime
    _cluster: str
    _spec: SSHSpec
    _tunnels: NodeTunnels
    _api: APIClient
    _apiserver: MemberAPIServer
    _authority: RecordFile
    draining: bool = field(default=False, init=False)
    _review: NodeReview = field(init=False)
    _addresses: KubeletAddresses = field(factory=KubeletAddresses, init=False)
    _trust: tuple[object, ssl.SSLContext] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._review = NodeReview(self._clock, self._api, self._cluster)

    @property
    def _no_credential(self) -> str:
        return f"there is no usable credential for cluster {self._cluster}"

    def find(self, name: str) -> Node:
        """Return the node with that name, alias or address; the name takes precedence.

        :raise StatusError: 404, with the names of some nodes.
        """
        nodes = self._tunnels.nodes
        found = [node for node in nodes if node.is_called(name)]
        if found:
            return next((node for node in found if node.name == name), found[0])
        names = [node.name for node in nodes]
        known = ", ".join(names[:_NAMED]) or "none"
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise StatusError(
            404, f'cluster {self._cluster} has no node "{name}"; it has {known}{more}', details={"name": name}
        )

    def authorize(
        self, user: str, groups: Sequence[str], name: str, method: bytes, path: bytes, *, upgrade: bool
    ) -> Deferred[None] | None:
        """Return None if *user* may send this to the node *name*, or a Deferred that fires once known.

        :param path: as it is sent, without a query.
        :param upgrade: whether it requests another protocol; commands are run like this, with any method.
        :raise StatusError: also through the Deferred: the user must not, or there is no such node.
        :raise ClusterUnreachable: also through the Deferred: the API server was not reached.
        """
        node = self.find(name)
        if self._apiserver.material is None:
            raise ClusterUnreachable(self._no_credential)
        if _AMBIGUOUS.search(path):
            raise StatusError(
                400,
                "a path of a kubelet must not contain escapes, backslashes, dot segments or empty segments",
            )
        verb = "create" if upgrade else VERBS.get(method)
        if verb is None:
            raise StatusError(405, f"kubelets do not support the method {method.decode('latin-1')}")
        self._apiserver.rewrite(_AS % identity_lines(user, groups), plain=False)
        return self._review(AccessReview(user, tuple(groups), node.name, verb, subresource_of(path)))

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head for a kubelet, with the proxy's credential; call `authorize` before.

        :raise StatusError: 503: there is no usable credential.
        """
        if self._apiserver.material is None:
            raise StatusError(503, self._no_credential)
        line, _, fields = head.partition(b"\r\n")
        kept = b"".join(
            field for field in fields.splitlines(keepends=True) if _IDENTITY.fullmatch(field) is None
        )
        return b"%b\r\nHost: kubelet\r\n%b%b" % (line, self._apiserver.upstream().credential_line, kept)

    def open(self, node: str) -> Deferred[Pipe]:
        """Open a stream to the kubelet of the node with that name, TLS up.

        Through the node's own tunnel, see `KubeletAddresses`; if it has none, through another node.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        :raise ClusterUnreachable: through the Deferred: no node's tunnel is open.
        :raise StatusError: through the Deferred: there is no such node, or its address is not allowed.
        """
        return Deferred.fromCoroutine(self._open(node))

    async def _open(self, name: str) -> Pipe:
        node, port = self.find(name), self._spec.kubelet_port
        try:
            context = self._context()
        except ConfigurationError as e:
            raise StreamRefused("failed", str(e)) from e
        tunnel = self._tunnels.at(node)
        if tunnel is not None:
            channel = await self._addresses.dial(tunnel, node, port)
        else:
            channel = await self._tunnels.dial(_address_of(node), port)
        handshake = TLSHandshake(channel, context, node.name, self._clock, owner=self)
        return await handshake.secured.addErrback(not_secured).addErrback(self._not_trusted)

    def _not_trusted(self, failure: Failure) -> NoReturn:
        """Add the cure to the error about a certificate; most such kubelets have a self-signed one."""
        error = failure.value
        if not isinstance(error, StreamRefused) or error.code != "tls" or self._spec.kubelet_insecure:
            failure.raiseException()
        text, command = str(error).removesuffix("."), f"tower cluster set {self._cluster}"
        cure = f"set the kubelets' CA with '{command} --kubelet-certificate-authority FILE'"
        if _MISMATCH in text:
            cure = (
                "list the node by a name in its certificate, or turn the verification off with "
                f"'{command} --insecure-skip-kubelet-tls-verify'"
            )
        raise StreamRefused("tls", f"{text}: {cure}") from None

    def _context(self) -> ssl.SSLContext:
        """Return the TLS settings, reading the file with the CA again if it has changed.

        :raise ConfigurationError: there is no usable credential, or the file is unusable.
        """
        material = self._apiserver.material
        if material is None:
            raise ConfigurationError(self._no_credential)
        authority, file = material.authority, self._authority
        try:
            if self._spec.kubelet_authority:
                authority = read_plain(file.path, AUTHORITY_LIMIT, file.files)
        except OSError as e:
            raise ConfigurationError(f"{file.path}: {e.strerror}") from e
        if self._trust is None or self._trust[0] != authority:
            refuse_published(f"kubelet CA {file.path}", authority or b"", ANOTHER_CA_CURE)
            access = KubeAccess(
                server="kubelets",
                ca_data=authority,
                insecure=self._spec.kubelet_insecure,
                client_certificate=material.certificate or None,
                client_key=material.key or None,
            )
            self._trust = authority, client_context(access)
        return self._trust[1]


def _address_of(node: Node) -> str:
    """Return the address of *node* that other nodes dial.

    :raise StatusError: 400: no address is allowed, with kube-apiserver's text.
    """
    allowed = internal_addresses(node)
    if not allowed:
        raise StatusError(
            400,
            f"address not allowed: other nodes do not dial {node.host}, the address of node {node.name}: "
            "list it with an address that is not loopback, link-local, multicast or unspecified",
        )
    return allowed[0]
