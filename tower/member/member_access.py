"""The agent's clients of its API server for `tower.kube.member_check`."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

from twisted.internet.interfaces import IReactorTime

from tower.kube.apiserver import APIServer
from tower.kube.client import APIClient
from tower.kube.connection_settings import CredentialFacts
from tower.kube.head_fields import Upstream
from tower.kube.member_check import CHECK_LIMIT, TIMEOUT, MemberChecker
from tower.kube.member_cures import MemberTexts
from tower.net.connecting import connect
from tower.net.pipes import Pipe
from tower.net.tls.unverified import unverified_context
from tower.reactor.interfaces import ISocketReactor

_PROGRAM = b"tower-agent"


def create_client(
    reactor: IReactorTime,
    sockets: ISocketReactor,
    member: APIServer,
    upstream: Callable[[], Upstream] | None = None,
    *,
    tls: Callable[[], ssl.SSLContext | None] | None = None,
) -> APIClient:
    """Return a client of *member*.

    :param upstream: returns the values for heads; None: those of *member*, with the agent's own credential.
    :param tls: returns the TLS context; None: that of *member*.
    """

    def open_pipe() -> Awaitable[Pipe]:
        context = member.tls if tls is None else tls()
        return connect(
            sockets,
            member.host,
            member.port,
            tls=context,
            server_hostname=member.server_name,
            timeout=TIMEOUT,
        )

    return APIClient(
        reactor, open_pipe, upstream or member.upstream, timeout=TIMEOUT, limit=CHECK_LIMIT, program=_PROGRAM
    )


def create_checker(
    reactor: IReactorTime,
    sockets: ISocketReactor,
    member: APIServer,
    texts: MemberTexts,
    *,
    epoch: Callable[[], float],
    impersonate: bool,
) -> MemberChecker:
    """Return the checker of *member*; see `MemberChecker`."""

    def facts() -> CredentialFacts:
        material = member.material
        return CredentialFacts.of(material.certificate, material.token, member.problem)

    unverified = create_client(
        reactor,
        sockets,
        member,
        lambda: member.upstream().without_credential(),
        tls=unverified_context,
    )
    return MemberChecker(
        reactor,
        create_client(reactor, sockets, member),
        lambda: member.address,
        facts,
        texts,
        epoch=epoch,
        impersonate=impersonate,
        unverified=unverified,
    )
