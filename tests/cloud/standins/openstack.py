"""Small stand-ins of Keystone, Nova and Nova's metadata service.

They reject what OpenStack documents: a login without a domain, an application credential with a scope,
unknown and expired tokens, a token of a project that is not the URL's, unsupported microversions (406), pages
after an unknown marker, metadata with too long values (400), too many items (403), or of a server that is
being built (409).  A server sees its own metadata with the delay of Nova's cache.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from attrs import define, field, frozen

from tests.cloud.standins.rest import Ask, Refusal, Reply, RestResource

DOMAIN = {"id": "default", "name": "Default"}
PROJECT = "5b3a9c1c0d4e4f6c8a7b6d5e4f3a2b1c"
PROJECT_NAME = "demo"
USER = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
USER_NAME = "tower"
PASSWORD = "kept-to-ourselves"
CREDENTIAL = "c0ffee00c0ffee00c0ffee00c0ffee00"
CREDENTIAL_NAME = "gateway"
CREDENTIAL_SECRET = "kept-to-ourselves-too"
TRUST = "7a57aa7a57aa7a57aa7a57aa7a57aa7a"
REGION = "RegionOne"
LARGEST_PAGE = 1000
LONGEST_VALUE = 255
MOST_ITEMS = 128
METADATA_KEY = re.compile(r"[a-zA-Z0-9\-_:. ]{1,255}")
SETTLED = {"ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF"}


def fault(code: int, name: str, message: str, **headers: str) -> Reply:
    """Return an error as Nova words them."""
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    return Reply(code, {name: {"code": code, "message": message}}, fields)


RATE_LIMIT = fault(429, "overLimit", "This request was rate-limited.", Retry_After="4")
BUSY = fault(503, "serviceUnavailable", "Service Unavailable")


def keystone_error(code: int, title: str, message: str) -> Reply:
    """Return an error as Keystone words them."""
    return Reply(code, {"error": {"code": code, "title": title, "message": message}})


@frozen
class Token:
    """The scope of a token; *project* is empty without one."""

    project: str
    issued: float
    expires: float


@define
class Server:
    """A virtual machine.

    :ivar addresses: ``(network, address, "fixed" or "floating")`` of each.
    """

    name: str
    addresses: list[tuple[str, str, str]] = field(factory=list)
    status: str = "ACTIVE"
    metadata: dict[str, str] = field(factory=dict)
    access_v4: str = ""
    access_v6: str = ""
    flavor: str = "m1.small"
    zone: str = "nova"
    project: str = PROJECT
    _seen: tuple[float, dict[str, str]] | None = None

    @property
    def id(self) -> str:
        """A UUID of its name."""
        text = hashlib.sha256(self.name.encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"

    def render(self, version: tuple[int, int]) -> dict[str, Any]:
        """Return it as Nova shows it in that microversion."""
        networks: dict[str, list[dict[str, Any]]] = {}
        for network, address, kind in self.addresses:
            shown = {"addr": address, "version": 6 if ":" in address else 4, "OS-EXT-IPS:type": kind}
            networks.setdefault(network, []).append(shown | {"OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01"})
        flavor: dict[str, Any] = {"id": flavor_id(self.flavor), "links": []}
        if version >= (2, 47):
            flavor = {
                "original_name": self.flavor,
                "vcpus": 1,
                "ram": 2048,
                "disk": 20,
                "ephemeral": 0,
                "swap": 0,
            }
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "tenant_id": self.project,
            "addresses": networks,
            "accessIPv4": self.access_v4,
            "accessIPv6": self.access_v6,
            "metadata": dict(self.metadata),
            "flavor": flavor,
            "OS-EXT-AZ:availability_zone": self.zone,
            "OS-EXT-STS:vm_state": self.status.lower(),
        }

    def seen(self, now: float, age: float) -> dict[str, str]:
        """Return its metadata as it reads it itself: at most *age* s old."""
        if self._seen is None or now - self._seen[0] >= age:
            self._seen = (now, dict(self.metadata))
        return self._seen[1]


def flavor_id(name: str) -> str:
    """Return the id of the flavour *name*."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


class OpenStack:
    """One cloud of one region.

    :param seconds: returns the time, s since the epoch.
    :param on_key: is called with ``user, line`` of each SSH key among a server's metadata after a change.
    :ivar base: URL at which it is reached; in the catalog.
    :ivar page_size: no page is larger.
    :ivar newest: the newest microversion it speaks.
    :ivar project_in_url: whether the catalog has Nova's older URLs, with the project's id.
    :ivar cache: how old what a server reads of its metadata may be, s.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        base: str,
        *,
        on_key: Callable[[str, str], None] = lambda user, line: None,
    ) -> None:
        self._seconds = seconds
        self.base = base
        self._on_key = on_key
        self.servers: list[Server] = []
        self.page_size = LARGEST_PAGE
        self.newest = (2, 96)
        self.project_in_url = False
        self.cache = 0.0
        self.token_life = 3600.0
        self.tokens: dict[str, Token] = {}
        self._numbers = count(1)
        self.resource = RestResource(self._answer)

    def revoke(self) -> None:
        """Make all tokens invalid."""
        self.tokens.clear()

    def _answer(self, ask: Ask) -> Reply:
        if ask.path == "/identity/v3/auth/tokens" and ask.method == "POST":
            return self._log_in(ask)
        if ask.path.startswith("/compute/v2.1/"):
            return self._compute(ask, ask.path.removeprefix("/compute/v2.1"))
        if match := re.fullmatch(r"/as/([^/]+)/openstack/(latest|2012-08-10)/meta_data\.json", ask.path):
            server = self._find(match[1])
            meta = server.seen(self._seconds(), self.cache)
            shown = {"uuid": server.id, "name": server.name, "hostname": f"{server.name}.novalocal"}
            return Reply(body=shown | {"meta": meta, "availability_zone": server.zone})
        raise Refusal(keystone_error(404, "Not Found", "The resource could not be found."))

    # -- Keystone

    def _log_in(self, ask: Ask) -> Reply:
        try:
            auth = ask.json()["auth"]
            identity, scope = auth["identity"], auth.get("scope")
            (method,) = identity["methods"]
            said = identity[method]
            known, project = self._judge(method, said, scope)
        except (ValueError, KeyError, TypeError) as mistake:
            message = f"Expecting to find {mistake} in auth."
            raise Refusal(keystone_error(400, "Bad Request", message)) from mistake
        if not known:
            message = "The request you have made requires authentication."
            raise Refusal(keystone_error(401, "Unauthorized", message))
        text = f"gAAAA-secret-{next(self._numbers)}-{secrets.token_urlsafe(12)}"
        token = self.tokens[text] = Token(project, self._seconds(), self._seconds() + self.token_life)
        shown: dict[str, Any] = {
            "methods": [method],
            "issued_at": _moment(token.issued),
            "expires_at": _moment(token.expires),
            "user": {"id": USER, "name": USER_NAME, "domain": DOMAIN},
        }
        if project:
            shown |= {"project": {"id": project, "name": PROJECT_NAME, "domain": DOMAIN}}
            shown["catalog"] = self._catalog(project)
        return Reply(201, {"token": shown}, {"X-Subject-Token": text, "Vary": "X-Auth-Token"})

    def _judge(self, method: str, said: Any, scope: Any) -> tuple[bool, str]:
        if method == "application_credential":
            if scope is not None:
                message = "Application credentials cannot request a scope."
                raise Refusal(keystone_error(401, "Unauthorized", message))
            known = said["secret"] == CREDENTIAL_SECRET and (
                said.get("id") == CREDENTIAL or (said["name"] == CREDENTIAL_NAME and _is_user(said["user"]))
            )
            return known, PROJECT
        if method != "password":
            return False, ""
        known = _is_user(said["user"]) and said["user"]["password"] == PASSWORD
        if scope is None:
            return known, ""
        if "OS-TRUST:trust" in scope:
            return known and scope["OS-TRUST:trust"]["id"] == TRUST, PROJECT
        project = scope["project"]
        if "id" in project:
            return known and project["id"] == PROJECT, PROJECT
        return known and project["name"] == PROJECT_NAME and _is_domain(project["domain"]), PROJECT

    def _catalog(self, project: str) -> list[dict[str, Any]]:
        path = f"/compute/v2.1/{project}" if self.project_in_url else "/compute/v2.1"
        other = "http://nowhere.example/v2.1"

        def endpoint(interface: str, region: str, url: str) -> dict[str, Any]:
            number = hashlib.sha256(f"{interface}{region}".encode()).hexdigest()[:32]
            return {"id": number, "interface": interface, "region": region, "region_id": region, "url": url}

        compute = [
            endpoint("admin", REGION, other),
            endpoint("public", "RegionTwo", other),
            endpoint("internal", REGION, self.base + path + "/"),
            endpoint("public", REGION, self.base + path),
        ]
        identity = [endpoint("public", REGION, self.base + "/identity/v3")]
        return [
            {"type": "identity", "name": "keystone", "id": "1", "endpoints": identity},
            {"type": "compute", "name": "nova", "id": "2", "endpoints": compute},
        ]

    # -- Nova

    def _compute(self, ask: Ask, path: str) -> Reply:
        token = self.tokens.get(ask.headers.get("x-auth-token", ""))
        if token is None or token.expires <= self._seconds() or not token.project:
            refusal = keystone_error(
                401, "Unauthorized", "The request you have made requires authentication."
            )
            refusal.headers["WWW-Authenticate"] = f'Keystone uri="{self.base}/identity"'
            raise Refusal(refusal)
        version = self._version(ask.headers.get("openstack-api-version", "compute 2.1"))
        if self.project_in_url:
            _, project, path = path.split("/", 2)
            path = "/" + path
            if project != token.project:
                message = (
                    f"Malformed request URL: URL's project_id '{project}' doesn't match Context's project_id"
                )
                raise Refusal(fault(400, "badRequest", message))
        reply = self._route(ask, path, token.project, version)
        shown = f"compute {version[0]}.{version[1]}"
        return Reply(
            reply.code, reply.body, {"OpenStack-API-Version": shown, "Vary": "OpenStack-API-Version"}
        )

    def _version(self, text: str) -> tuple[int, int]:
        match = re.fullmatch(r"compute (\d+)\.(\d+)", text)
        if match is None:
            raise Refusal(fault(400, "badRequest", f"API Version String {text} is of invalid format."))
        version = int(match[1]), int(match[2])
        if not (2, 1) <= version <= self.newest:
            newest = ".".join(map(str, self.newest))
            asked = f"Version {match[1]}.{match[2]} is not supported by the API."
            message = f"{asked} Minimum is 2.1 and maximum is {newest}."
            raise Refusal(fault(406, "computeFault", message))
        return version

    def _route(self, ask: Ask, path: str, project: str, version: tuple[int, int]) -> Reply:
        if ask.method == "GET" and path == "/servers/detail":
            return self._list(ask, project, version)
        if match := re.fullmatch(r"/flavors/([^/]+)", path):
            for each in self.servers:
                if flavor_id(each.flavor) == match[1]:
                    return Reply(body={"flavor": {"id": match[1], "name": each.flavor}})
            raise Refusal(fault(404, "itemNotFound", f"Flavor {match[1]} could not be found."))
        if match := re.fullmatch(r"/servers/([^/]+)(/metadata)?", path):
            server = self._find(match[1], project)
            if ask.method == "GET" and match[2] is None:
                return Reply(body={"server": server.render(version)})
            if ask.method == "POST" and match[2]:
                return self._update(ask, server)
        raise Refusal(fault(404, "itemNotFound", "The resource could not be found."))

    def _find(self, number: str, project: str = PROJECT) -> Server:
        for each in self.servers:
            if each.id == number and each.project == project:
                return each
        raise Refusal(fault(404, "itemNotFound", f"Instance {number} could not be found."))

    def _list(self, ask: Ask, project: str, version: tuple[int, int]) -> Reply:
        servers = [each for each in self.servers if each.project == project]
        if "name" in ask.query:
            servers = [each for each in servers if re.search(ask.query["name"], each.name)]
        if "status" in ask.query:
            servers = [each for each in servers if each.status == ask.query["status"]]
        text = ask.query.get("limit", str(LARGEST_PAGE))
        if not text.isdigit():
            raise Refusal(fault(400, "badRequest", f"Invalid input for query parameters limit: {text}"))
        size = min(int(text), self.page_size)
        start = 0
        if marker := ask.query.get("marker"):
            numbers = [each.id for each in servers]
            if marker not in numbers:
                raise Refusal(fault(400, "badRequest", f"marker [{marker}] not found"))
            start = numbers.index(marker) + 1
        page = servers[start : start + size]
        answer: dict[str, Any] = {"servers": [each.render(version) for each in page]}
        if page and len(page) == size:
            path = f"{self.base}{ask.path}?limit={size}&marker={page[-1].id}"
            answer["servers_links"] = [{"rel": "next", "href": path}]
        return Reply(body=answer)

    def _update(self, ask: Ask, server: Server) -> Reply:
        try:
            items = ask.json()["metadata"]
            if not all(
                METADATA_KEY.fullmatch(key) and len(value) <= LONGEST_VALUE for key, value in items.items()
            ):
                raise ValueError("Value is too long")
        except (ValueError, KeyError, TypeError, AttributeError) as mistake:
            message = f"Invalid input for field/attribute metadata. {mistake}"
            raise Refusal(fault(400, "badRequest", message)) from mistake
        if server.status not in SETTLED:
            state = "building" if server.status == "BUILD" else server.status.lower()
            message = f"Cannot 'update_server_metadata' instance {server.id} while it is in vm_state {state}"
            raise Refusal(fault(409, "conflictingRequest", message))
        changed = server.metadata | items
        if len(changed) > MOST_ITEMS:
            message = f"Maximum number of metadata items exceeds {MOST_ITEMS}"
            raise Refusal(fault(403, "forbidden", message))
        server.metadata = changed
        for key, value in changed.items():
            if match := re.fullmatch(r"tower-ssh-key:([^:]+):[0-9a-f]+", key):
                self._on_key(match[1], value)
        return Reply(body={"metadata": changed})


def _is_user(user: Any) -> bool:
    if "id" in user:
        return bool(user["id"] == USER)
    return bool(user["name"] == USER_NAME and _is_domain(user["domain"]))


def _is_domain(domain: Any) -> bool:
    return bool(domain.get("id") == DOMAIN["id"] or domain.get("name") == DOMAIN["name"])


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
