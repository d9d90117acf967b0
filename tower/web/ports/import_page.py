"""The front door's page of import URLs: the manifest of a cluster's agent, without authentication, once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.manifest_imports import SECRET_LENGTH, ImportEnded
from tower.conch.transport.limits import TokenBucket
from tower.errors import NotFound
from tower.kube.status import StatusError
from tower.net.connection_slots import source_of
from tower.web.api.issuer import IMPORT_PATH, Issuer
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Response
from tower.web.ports.plain_port import only_read

#: Start of the path of all import URLs.
IMPORTS = IMPORT_PATH.encode("ascii")

#: Target of a request to an import URL in logs: the path is secret.
HIDDEN = IMPORTS + b"..."

#: Failed requests of one client address: burst, and rate a second; and number of addresses that are counted.
BURST = 20.0
RATE = 0.1
ADDRESSES = 10_000

_SECRET = re.compile(rb"[A-Za-z0-9_-]{%d}" % SECRET_LENGTH)

_HEADERS = ((b"Content-Type", b"application/yaml; charset=utf-8"), (b"Cache-Control", b"no-store"))

#: Answers a request to an import URL.
ServeImport: TypeAlias = Callable[[Request], "Outcome | Deferred[Outcome]"]


def no_imports(_request: Request) -> Outcome:
    """Answer that the URL does not exist."""
    raise _unknown()


class ImportPage:
    """Serves manifests.

    :param seconds: returns the monotonic time, s.
    """

    _log = Logger()

    def __init__(self, issuer: Issuer, seconds: Callable[[], float]) -> None:
        self._issuer = issuer
        self._seconds = seconds
        self._buckets: dict[str, TokenBucket] = {}

    def __call__(self, request: Request) -> Outcome | Deferred[Outcome]:
        """Return the manifest to a GET, which ends the URL; a HEAD only checks it.

        The path is removed from *request*, so that no log has it.
        """
        path, request.target = request.path, HIDDEN
        only_read(request)
        address = request.channel.peer.address
        if not self._bucket(address).take(self._seconds()):
            self._refund(address)
            raise StatusError(
                429,
                f"too many requests to import URLs from this address: retry after {1 / RATE:g} s",
                details={"retryAfterSeconds": int(1 / RATE)},
            )
        secret = path.removeprefix(IMPORTS)
        if _SECRET.fullmatch(secret) is None:
            raise _unknown()
        if request.method == b"HEAD":
            self._check(secret.decode("ascii"), address)
            return Response(200, b"", _HEADERS)
        return Deferred.fromCoroutine(self._fetch(secret.decode("ascii"), address))

    def _check(self, secret: str, address: str) -> None:
        """Raise the error answer of a URL that cannot be fetched."""
        try:
            self._issuer.imports.check(secret)
        except NotFound as e:
            raise _unknown() from e
        except ImportEnded as e:
            if e.was_fetched:
                self._log.warn(
                    "an import URL of cluster {cluster} was requested by {address} after it was fetched: if "
                    "the first request was not yours, revoke the new key in 'tower cluster agents {cluster}'",
                    cluster=e.cluster,
                    address=address,
                )
            raise StatusError(410, str(e), reason="Gone") from e

    async def _fetch(self, secret: str, address: str) -> Outcome:
        self._check(secret, address)
        try:
            cluster, manifest = await self._issuer.import_manifest(secret)
        except (NotFound, ImportEnded):  # a concurrent request was first
            self._check(secret, address)
            raise
        self._refund(address)
        self._log.info(
            "the agent's manifest of cluster {cluster} was fetched by {address} with an import URL",
            cluster=cluster,
            address=address,
        )
        return Response(200, manifest.encode() + b"\n", _HEADERS)

    def _refund(self, address: str) -> None:
        """Return the allowance that a request has taken."""
        self._bucket(address).take(self._seconds(), earned=2.0)

    def _bucket(self, address: str) -> TokenBucket:
        """Return the allowance of a client's address; the oldest addresses are forgotten."""
        source = source_of(address)
        bucket = self._buckets.get(source)
        if bucket is None:
            if len(self._buckets) >= ADDRESSES:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[source] = TokenBucket(BURST, RATE, self._seconds())
        return bucket


def _unknown() -> StatusError:
    return StatusError(404, "there is no such import URL: get a new one with 'tower join NAME --output-url'")
