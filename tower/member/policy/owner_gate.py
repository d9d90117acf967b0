"""Enforces the owner's policy: checks each request and stream, and cuts those that a change forbids.

The agent forwards answers unparsed, so it does not know which requests have ended.  It remembers what each
channel has carried, and cuts a channel if any of that is no longer permitted: a request behind a watch must
not hide the watch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from math import inf
from typing import Protocol, TypeAlias

from twisted.logger import Logger

from tower.clusters.policies.access_policy import keys_of
from tower.escaping import escaped, shortened
from tower.http.identity_fields import extra_key
from tower.kube.head_policy import Refusal, Rewritten
from tower.kube.system_identities import AUTHENTICATED
from tower.member.policy.owner_action import OwnerAction, action_of, described
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule, OwnerUser, refusal_of, stream_refusal
from tower.member.targets import TargetRefused
from tower.reactor.log_batch import FEW
from tower.tunnels.targets import KUBERNETES

#: Most users whose identity is cached, and the longest fields of an identity that are.
KNOWN_USERS = 1024
LONGEST_KNOWN = 4096

#: Most kinds of requests that are remembered of a channel; one with more is cut at any change.
KINDS_LIMIT = 256

#: Longest name of a user in an error, characters.
_SHOWN = 100

# In a head that `HeadPolicy` accepted: method, target, and the fields of the identity.
_HEAD = re.compile(
    rb"([A-Z]+) ([^ ]*) HTTP/1\.1\r\n(?:(?:Content-Length|Transfer-Encoding): [^\r]*\r\n)?"
    rb"((?:Impersonate-[^\r]*\r\n)*)"
)
_USER, _GROUP, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Extra-"
_ANONYMOUS = "system:anonymous"

_UNREAD = "the agent has not read its policy yet: see the agent's log"

_Rewrite: TypeAlias = Callable[[bytes], "Rewritten | Refusal"]


#: Least number of channels that are known when closed ones are forgotten.
_SWEEP = 64


class Closable(Protocol):
    """A channel that a change of the policy may cut."""

    @property
    def close_sent(self) -> bool:
        """Whether it sends nothing more and drops received data."""

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`."""


class _Carried:
    """The requests on a channel since it was opened."""

    __slots__ = ("is_everything", "kinds", "target")

    def __init__(self, target: str = "") -> None:
        self.target = target  # the target; empty: the API server
        self.kinds: dict[tuple[OwnerUser, OwnerAction], str] = {}  # with the first request of each
        self.is_everything = False  # too many kinds

    def add(self, kind: tuple[OwnerUser, OwnerAction], request: str) -> None:
        if len(self.kinds) < KINDS_LIMIT:
            self.kinds[kind] = request
        else:
            self.is_everything = True


class OwnerGate:
    """The check of all requests and streams that an agent forwards.

    :param cluster: its name.
    :param seconds: returns the time, s since the epoch.
    :param protected: the namespaces of the agent and of its policy; see `OwnerRule.permits`.
    :ivar policy: the policy; None: it was never read, and everything is forbidden.
    :ivar refused: number of requests that it rejected.
    """

    _log = Logger()

    def __init__(self, cluster: str, seconds: Callable[[], float], protected: Collection[str] = ()) -> None:
        self._prefix = f"forbidden by the owner of cluster {cluster}: "
        self._seconds = seconds
        self._protected = protected
        self._open: tuple[OwnerRule, ...] = ()
        self._requests: tuple[OwnerRule, ...] = ()  # those of them for the API server
        self._since, self._until = 0.0, 0.0  # times between which `_open` holds
        self._users: dict[bytes, OwnerUser] = {}
        self._live: dict[Closable, _Carried] = {}
        self._sweep_at = _SWEEP
        self.policy: OwnerPolicy | None = None
        self.refused = 0

    # Changes

    def use(self, policy: OwnerPolicy) -> None:
        """Use *policy* from now on, and cut what it forbids."""
        if policy == self.policy:
            return
        self.policy = policy
        self._log.info("the owner's policy is in use: {policy}", policy=str(policy))
        self._renew()

    def look(self) -> None:
        """Cut what is forbidden from now on, as a time window has ended."""
        if not self._since <= self._seconds() < self._until:
            self._renew()

    def _renew(self) -> None:
        before, now = self._open, self._seconds()
        self._since = now
        self._open, self._until = ((), inf) if self.policy is None else self.policy.open(now)
        self._requests = tuple(rule for rule in self._open if rule.has_target(KUBERNETES))
        if self._open != before:
            self._cut()

    def _cut(self) -> None:
        count = 0
        for channel, carried in list(self._live.items()):
            text = self._refusal_of(carried)
            if text:
                self._live.pop(channel, None)
                carried.kinds.clear()
                channel.abort()
                count += 1
                if count <= FEW:
                    self._log.info("cut stream: {text}", text=text)
        if count:
            self._log.info(
                "total: {count} stream{s} cut, no longer permitted by the owner's policy",
                count=count,
                s="" if count == 1 else "s",
            )

    def _carried(self, channel: Closable, carried: _Carried) -> _Carried:
        if len(self._live) >= self._sweep_at:
            self._live = {each: known for each, known in self._live.items() if not each.close_sent}
            self._sweep_at = max(_SWEEP, 2 * len(self._live))
        self._live[channel] = carried
        return carried

    def _refusal_of(self, carried: _Carried) -> str:
        """Return why a channel is no longer permitted; empty if it is."""
        if carried.target:
            return self._stream_refusal(carried.target)
        if carried.is_everything:
            return (
                f"policy changed, and the stream carried too many kinds of requests (more than "
                f"{KINDS_LIMIT}) to check again"
            )
        for (user, action), request in carried.kinds.items():
            if not self._permits(user, action):
                return self._refusal(user, action, request)
        return ""

    # Requests

    def guard(self, channel: Closable, rewrite: _Rewrite) -> _Rewrite:
        """Return *rewrite* with the check of the requests on *channel*; a change may cut the channel."""
        carried = self._carried(channel, _Carried())

        def checked(head: bytes) -> Rewritten | Refusal:
            rewritten = rewrite(head)
            if isinstance(rewritten, Refusal):
                return rewritten
            match = _HEAD.match(head)
            assert match is not None
            method, target, identity = match.groups()
            refusal = self._check(carried, method, target, identity, upgrade=rewritten.upgrade)
            return Refusal(refusal) if refusal else rewritten

        return checked

    def _check(
        self, carried: _Carried, method: bytes, target: bytes, identity: bytes, *, upgrade: bool
    ) -> str:
        """Return why a request is forbidden; empty if it is not."""
        self.look()
        user = self._users.get(identity)
        if user is None:
            user = self._new_user(identity)
        action = action_of(method, target, upgrade=upgrade)
        if (user, action) in carried.kinds:
            return ""  # a change that forbids it cuts the channel
        if self._permits(user, action):
            carried.add((user, action), described(method, target))
            return ""
        self.refused += 1
        return self._prefix + self._refusal(user, action, described(method, target))

    def _refusal(self, user: OwnerUser, action: OwnerAction, request: str) -> str:
        if self.policy is None:
            return _UNREAD
        return refusal_of(self.policy, self._open, user, action, request)

    def _permits(self, user: OwnerUser, action: OwnerAction) -> bool:
        keys, protected = user.keys, self._protected
        return any(rule.permits(action, protected) and rule.is_for(keys) for rule in self._requests)

    def _new_user(self, identity: bytes) -> OwnerUser:
        user = _user_of(identity)
        if len(identity) <= LONGEST_KNOWN:
            if len(self._users) >= KNOWN_USERS:
                self._users.clear()
            self._users[identity] = user
        return user

    # Streams to other targets

    def check_target(self, target: str) -> None:
        """Check a stream to *target*, which is not the API server.

        :raise TargetRefused: no rule permits it now.
        """
        self.look()
        text = self._stream_refusal(target)
        if text:
            self.refused += 1
            raise TargetRefused("not-allowed", self._prefix + text)

    def _stream_refusal(self, target: str) -> str:
        """Return why no rule permits a stream to *target* now; empty if one does."""
        if any(rule.permits_stream(target) for rule in self._open):
            return ""
        return _UNREAD if self.policy is None else stream_refusal(self.policy, target)

    def watch_stream(self, channel: Closable, target: str) -> str:
        """Cut *channel*, a stream to *target*, when no rule permits it any longer.

        :return: why it was cut now; empty if it was not.
        """
        self.look()
        text = self._stream_refusal(target)
        if text:
            channel.abort()
        else:
            self._carried(channel, _Carried(target))
        return text


def _user_of(identity: bytes) -> OwnerUser:
    """Return the user in the checked fields *identity*."""
    if not identity:
        return OwnerUser("")
    user = ""
    groups: list[str] = []
    extra: list[tuple[str, tuple[str]]] = []
    for line in identity.decode("utf-8", "surrogateescape").split("\r\n")[:-1]:
        name, _, value = line.partition(": ")
        if name == _USER:
            user = value
        elif name == _GROUP:
            groups.append(value)
        elif name.startswith(_EXTRA):
            key = name.removeprefix(_EXTRA).encode("utf-8", "surrogateescape")
            extra.append((extra_key(key, "surrogateescape"), (value,)))
    if user != _ANONYMOUS:
        groups.append(AUTHENTICATED)
    return OwnerUser(shortened(escaped(user), _SHOWN), tuple(dict.fromkeys(keys_of(user, groups, extra))))
