"""Follows the objects of all kinds of records in the host cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.kube.rest.host_api import HostAPI, Object, WatchEvent
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.reflector_group import ReflectorGroup
from tower.store.kubernetes.host_cache import HostCache, SeenChange
from tower.store.kubernetes.host_change import version_of
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.transaction_log import all_done


class Observer(Protocol):
    """Receives what is seen of objects."""

    def __call__(
        self, kind: str, name: str, uid: str, change_of: Callable[[], Iterator[SeenChange]], *, is_gone: bool
    ) -> None:
        """Observe one object.

        :param uid: empty: any object of that name was removed.
        :param change_of: records it.
        :param is_gone: whether it was removed.
        """


@define
class KindFollower:
    """Follows the objects of one kind; see `Reflector`.

    :ivar version: resource version of the last list.
    """

    _codec: ObjectCodec
    _cache: HostCache
    _observe: Observer
    version: int = field(default=0, init=False)

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Record a complete list."""
        self.version = int(resource_version)
        for obj in sorted(items, key=version_of):
            self._see(obj)
        for name in self._cache.absent(self._codec, items):
            self._miss(name, "", self.version)

    def changed(self, event: WatchEvent) -> None:
        """Record one change."""
        metadata = event.object["metadata"]
        if event.type == "DELETED":
            self._miss(metadata["name"], metadata["uid"], version_of(event.object))
        elif event.type != "BOOKMARK":
            self._see(event.object)

    def _see(self, obj: Object) -> None:
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        self._observe(self._codec.kind, name, uid, lambda: self._cache.see(self._codec, obj), is_gone=False)

    def _miss(self, name: str, uid: str, version: int) -> None:
        miss = self._cache.miss
        self._observe(
            self._codec.kind, name, uid, lambda: miss(self._codec, name, uid, version), is_gone=True
        )


class HostFollowers:
    """The followers of all kinds in one namespace.

    :param observe: is called for each object, in the order of its kind.
    :param group: of the reflectors.
    """

    def __init__(
        self,
        api: HostAPI,
        namespace: str,
        codecs: Iterable[ObjectCodec],
        cache: HostCache,
        observe: Observer,
        reactor: IReactorTime,
        group: ReflectorGroup | None,
    ) -> None:
        codecs = list(codecs)
        group = ReflectorGroup(reactor) if group is None else group
        self._followers = [KindFollower(codec, cache, observe) for codec in codecs]
        self._reflectors = [
            Reflector(
                api,
                codec.resource,
                namespace if codec.resource.namespaced else None,
                follower,
                reactor,
                label_selector=codec.selector,
                group=group,
            )
            for codec, follower in zip(codecs, self._followers, strict=True)
        ]

    @property
    def failures(self) -> list[str]:
        """Current errors of reading from the host cluster, with their cures."""
        return [reflector.failure for reflector in self._reflectors if reflector.failure]

    @property
    def version(self) -> int:
        """Highest resource version of the last lists."""
        return max(follower.version for follower in self._followers)

    async def start(self) -> None:
        """Start, and wait until everything is listed; cancel it to give up."""
        for reflector in self._reflectors:
            reflector.start()
        await all_done(reflector.when_synced() for reflector in self._reflectors)

    def stop(self) -> None:
        """Stop."""
        for reflector in self._reflectors:
            reflector.stop()
