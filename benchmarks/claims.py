"""Claims: required and desired ratios, one line of the printed table each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.rows import (
    CREDENTIAL,
    FORWARD,
    FORWARD_TLS,
    IDLE_2,
    IDLE_100,
    LINK,
    LOCAL,
    OLD_2,
    OLD_100,
    OLD_AGENT,
    OPENSSH,
    PURE,
    SQLITE,
    STORM_PEER,
)
from benchmarks.works import Numbers

_BOTH = ("down", "up")
_KUBE = ("kube-version", "kube-object")
_DOORS = (
    "door-x509",
    "door-oidc",
    "door-policies",
    "door-rules",
    "door-rules-x509",
    "door-audit",
    "door-audit-x509",
    "door-audit-pipe",
    "door-audit-pipe-x509",
)

#: All samples of a row, by column label, in the order of the rounds.
Samples = Mapping[str, list[Numbers]]


@dataclass(frozen=True)
class Ratio:
    """Ratio of our number to the other system's.

    :ivar value: ratio of the medians.
    :ivar low: smallest ratio of a round.
    :ivar high: largest ratio of a round.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    """Required and desired ratio of one number of a row.

    :ivar name: key of its floor in ``floors.toml``.
    :ivar row: name of the row.
    :ivar against: label of the column to compare with.
    :ivar must: required ratio.
    :ivar aim: desired ratio.
    :ivar number: name of the number.
    :ivar what: description of the number, unless it is the rate.
    :ivar less: whether less is better.
    :ivar absolute: whether *must* and *aim* are for the number itself, not for a ratio.
    :ivar also: name of another number, and its minimum ratio.
    """

    name: str
    row: str
    against: str
    must: float
    aim: float
    number: str = "rate"
    what: str = ""
    less: bool = False
    absolute: bool = False
    also: tuple[str, float] | None = None

    def reaches(self, value: float, bar: float) -> bool:
        """Return whether *value* reaches *bar*."""
        return value <= bar if self.less else value >= bar

    def measured(self, samples: Samples, ours: str) -> Ratio | None:
        """Return the ratio of the column *ours*; None if either column has no samples."""
        return _ratio(samples, ours, None if self.absolute else self.against, self.number)

    def besides(self, samples: Samples, ours: str) -> Ratio | None:
        """Return the ratio of the number in `also`."""
        return None if self.also is None else _ratio(samples, ours, self.against, self.also[0])


def _ratio(samples: Samples, ours: str, theirs: str | None, number: str) -> Ratio | None:
    def of(column: str) -> list[float]:
        return [each[number] for each in samples.get(column, ()) if number in each]

    mine = of(ours)
    others = [1.0] * len(mine) if theirs is None else of(theirs)
    if not mine or not others or not all(others):
        return None
    rounds = [one / other for one, other in zip(mine, others, strict=False)]
    return Ratio(median(mine) / median(others), min(rounds), max(rounds))


def _bulk() -> Iterator[Claim]:
    rows = [f"{direction}-{streams}" for direction in _BOTH for streams in (1, 8)]
    for row in rows:
        yield Claim(f"bulk-{row}", f"bulk-{row}", FORWARD, 2.5, 4)
    for row in rows:
        yield Claim(f"bulk-{row}-openssh", f"bulk-{row}", OPENSSH, 0.9, 1.2)
    for row in rows:
        yield Claim(f"wss-{row}", f"wss-{row}", FORWARD_TLS, 2, 3.5)


def _nodes() -> Iterator[Claim]:
    for name in ("node", "node-gcm"):
        for row in (f"{name}-{direction}-{streams}" for direction in _BOTH for streams in (1, 8)):
            yield Claim(row, row, LOCAL, 0.8, 1)
        for row in (f"{name}-{what}" for what in ("32", "1")):
            yield Claim(row, row, LOCAL, 1, 1.2)
        yield Claim(f"{name}-new", f"{name}-new", LOCAL, 0.6, 1)


def _native() -> Iterator[Claim]:
    """Yield the gains of compiled modules: rate, and CPU of proxy and agent."""
    for row, rate, proxy, agent, what in (
        ("native-32", 1.25, 0.8, 0.85, "per request"),
        ("native-1", 1, 0.9, 0.9, "per request"),
        ("native-new", 1, 1, 1, "per request"),
        ("native-raw-32", 1.4, 0.75, 0.8, "per request"),
        ("native-raw-1", 1.1, 0.85, 0.85, "per request"),
        *((f"native-{direction}-{streams}", 1, 1, 1, "per GiB") for direction in _BOTH for streams in (1, 8)),
    ):
        yield Claim(row, row, PURE, rate, rate)
        yield _cost(row, "proxy", PURE, proxy, proxy, f"CPU of the proxy {what}")
        yield _cost(row, "agent", PURE, agent, agent, f"CPU of the agent {what}")
    for row, what in (("native-old-down", "per GiB"), ("native-node-1", "per request")):
        yield Claim(row, row, PURE, 1, 1)
        yield _cost(row, "proxy", PURE, 1, 1, f"CPU of the proxy {what}")
    for part in ("proxy", "agent"):
        yield _cost("native-watches", part, PURE, 1, 0.95, f"CPU of the {part}")
    yield _cost("native-watches", "p99", PURE, 1, 1, "p99 of events")


def _cost(row: str, part: str, against: str, must: float, aim: float, what: str) -> Claim:
    return Claim(f"{row}-{part}", row, against, must, aim, part, what, less=True)


CLAIMS = (
    *_bulk(),
    Claim("raw-32", "raw-32", FORWARD, 1.9, 1.9),
    Claim("raw-1", "raw-1", FORWARD, 1, 1.2),
    Claim("l7-32", "l7-32", IDLE_100, 2.4, 3),
    Claim("l7-32-idle-2", "l7-32", IDLE_2, 5, 8),
    *(Claim(row, row, IDLE_2, 3, 4) for row in _KUBE),
    *(_cost(row, "server", IDLE_2, 0.35, 0.25, "CPU of the API server per request") for row in _KUBE),
    Claim("l7-1", "l7-1", IDLE_100, 1.1, 1.3),
    Claim("l7-down", "l7-down", IDLE_100, 1.8, 2.5),
    Claim("l7-up", "l7-up", IDLE_100, 1.6, 2.2),
    Claim("l7-new", "l7-new", IDLE_100, 0.9, 1.1),
    Claim("l7-full", "l7-full", IDLE_100, 1, 1.2),
    Claim("l7-behind", "l7-behind", IDLE_100, 0.5, 0.2, "p99", "p99", less=True, also=("download", 1.5)),
    _cost("l7-32", "proxy", IDLE_100, 0.45, 0.3, "CPU of the proxy per request"),
    _cost("l7-32", "agent", IDLE_100, 0.9, 0.7, "CPU of the agent per request"),
    _cost("bulk-down-1", "proxy", FORWARD, 0.35, 0.25, "CPU of the proxy per GiB"),
    _cost("bulk-up-1", "proxy", FORWARD, 0.6, 0.5, "CPU of the proxy per GiB"),
    *(Claim(f"{row}-{way}", f"{row}-{way}", LINK, 0.6, 0.9) for row in ("wan", "wan-l7") for way in _BOTH),
    Claim("wan-old-down", "wan-old-down", LINK, 0.8, 0.9),
    Claim("old-32", "old-32", OLD_2, 1.5, 2.2),
    Claim("old-32-idle-100", "old-32", OLD_100, 1.2, 1.5),
    Claim("old-1", "old-1", OLD_2, 0.8, 1),
    *(Claim(f"old-{way}", f"old-{way}", OLD_2, 2, 2.5) for way in _BOTH),
    _cost("old-32", "proxy", OLD_100, 0.7, 0.5, "CPU of the proxy per request"),
    _cost("old-down", "proxy", OLD_2, 0.6, 0.4, "CPU of the proxy per GiB"),
    Claim("oldproxy-32", "oldproxy-32", OLD_AGENT, 1, 1.2),
    *(Claim(f"oldproxy-{way}", f"oldproxy-{way}", OLD_AGENT, 1, 1.2) for way in _BOTH),
    *_nodes(),
    *(Claim(row, row, CREDENTIAL, 0.85, 0.95) for row in _DOORS),
    *(_cost(row, "proxy", CREDENTIAL, 1.15, 1.05, "CPU of the proxy per request") for row in _DOORS),
    *_native(),
    Claim("host-32", "host-32", SQLITE, 0.95, 1),
    _cost("host-32", "proxy", SQLITE, 1.05, 1, "CPU of the proxy per request"),
    Claim("storm", "storm", STORM_PEER, 0.95, 1.2),
    Claim("storm-memory", "storm", "KiB", 9, 9, "memory", "memory per idle agent", less=True, absolute=True),
    _cost("watches", "proxy", IDLE_100, 0.7, 0.5, "CPU of the proxy"),
    _cost("watches", "agent", IDLE_100, 1.1, 0.8, "CPU of the agent"),
    Claim("watches-p99", "watches", IDLE_100, 1.5, 1, "p99", "p99 of events", less=True),
)
