"""The rows of the tables: workloads and the systems that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.member import OBJECT, VERSION
from benchmarks.works import Behind, Column, Load, Steady, Storms, Watches, Work

#: The tunnel alone is compared with systems without TLS and authentication; the product is shown next to it.
OURS, WITH_TLS = "Tower's tunnel", "Tower with users' TLS"
TOWER = "Tower"
FORWARD, FORWARD_TLS, OPENSSH = "gopeer forward", "gopeer forward, TLS", "OpenSSH -R"
SQLITE = "records in SQLite"
IDLE_100, IDLE_2 = "gopeer, 100 idle", "gopeer, 2 idle"
OLD_100, OLD_2 = "gopeer as deployed, 100 idle", "gopeer as deployed"
OLD_AGENT, OUR_AGENT = "old agent", "Tower's agent"
STORM_PEER = "gopeer"
LINK = "the link"
UNOBSERVED = "Tower without metrics"
PURE, NATIVE = "Tower in Python", "Tower, compiled"
CREDENTIAL = "a credential of Tower"
LOCAL, OUR_NODE = "ssh -L", "Tower's node tunnel"


@dataclass(frozen=True)
class Row:
    """One workload and the systems that it runs on.

    :ivar name: name on the command line.
    :ivar ours: label of the column that is compared with others.
    """

    name: str
    title: str
    work: Work
    columns: tuple[Column, ...]
    ours: str = TOWER


@dataclass(frozen=True)
class Group:
    """Rows that are measured together, round after round.

    :ivar late: whether its systems start only when it is measured, because they use CPU while idle.
    """

    title: str
    rows: tuple[Row, ...]
    late: bool = False


_STREAMS = (
    Column("direct", "direct", "stream"),
    Column(FORWARD, "forward", "stream"),
    Column(OPENSSH, "openssh", "stream"),
    Column(OURS, "tunnel", "stream"),
    Column(WITH_TLS, "tower", "stream"),
)
_SECURE_STREAMS = (
    Column(FORWARD_TLS, "forward-wss", "stream"),
    Column(OURS, "tunnel-wss", "stream"),
    Column(WITH_TLS, "tower-wss", "stream"),
)
_SMALL = (
    Column("direct", "direct", "http"),
    Column(FORWARD, "forward-http", "http"),
    Column(OURS, "tunnel", "http"),
    Column(WITH_TLS, "tower", "http"),
)
_PEERS = (
    Column("direct", "direct", "https"),
    Column(IDLE_100, "idle-100", "https"),
    Column(TOWER, "tower", "https"),
)
_ACCESS = (Column("no access log", "tower", "https"), Column(TOWER, "tower-access", "https"))
_DOORS = (
    ("door-x509", "a certificate of the organization", "tower-door", "x509"),
    ("door-oidc", "a token of a provider", "tower-door", "oidc"),
    ("door-policies", "a token, 1,000 access policies", "tower-policies", "oidc"),
    ("door-rules", "a token, 1,000 access policies, 10,000 bindings", "tower-rules", "oidc"),
    ("door-rules-x509", "a certificate, 1,000 access policies, 10,000 bindings", "tower-rules", "x509"),
    ("door-audit", "the same with a token and an audit log", "tower-audited", "oidc"),
    ("door-audit-x509", "the same with a certificate", "tower-audited", "x509"),
    ("door-audit-pipe", "the same with a token, the log on standard output", "tower-audited-pipe", "oidc"),
    ("door-audit-pipe-x509", "the same with a certificate", "tower-audited-pipe", "x509"),
    ("door-audit-paths", "the same with a token, 100 objects in turn", "tower-audited", "oidc", "-paths=100"),
)
_HOST = (Column(SQLITE, "tower", "https"), Column(TOWER, "tower-host", "https"))
_ALL_PEERS = (*_PEERS, Column(IDLE_2, "idle-2", "https"), Column("Tower, cluster's port", "tower", "port"))
_KUBE = (
    Column("direct", "direct-kube", "https"),
    Column(IDLE_100, "idle-100-kube", "https"),
    Column(IDLE_2, "idle-2-kube", "https"),
    Column(TOWER, "tower-kube", "https"),
)
_FAR_STREAMS = (Column(LINK, "link", "stream"), Column(TOWER, "tower-far", "stream"))
_FAR = (Column(LINK, "link", "https"), Column(TOWER, "tower-far", "https"))
_OLD = (
    Column("direct", "direct", "https"),
    Column(OLD_100, "old-100", "https"),
    Column(OLD_2, "old-2", "https"),
    Column(TOWER, "tower-old", "https"),
)
_OLD_PROXY = (Column(OLD_AGENT, "old-2", "https"), Column(OUR_AGENT, "old-2-ours", "https"))
_FAR_OLD = (Column(LINK, "link", "https"), Column(TOWER, "tower-old-far", "https"))
_METRICS = (Column(TOWER, "tower", "https"), Column(UNOBSERVED, "tower-unobserved", "https"))
_AT_ONCE = (
    Column(STORM_PEER, "", "peer"),
    Column(TOWER, "", "tower"),
)

_WAYS = [(direction, streams) for direction in ("down", "up") for streams in (1, 8)]


def _bulk(prefix: str, columns: tuple[Column, ...], direction: str, streams: int) -> Row:
    arguments = ("bulk", f"-direction={direction}", f"-streams={streams}", "-bytes={octets}")
    title = f"bulk {direction}, {streams} stream{'s' * (streams > 1)}{', agent on wss' * (prefix == 'wss')}"
    return Row(f"{prefix}-{direction}-{streams}", title, Load(arguments), columns, OURS)


_COMPARED = {_SMALL: OURS, _OLD_PROXY: OUR_AGENT}


def _requests(name: str, title: str, columns: tuple[Column, ...], connections: int, *more: str) -> Row:
    load = Load(("requests", f"-connections={connections}", "-for={seconds}s", *more))
    return Row(name, title, load, columns, _COMPARED.get(columns, TOWER))


def _door(name: str, what: str, system: str, kind: str, *more: str) -> Row:
    columns = (Column(CREDENTIAL, "tower", "https"), Column(TOWER, system, kind))
    work = Steady(("-connections=32", "-for={seconds}s", *more))
    return Row(name, f"L7, 32 connections, {what}", work, columns)


def _native() -> Iterator[Row]:
    """Return the rows that compare the compiled modules with those in Python."""

    def columns(kind: str, system: str = "tower") -> tuple[Column, ...]:
        return Column(PURE, f"{system}-pure", kind), Column(NATIVE, f"{system}-native", kind)

    for row in (
        _requests("native-32", "L7, 32 connections", columns("https"), 32),
        _requests("native-1", "L7, 1 connection", columns("https"), 1),
        _requests("native-new", "L7, new TLS connection per request, resumed", columns("https"), 32, "-new"),
        _requests("native-raw-32", "small requests over raw streams, 32 connections", columns("http"), 32),
        _requests("native-raw-1", "small requests over raw streams, 1 connection", columns("http"), 1),
        *(_bulk("native", columns("stream"), *way) for way in _WAYS),
        _transfer("native-old", "down", ", old agent", columns("https", "tower-old")),
        _requests("native-node-1", "small requests by a node, 1 connection", columns("http", "node"), 1),
        Row("native-watches", "500 watches", Watches(500), columns("https")),
    ):
        yield replace(row, ours=NATIVE)


def _kube(name: str, what: str, path: str) -> Row:
    title = f"L7, real kube-apiserver ({what}), 32 connections"
    return _requests(f"kube-{name}", title, _KUBE, 32, f"-path={path}")


def _transfer(name: str, direction: str, what: str = "", columns: tuple[Column, ...] = _PEERS) -> Row:
    load = Load(("transfer", f"-direction={direction}", "-bytes={octets}"))
    return Row(
        f"{name}-{direction}", f"L7, one {direction}load{what}", load, columns, _COMPARED.get(columns, TOWER)
    )


def _far(command: str, columns: tuple[Column, ...], direction: str) -> Row:
    name, title = ("wan", "bulk") if command == "bulk" else ("wan-l7", "L7, one transfer")
    if columns is _FAR_OLD:
        name, title = "wan-old", "L7, old agent, one transfer"
    load = Load((command, f"-direction={direction}", "-bytes={far}"))
    return Row(f"{name}-{direction}", f"100 ms RTT, {title} {direction}, 1 stream", load, columns)


def _node(name: str) -> Iterator[Row]:
    """Return the rows of a node tunnel."""
    cipher = "aes128-gcm" if name.endswith("gcm") else "default ciphers"
    theirs = name.replace("node", "local")

    def columns(kind: str) -> tuple[Column, ...]:
        direct = Column("direct", "direct", kind)
        return (direct, Column(LOCAL, theirs, kind), Column(OUR_NODE, name, kind))

    for direction, streams in _WAYS:
        row = _bulk(name, columns("stream"), direction, streams)
        yield replace(
            row, title=f"bulk {direction}, {streams} stream{'s' * (streams > 1)}, {cipher}", ours=OUR_NODE
        )
    for suffix, what, connections, more in (
        ("32", "small requests, 32 connections", 32, ()),
        ("1", "small requests, 1 connection", 1, ()),
        ("new", "new connection per request, 16 in parallel", 16, ("-new",)),
    ):
        row = _requests(f"{name}-{suffix}", f"{what}, {cipher}", columns("http"), connections, *more)
        yield replace(row, ours=OUR_NODE)


GROUPS = (
    Group(
        "Raw streams",
        (
            *(_bulk("bulk", _STREAMS, *way) for way in _WAYS),
            *(_bulk("wss", _SECURE_STREAMS, *way) for way in _WAYS),
            _requests("raw-32", "small requests over raw streams, 32 connections", _SMALL, 32),
            _requests("raw-1", "small requests over raw streams, 1 connection", _SMALL, 1),
        ),
    ),
    Group(
        "HTTP with TLS from users and to the backend",
        (
            _requests("l7-32", "L7, 32 connections", _ALL_PEERS, 32),
            _requests("l7-access", "L7, 32 connections, access log", _ACCESS, 32),
            _requests("l7-1", "L7, 1 connection", _ALL_PEERS, 1),
            _transfer("l7", "down"),
            _transfer("l7", "up"),
            _requests(
                "l7-new", "L7, new TLS connection per request, resumed, 32 in parallel", _PEERS, 32, "-new"
            ),
            _requests(
                "l7-full",
                "L7, new TLS connection per request, full handshake (ECDSA), 32 in parallel",
                _PEERS,
                32,
                "-new",
                "-full",
            ),
            Row("l7-behind", "small requests while a download runs", Behind(), _PEERS),
            Row("watches", "500 watches, one 1 KiB event per second each", Watches(500), _PEERS),
        ),
    ),
    Group(
        "100 ms RTT and 1 Gbit/s",
        (
            *(_far("bulk", _FAR_STREAMS, direction) for direction in ("down", "up")),
            *(_far("transfer", _FAR, direction) for direction in ("down", "up")),
            _far("transfer", _FAR_OLD, "down"),
        ),
    ),
    Group(
        "Old agents and old proxies",
        (
            _requests("old-32", "L7, 32 connections, old agent", _OLD, 32),
            _requests("old-1", "L7, 1 connection, old agent", _OLD, 1),
            *(_transfer("old", direction, ", old agent", _OLD) for direction in ("down", "up")),
            _requests("oldproxy-32", "L7, 32 connections, old proxy", _OLD_PROXY, 32),
            *(_transfer("oldproxy", direction, ", old proxy", _OLD_PROXY) for direction in ("down", "up")),
        ),
    ),
    Group("Compiled modules", tuple(_native())),
    Group("Metrics", (_requests("metrics-32", "L7, 32 connections, metrics on and off", _METRICS, 32),)),
    Group("Users of an organization", tuple(_door(*each) for each in _DOORS)),
    Group("SSH to nodes", (*_node("node"), *_node("node-gcm"))),
    Group("1,000 agents", (Row("storm", "1,000 agents connecting, 64 in parallel", Storms(), _AT_ONCE),)),
    Group(
        "Records in a host cluster",
        (_requests("host-32", "L7, 32 connections, records in a host cluster", _HOST, 32),),
        late=True,
    ),
    Group(
        "Real kube-apiserver",
        (_kube("version", "/version", VERSION), _kube("object", "a namespace", OBJECT)),
        late=True,
    ),
)
