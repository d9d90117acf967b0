"""Keys on EC2's instances, by way of EC2 Instance Connect.

AWS hands a key to an instance for 60 s; sshd asks for it when somebody logs in, so a connection that is there
goes on.  There is no other way in without an agent of AWS's or a login of ours on the instance.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.instances import EC2Instance
from tower.cloud.config.public_key import BadPublicKey, PublicKey, read_public_key
from tower.cloud.errors import CloudError, CloudUnreachable, InstanceNotFound
from tower.cloud.http.fan_out import describe, fan_out
from tower.reactor.cooperate import map_cooperatively

#: How long AWS keeps a key on an instance, s.
KEY_LIFE = 60.0

#: A key is pushed anew before a login when so much of its life is over: the rest is for logging in.
RENEWED_AFTER = 0.75

#: Most keys that are pushed at a time.
PARALLEL = 8

#: Longest that a dial waits for its key, s.
PATIENCE = 20.0

#: An instance that is not known is looked for no more often than each so many s.
LOOK_AGAIN = 10.0

#: Longest key that Instance Connect takes, characters.
KEY_LIMIT = 4096

_TARGET = "AWSEC2InstanceConnectService.SendSSHPublicKey"
_TYPES = ("ssh-ed25519", "ssh-rsa")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9@._-]{0,30}[A-Za-z0-9$_-]?")

# It may be another instance that has this address by now.
_MOVED = frozenset(("EC2InstanceNotFoundException", "EC2InstanceStateInvalidException"))


class InstanceConnect:
    """Pushes keys, and knows which are still there.

    :param clock: counts how old a key is, and makes the waits.
    :param api: returns the service.
    :param look: returns the cluster's instances, and is not called more often than needed.
    :param life: of a key, s.
    """

    def __init__(
        self,
        clock: IReactorTime,
        api: Callable[[], Awaitable[AWSAPI]],
        look: Callable[[], Awaitable[Sequence[EC2Instance]]],
        life: float = KEY_LIFE,
    ) -> None:
        self._clock = clock
        self._api = api
        self._look = look
        self._renewed_after = life * RENEWED_AFTER
        self._known: Sequence[EC2Instance] = ()
        self._called: dict[str, EC2Instance] = {}
        self._looked = float("-inf")
        self._pushed: dict[tuple[str, str, str], float] = {}
        self._slots = DeferredSemaphore(PARALLEL)
        self._looking = DeferredLock()

    async def saw(self, instances: Sequence[EC2Instance]) -> None:
        """Take note of a listing of the cluster's instances."""
        looked = self._clock.seconds()
        called: dict[str, EC2Instance] = {}

        def note(instance: EC2Instance) -> None:
            for name in instance.names:
                known = called.get(name)
                if known is None or (known.state != "running" and instance.state == "running"):
                    called[name] = instance

        await map_cooperatively(self._clock, instances, note)
        self._known, self._called, self._looked = instances, called, looked
        self._pushed = {key: when for key, when in self._pushed.items() if key[0] in called}

    async def push_to_all(self, user: str, key: bytes) -> None:
        """Push a key to every instance that runs.

        :raise CloudError: on some, or all, it did not work; those are named.
        """
        ready = _check(user, key)
        await self.saw(await self._look())
        running = [each for each in self._known if each.state == "running" and not each.platform]
        if not running:
            raise CloudError("no running instance is the cluster's by the cloud's configuration")
        failed = await fan_out(running, lambda instance: self._push(user, ready, instance), PARALLEL)
        if failed:
            who = describe((each.item.id, each.reason) for each in failed)
            raise CloudError(f"the key is not on {len(failed)} of {len(running)} instances: {who}")

    async def prepare(self, user: str, key: bytes, host: str) -> None:
        """Push a key to the instance at *host*, unless it has it for long enough.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it did not work, or not within `PATIENCE`.
        """
        ready = _check(user, key)
        preparing = Deferred.fromCoroutine(self._prepare(user, ready, host))
        try:
            await preparing.addTimeout(PATIENCE, self._clock)
        except TooLate:
            raise CloudUnreachable(f"no key for {host} within {PATIENCE:g} s") from None

    async def _prepare(self, user: str, key: PublicKey, host: str) -> None:
        instance = self._called.get(host) or await self._find_anew(host)
        when = self._pushed.get((instance.id, user, key.digest))
        if when is not None and self._clock.seconds() - when < self._renewed_after:
            return
        try:
            await self._push(user, key, instance)
        except AWSError as e:
            if e.code not in _MOVED:
                raise
            other = await self._find_anew(host)
            if other.id == instance.id:
                raise
            await self._push(user, key, other)

    async def _find_anew(self, host: str) -> EC2Instance:
        await self._looking.acquire()
        try:
            if self._clock.seconds() - self._looked >= LOOK_AGAIN:
                await self.saw(await self._look())
        finally:
            self._looking.release()
        found = self._called.get(host)
        if found is None:
            raise InstanceNotFound(f"instance not found: none of the cluster's is at {host}")
        return found

    async def _push(self, user: str, key: PublicKey, instance: EC2Instance) -> None:
        api = await self._api()
        await self._slots.acquire()
        try:
            # The key's life begins with AWS's answer, at the latest; so it is counted from before it.
            asked = self._clock.seconds()
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
            raise CloudError("ec2-instance-connect SendSSHPublicKey: the answer does not say that it worked")
        self._pushed[instance.id, user, key.digest] = asked


def _check(user: str, key: bytes) -> PublicKey:
    if not _USER.fullmatch(user):
        raise CloudError(f"user {user!r}: EC2 Instance Connect takes no such name")
    ready = read_public_key(key, _TYPES)
    if len(ready.line) > KEY_LIMIT:
        raise BadPublicKey(
            f"the key to install has {len(ready.line)} characters, and EC2 Instance Connect takes at most "
            f"{KEY_LIMIT}: use an ed25519 key, or a shorter RSA key"
        )
    return ready
