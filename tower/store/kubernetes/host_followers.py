"""Follows the objects of all kinds of records in the host cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.kube.rest.host_api import HostAPI, Object, WatchEvent
from tower.kube.rest.reflector import Reflector
from tower.store.kubernetes.host_cache import HostCache, SeenChange
from tower.store.kubernetes.host_change import version_of
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.transaction_log import all_done

#: Receives kind and name of an object, and a function that records what was seen of it.
Observer: TypeAlias = Callable[[str, str, Callable[[], Iterator[SeenChange]]], None]


@define
class KindFollower:
    """Follows the objects of one kind; see `Reflector`.

    :ivar version: resource version of the last list.
    """

    _codec: ObjectCodec
    _cache: HostCache
    _observe: Observer
    _observe_end: Observer
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
        name = obj["metadata"]["name"]
        self._observe(self._codec.kind, name, lambda: self._cache.see(self._codec, obj))

    def _miss(self, name: str, uid: str, version: int) -> None:
        self._observe_end(self._codec.kind, name, lambda: self._cache.miss(self._codec, name, uid, version))


class HostFollowers:
    """The followers of all kinds in one namespace.

    :param observe: is called for each object, in the order of its kind.
    :param observe_end: likewise, for each that was removed.
    """

    def __init__(
        self,
        api: HostAPI,
        namespace: str,
        codecs: Iterable[ObjectCodec],
        cache: HostCache,
        observe: Observer,
        observe_end: Observer,
        reactor: IReactorTime,
    ) -> None:
        codecs = list(codecs)
        self._followers = [KindFollower(codec, cache, observe, observe_end) for codec in codecs]
        self._reflectors = [
            Reflector(
                api,
                codec.resource,
                namespace if codec.resource.namespaced else None,
                follower,
                reactor,
                label_selector=codec.selector,
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
