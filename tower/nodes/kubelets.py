"""The kubelets of a cluster that is reached by SSH: the way to each, and who may go it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ClusterUnreachable, ConfigurationError, StreamRefused
from tower.files import read_plain
from tower.kube.apiserver import Material, client_context
from tower.kube.canonical_head import identity_lines
from tower.kube.head_policy import Upstream
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published
from tower.nodes.access_review import VERBS, AccessReview, NodeReview, Posts, subresource_of
from tower.nodes.kubelet_address import KubeletAddresses, OneTunnel, internal_addresses
from tower.nodes.record_files import RecordFile
from tower.tunnels.apiserver_gate import not_secured
from tower.tunnels.tls_handshake import TLSHandshake

#: How much of a file with CAs is read, B.
AUTHORITY_LIMIT = 1 << 20

#: How many names of nodes are told to who asked for one that is not there.
_NAMED = 10

# What would say who asks; the credential that is lent is the only one that goes there.
_IDENTITY = re.compile(rb"(?i:host|authorization|impersonate-[^:]*|x-remote-[^:]*):[^\r\n]*\r\n")

# What kubelets, and we, might read as different paths.
_AMBIGUOUS = re.compile(rb"[%\\]|//|/\.{1,2}(?:/|\Z)")


class Gate(Protocol):
    """What is needed of `tower.nodes.apiserver.MemberAPIServer`."""

    @property
    def material(self) -> Material | None:
        """The credential that is kept; None while there is none."""

    def upstream(self) -> Upstream:
        """Return what heads need."""

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a head as it goes to the API server; raises `StatusError` for whom nobody may act as."""


class Nodes(Protocol):
    """What is needed of `tower.nodes.tunnels.tunnels.NodeTunnels`."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All that are known."""

    def at(self, node: Node) -> OneTunnel | None:
        """Return the tunnel to *node*, if there is one."""

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Return a channel to *host*, as one of the nodes reaches it."""


class Kubelets:
    """:param clock: an ``IReactorTime``.
    :param cluster: its name.
    :param api: the member's.
    :param authority: the file with the kubelets' CAs; looked at only if *spec* names one.
    :ivar draining: set it when others took their place; see `tower.tunnels.apiserver_gate.APIServerGate`.
    """

    draining = False

    def __init__(
        self,
        clock: Any,
        cluster: str,
        spec: SSHSpec,
        nodes: Nodes,
        api: Posts,
        gate: Gate,
        authority: RecordFile,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._no_credential = f"there is no credential for cluster {cluster} that could be used"
        self._spec = spec
        self._authority = authority
        self._nodes = nodes
        self._gate = gate
        self._review = NodeReview(clock, api, cluster)
        self._places = KubeletAddresses()
        self._trust: tuple[object, ssl.SSLContext] | None = None

    def find(self, name: str) -> Node:
        """Return the node that is called *name*; before others the one that the cluster calls so.

        :raise Refusal: there is none; it names some that there are.
        """
        nodes = self._nodes.nodes
        called = [node for node in nodes if node.is_called(name)]
        if called:
            return next((node for node in called if node.name == name), called[0])
        names = [node.name for node in nodes]
        known = ", ".join(names[:_NAMED]) or "none"
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise StatusError(
            404, f'cluster {self._cluster} has no node "{name}"; it has {known}{more}', details={"name": name}
        )

    def authorize(
        self, user: str, groups: Sequence[str], name: str, method: bytes, path: bytes, *, upgrade: bool
    ) -> Deferred[None] | None:
        """Return None if *user* may do this at the node called *name*, or what fires when that is known.

        :param path: as it is sent, without a query.
        :param upgrade: it asks for another protocol: whatever the method, that is how commands are run.
        :raise Refusal: also through the Deferred: he may not, or there is no such node, or nobody can tell.
        :raise ClusterUnreachable: through the Deferred: the API server, which knows, was not reached.
        """
        node = self.find(name)
        if self._gate.material is None:
            raise ClusterUnreachable(self._no_credential)
        if _AMBIGUOUS.search(path):
            raise StatusError(400, "no escapes, backslashes, dots or empty segments in a path of a kubelet")
        verb = "create" if upgrade else VERBS.get(method)
        if verb is None:
            raise StatusError(405, f"{method.decode('latin-1')} is nothing that a kubelet knows")
        self._gate.rewrite(_AS % identity_lines(user, groups), plain=False)
        return self._review(AccessReview(user, tuple(groups), node.name, verb, subresource_of(path)))

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head as it goes to a kubelet, with the credential in it; see `authorize`.

        :raise Refusal: there is no credential any more.
        """
        if self._gate.material is None:
            raise StatusError(503, self._no_credential)
        line, _, fields = head.partition(b"\r\n")
        kept = b"".join(
            field for field in fields.splitlines(keepends=True) if _IDENTITY.fullmatch(field) is None
        )
        return b"%b\r\nHost: kubelet\r\n%b%b" % (line, self._gate.upstream().credential_line, kept)

    def open(self, node: str) -> Deferred[Any]:
        """Open a stream to the kubelet of the node of that name, with its TLS up.

        By the node's own tunnel, see `KubeletAddresses`; to one that has none, from another.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        :raise ClusterUnreachable: through the Deferred: no node is there.
        :raise Refusal: through the Deferred: there is no such node.
        """
        return Deferred.fromCoroutine(self._open(node))

    async def _open(self, name: str) -> Any:
        node, port = self.find(name), self._spec.kubelet_port
        try:
            context = self._context()
        except ConfigurationError as e:
            raise StreamRefused("failed", str(e)) from e
        tunnel = self._nodes.at(node)
        if tunnel is not None:
            channel = await self._places.dial(tunnel, node, port)
        else:
            channel = await self._nodes.dial(internal_addresses(node)[0], port)
        return await self._secure(channel, context, node)

    def _secure(self, channel: Any, context: ssl.SSLContext, node: Node) -> Deferred[Any]:
        pipe = TLSHandshake(channel, context, node.name, self._clock, owner=self)
        securing: Deferred[Any] = pipe.secured
        return securing.addErrback(not_secured).addErrback(self._not_trusted)

    def _not_trusted(self, failure: Failure) -> None:
        """Say what helps where nobody vouches for a kubelet: mostly it made its own certificate."""
        error = failure.value
        if not isinstance(error, StreamRefused) or error.code != "tls" or self._spec.kubelet_insecure:
            failure.raiseException()
        text, order = str(error).removesuffix("."), f"'tower cluster set {self._cluster}"
        cure = f"{order} --kubelet-certificate-authority FILE' says who vouches for its kubelets"
        if _MISMATCH in text:
            cure = (
                "list the node by a name that the certificate is for; where that cannot be, "
                f"{order} --insecure-skip-kubelet-tls-verify' has none looked at"
            )
        raise StreamRefused("tls", f"{text}: {cure}") from None

    def _context(self) -> ssl.SSLContext:
        """Return how kubelets are verified, read anew if the file with their CA changed.

        :raise ConfigurationError: there is no credential, or a file is no good.
        """
        material = self._gate.material
        if material is None:
            raise ConfigurationError(self._no_credential)
        authority, file = material.authority, self._authority
        try:
            if self._spec.kubelet_authority:
                authority = read_plain(file.path, AUTHORITY_LIMIT, file.files)
        except OSError as e:
            raise ConfigurationError(f"{file.path}: {e.strerror}") from e
        if self._trust is None or self._trust[0] != authority:
            refuse_published(f"kubelet CA {file}", authority or b"", ANOTHER_CA_CURE)
            self._trust = (
                authority,
                kubelet_context(material, authority, insecure=self._spec.kubelet_insecure),
            )
        return self._trust[1]


def kubelet_context(material: Material, authority: bytes | None, *, insecure: bool) -> ssl.SSLContext:
    """Return how kubelets are verified and, where the credential is a certificate, told who asks.

    :param authority: CAs, PEM; None: the system's.
    :raise ConfigurationError: something of it cannot be used.
    """
    access = KubeAccess(
        server="kubelets",
        ca_data=authority,
        insecure=insecure,
        client_certificate=material.certificate or None,
        client_key=material.key or None,
    )
    return client_context(access)


#: In OpenSSL's words about a certificate that is good, but for somebody else.
_MISMATCH = " mismatch, certificate is not valid for "

#: A request that never leaves: whether somebody may be acted as is the API server's gate's to say.
_AS = b"GET / HTTP/1.1\r\n%bHost: kubernetes\r\n\r\n"
