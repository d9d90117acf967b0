"""SSH keys on EC2's instances, with EC2 Instance Connect.

It offers a key to an instance's sshd for 60 s; open connections are not affected later.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.instances import EC2Instance
from tower.cloud.config.public_key import BadPublicKey, PublicKey, read_public_key
from tower.cloud.errors import CloudError, CloudUnreachable, InstanceNotFound
from tower.cloud.http.fan_out import describe, fan_out
from tower.reactor.cooperate import map_cooperatively

#: How long AWS offers a key to an instance, s.
KEY_LIFE = 60.0

#: A key older than this fraction of its life is pushed again before a login.
RENEWED_AFTER = 0.75

#: Maximum number of keys that are pushed in parallel.
PARALLEL = 8

#: Maximum wait of a dial for its key, s.
DIAL_TIMEOUT = 20.0

#: Minimum interval of listings for unknown instances, s.
LIST_INTERVAL = 10.0

#: Maximum length of a key, characters.
KEY_LIMIT = 4096

_TARGET = "AWSEC2InstanceConnectService.SendSSHPublicKey"
_TYPES = ("ssh-ed25519", "ssh-rsa")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9@._-]{0,30}[A-Za-z0-9$_-]?")

# Another instance may have this address by now.
_MOVED = frozenset(("EC2InstanceNotFoundException", "EC2InstanceStateInvalidException"))


class InstanceConnect:
    """Pushes keys, and remembers which are still valid.

    :param api: returns the service.
    :param list_instances: returns the cluster's instances.
    :param life: of a key, s.
    """

    def __init__(
        self,
        clock: IReactorTime,
        api: Callable[[], Awaitable[AWSAPI]],
        list_instances: Callable[[], Awaitable[Sequence[EC2Instance]]],
        life: float = KEY_LIFE,
    ) -> None:
        self._clock = clock
        self._api = api
        self._list = list_instances
        self._renewed_after = life * RENEWED_AFTER
        self._known: Sequence[EC2Instance] = ()
        self._by_name: dict[str, EC2Instance] = {}
        self._listed = float("-inf")
        self._pushed: dict[tuple[str, str, str], float] = {}
        self._slots = DeferredSemaphore(PARALLEL)
        self._listing = DeferredLock()

    async def saw(self, instances: Sequence[EC2Instance]) -> None:
        """Remember a list of the cluster's instances."""
        listed = self._clock.seconds()
        by_name: dict[str, EC2Instance] = {}

        def note(instance: EC2Instance) -> None:
            for name in instance.names:
                known = by_name.get(name)
                if known is None or (known.state != "running" and instance.state == "running"):
                    by_name[name] = instance

        await map_cooperatively(self._clock, instances, note)
        self._known, self._by_name, self._listed = instances, by_name, listed
        self._pushed = {key: when for key, when in self._pushed.items() if key[0] in by_name}

    async def push_to_all(self, user: str, key: bytes) -> None:
        """Push a key to every running instance; raise `CloudError` with the names of those that failed."""
        ready = _check(user, key)
        await self.saw(await self._list())
        running = [each for each in self._known if each.state == "running" and not each.platform]
        if not running:
            raise CloudError(
                "the cluster has no running instances, as the cloud's configuration selects them"
            )
        failed = await fan_out(running, lambda instance: self._push(user, ready, instance), PARALLEL)
        if failed:
            who = describe((each.item.id, each.reason) for each in failed)
            raise CloudError(f"the key is not on {len(failed)} of {len(running)} instances: {who}")

    async def prepare(self, user: str, key: bytes, host: str) -> None:
        """Push a key to the instance at *host*, unless it has the key for long enough.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it failed, or took longer than `DIAL_TIMEOUT`.
        """
        ready = _check(user, key)
        preparing = Deferred.fromCoroutine(self._prepare(user, ready, host))
        try:
            await preparing.addTimeout(DIAL_TIMEOUT, self._clock)
        except defer.TimeoutError:
            raise CloudUnreachable(f"no key for {host} within {DIAL_TIMEOUT:g} s") from None

    async def _prepare(self, user: str, key: PublicKey, host: str) -> None:
        instance = self._by_name.get(host) or await self._find_again(host)
        when = self._pushed.get((instance.id, user, key.digest))
        if when is not None and self._clock.seconds() - when < self._renewed_after:
            return
        try:
            await self._push(user, key, instance)
        except AWSError as e:
            if e.code not in _MOVED:
                raise
            other = await self._find_again(host)
            if other.id == instance.id:
                raise
            await self._push(user, key, other)

    async def _find_again(self, host: str) -> EC2Instance:
        await self._listing.acquire()
        try:
            if self._clock.seconds() - self._listed >= LIST_INTERVAL:
                await self.saw(await self._list())
        finally:
            self._listing.release()
        found = self._by_name.get(host)
        if found is None:
            raise InstanceNotFound(f"instance not found: no instance of the cluster is at {host}")
        return found

    async def _push(self, user: str, key: PublicKey, instance: EC2Instance) -> None:
        api = await self._api()
        await self._slots.acquire()
        try:
            # The key's life begins before AWS's response, so it is counted from before the request.
            began = self._clock.seconds()
            answer = await api.json(
                _TARGET,
                {
                    "InstanceId": instance.id,
                    "InstanceOSUser": user,
                    "SSHPublicKey": key.line,
                    "AvailabilityZone": instance.zone,
                },
            )
        finally:
            self._slots.release()
        if not isinstance(answer, dict) or answer.get("Success") is not True:
            raise CloudError("ec2-instance-connect SendSSHPublicKey: the response has no Success")
        self._pushed[instance.id, user, key.digest] = began


def _check(user: str, key: bytes) -> PublicKey:
    if not _USER.fullmatch(user):
        raise CloudError(f"user {user!r}: EC2 Instance Connect does not accept this name")
    ready = read_public_key(key, _TYPES)
    if len(ready.line) > KEY_LIMIT:
        raise BadPublicKey(
            f"the key to install has {len(ready.line)} characters, and EC2 Instance Connect accepts at most "
            f"{KEY_LIMIT}: use an ed25519 key, or a shorter RSA key"
        )
    return ready
