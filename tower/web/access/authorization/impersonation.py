"""Users who act as others: ``--as``, ``--as-group``, ``--as-uid`` of kubectl, with Kubernetes' header fields.

The user who sent the request needs the right ``impersonate`` for each part of the other identity, as in
kube-apiserver.  That user enters the cluster, and access policies and the credential are about that user; the
modes of authorization, and then the cluster, decide about the other one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote_to_bytes
from weakref import WeakKeyDictionary

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.errors import Forbidden
from tower.escaping import quoted
from tower.http.requests import Fields
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError
from tower.kube.system_identities import ANONYMOUS_USER, UNAUTHENTICATED_GROUP
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Answer, Authorizer, Decision
from tower.web.access.authorization.mode_filter import user_of
from tower.web.gateway.raw_streams import TOWER_STREAM
from tower.web.gateway.request import Request
from tower.web.peer import Peer

_GROUP = "authentication.k8s.io"
_USER, _GROUPS, _UID = _NAMES = (b"impersonate-user", b"impersonate-group", b"impersonate-uid")
_EXTRA = b"impersonate-extra-"

_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9][-a-z0-9]{0,62}):([a-z0-9][-a-z0-9.]{0,252})")
_NODE = "system:node:"
_KEY = re.compile(r"[!-~]{1,256}")

#: Prefix of Tower's own names, which no cluster accepts.
_RESERVED = "tower:"

_CURE = "an administrator of Tower can grant this right; or omit --as, --as-group and --as-uid"


@frozen
class Wanted:
    """The identity that a request claims.

    :ivar user: as the cluster will know it.
    :ivar rights: the objects that the sender must be allowed to impersonate, in upstream's order.
    """

    user: UserInfo
    rights: tuple[RequestInfo, ...] = field(repr=False)

    @property
    def at_door(self) -> UserInfo:
        """The user with the groups that Kubernetes adds."""
        user = self.user
        account = _ACCOUNT.fullmatch(user.name)
        groups = user.groups
        if account is not None and not groups:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[1]}")
        if user.name == ANONYMOUS_USER and not groups:
            groups = (UNAUTHENTICATED_GROUP,)
        if user.name.startswith(_NODE) and not groups:
            groups = ("system:nodes",)
        return evolve(user, groups=groups)


def wanted_of(fields: Fields) -> Wanted:
    """Return the identity that a request with such fields claims.

    :raise Forbidden: a field is not one of Kubernetes' or occurs twice, or a value is invalid.
    :raise StatusError: 400: there is no user, or a group is empty.
    """
    found: dict[bytes, list[str]] = {name: [] for name in _NAMES}
    extra: dict[str, list[str]] = {}
    for name, raw in fields.split_claims()[0]:
        lower = name.lower()
        if lower in found:
            found[lower].append(_text(name, raw))
        elif lower.startswith(_EXTRA) and lower != _EXTRA:
            extra.setdefault(_key(name, lower), []).append(_text(name, raw))
        else:
            raise Forbidden(f"the header {name.decode('latin-1')} is not accepted: omit it", "impersonation")
    for name in (_USER, _UID):
        if len(found[name]) > 1:
            raise Forbidden("a request impersonates exactly one user (Impersonate-User)", "impersonation")
    facts = tuple((key, tuple(values)) for key, values in sorted(extra.items()))
    info = UserInfo("".join(found[_USER]), tuple(found[_GROUPS]), "".join(found[_UID]), facts)
    if not info.name:
        raise StatusError(
            400,
            f"requested {_in_go(info)} without impersonating a user name: send Impersonate-User (--as), too",
        )
    if "" in info.groups:
        raise StatusError(400, "Impersonate-Group '' is not a group: name one (--as-group), or omit it")
    return Wanted(info, tuple(_rights(info)))


def _in_go(user: UserInfo) -> str:
    """Return a user as kube-apiserver prints it."""

    def texts(values: Sequence[str]) -> str:
        return f"[]string{{{', '.join(map(quoted, values))}}}" if values else "[]string(nil)"

    facts = ", ".join(f"{quoted(key)}:{texts(values)}" for key, values in user.extra)
    extra = f"{{{facts}}}" if facts else "(nil)"
    return (
        f"&user.DefaultInfo{{Name:{quoted(user.name)}, UID:{quoted(user.uid)}, Groups:{texts(user.groups)}, "
        f"Extra:map[string][]string{extra}}}"
    )


def _rights(user: UserInfo) -> Iterator[RequestInfo]:
    """Yield what a user who claims to be *user* must be allowed to impersonate."""
    account = _ACCOUNT.fullmatch(user.name)
    if account is None:
        yield _right("", "users", user.name)
    else:
        yield _right("", "serviceaccounts", account[2], account[1])
    if user.uid:
        yield _right(_GROUP, "uids", user.uid)
    for group in user.groups:
        yield _right("", "groups", group)
    for key, values in user.extra:
        for value in values:
            yield _right(_GROUP, "userextras", value, subresource=key)


def _right(group: str, resource: str, name: str, namespace: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(
        "impersonate", "", group, "v1", namespace, resource, subresource, name, is_resource=True
    )


def _text(name: bytes, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable() or text != text.strip():
        shown = raw[:100].decode("latin-1")
        raise Forbidden(f"{name.decode('latin-1')} {shown!r} is not accepted", "impersonation")
    return text


def _key(name: bytes, lower: bytes) -> str:
    """Return the key of an extra field; also in lower case if it is escaped, as clusters will get it."""
    key = unquote_to_bytes(lower[len(_EXTRA) :]).decode("utf-8", "replace").lower()
    if _KEY.fullmatch(key) is None:
        raise Forbidden(f"the header {name.decode('latin-1')} is not accepted: omit it", "impersonation")
    return key


@frozen(eq=False)
class _LiveImpersonation:
    """The last request of a connection that asked to act as another user, and the rights that it needs."""

    fields: Fields
    attributes: Sequence[Attributes]


class Impersonation:
    """Decides which users act as others, and ends connections of users who must no longer.

    :param own: decides for Tower's own API: modes of authorization must not make administrators of Tower.
    :param clusters: decides for clusters.
    :param generation: returns a number that changes with the rules.
    """

    _log = Logger()

    def __init__(self, own: Authorizer, clusters: Authorizer, generation: Callable[[], int]) -> None:
        self._own, self._clusters, self._generation = own, clusters, generation
        self._known = generation()
        self._live: WeakKeyDictionary[Peer, _LiveImpersonation] = WeakKeyDictionary()

    def check(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Reject a request whose sender must not act as the claimed user.

        :raise TowerError: also through the Deferred.
        """
        identity = request.identity
        assert isinstance(identity, Identity)
        wanted = wanted_of(request.fields)
        _check_names(wanted.user, cluster)
        if request.fields.upgrade.lower() == TOWER_STREAM:
            raise Forbidden(
                "a raw stream has no user to impersonate: omit Impersonate-* fields", "impersonation"
            )
        user = user_of(identity.at_door)
        attributes = [Attributes(user, right, cluster) for right in wanted.rights]
        self._live[request.channel.peer] = _LiveImpersonation(request.fields, attributes)
        for number, each in enumerate(attributes):
            answer = self._authorize(each)
            if isinstance(answer, Deferred):
                return Deferred.fromCoroutine(self._wait(each, answer, attributes[number + 1 :]))
            _check(answer, each)
        return None

    async def _wait(self, first: Attributes, answer: Deferred[Decision], rest: Sequence[Attributes]) -> None:
        _check(await answer, first)
        for each in rest:
            more = self._authorize(each)
            _check(await more if isinstance(more, Deferred) else more, each)

    def _authorize(self, attributes: Attributes) -> Answer:
        return (self._clusters if attributes.cluster else self._own).authorize(attributes)

    def sweep(self) -> None:
        """End connections of users who must no longer act as others; call it every `PERIOD`."""
        generation = self._generation()
        if generation == self._known:
            return
        self._known = generation
        for peer, live in list(self._live.items()):
            if not self._is_current(peer, live):
                continue  # the last request was of another user
            for each in live.attributes:
                answer = self._authorize(each)
                if isinstance(answer, Decision):
                    self._end(answer, peer, live, each)
                else:
                    answer.addCallback(self._end, peer, live, each)

    async def ask_again(self) -> None:
        """Decide again about connections that act as others, one question at a time.

        It is for modes that do not announce their changes.
        """
        for reference in self._live.keyrefs():
            peer = reference()
            live = None if peer is None else self._live.get(peer)
            if peer is None or live is None or not self._is_current(peer, live):
                continue
            for each in live.attributes:
                answer = self._authorize(each)
                decision = await answer if isinstance(answer, Deferred) else answer
                self._end(decision, peer, live, each)

    @staticmethod
    def _is_current(peer: Peer, live: _LiveImpersonation) -> bool:
        """Return whether the last request of a connection acts as the user of *live*."""
        channel = peer.channel
        acting = None if channel is None else channel.acting
        if channel is None or acting is None:
            return False
        return acting[1] is live.fields and channel.session.identity is acting[2]

    def _end(self, decision: Decision, peer: Peer, live: _LiveImpersonation, attributes: Attributes) -> None:
        if decision.is_allowed or decision.error or self._live.get(peer) is not live:
            return
        del self._live[peer]
        text = attributes.refusal(decision.reason, _CURE).message
        self._log.info("closed a connection of {user}: {reason}", user=attributes.user.name, reason=text)
        peer.abort(text, 403)


def act(request: Request) -> None:
    """Let a request act as the claimed user, after the check."""
    identity, channel = request.identity, request.channel
    assert isinstance(identity, Identity)
    acting = channel.acting
    if acting is None or acting[0] is not identity or acting[1] is not request.fields:
        wanted = wanted_of(request.fields)
        known = wanted.at_door
        changed = evolve(
            identity,
            user=known.name,
            groups=known.groups,
            uid=known.uid,
            extra=known.extra,
            member=wanted.user,
            impersonator=identity,
        )
        channel.acting = acting = (identity, request.fields, changed)
    request.identity = acting[2]
    if request.entry is not None:
        request.entry.acts_as(acting[2])


def _check(decision: Decision, attributes: Attributes) -> None:
    if decision.is_allowed:
        return
    if decision.error:
        raise StatusError(
            500, f"Internal error occurred: {decision.error}; an administrator can see Tower's log"
        )
    raise attributes.refusal(decision.reason, _CURE)


def _check_names(user: UserInfo, cluster: str) -> None:
    if not cluster:
        return
    for name in (user.name, *user.groups):
        if name.startswith(_RESERVED):
            raise Forbidden(
                f"{name!r} is a name of Tower, which no cluster accepts: omit it", "reserved-identity"
            )
