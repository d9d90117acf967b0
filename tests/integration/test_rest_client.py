"""The client of the host's API server, with a real one that is compacted, frozen and killed."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from tests.fakes.chains import family, pem
from tests.integration.connect_proxy import NAME, Server, connect_proxy
from tests.integration.host_kit import HostTestCase, reactor
from tests.integration.mounted_secret import MountedSecret
from tests.integration.programs import LOOPBACK
from tower.kube.apiserver import in_cluster_access
from tower.kube.client import APIError
from tower.kube.rest import exec_plugin, heartbeat, rest_client
from tower.kube.rest.failures import describe
from tower.kube.rest.host_api import WATCH_TIME, Object, ObjectList, ResourceType, WatchEvent
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.well_known import CLUSTERS, CONFIG_MAPS, LEASES, NAMESPACES

OBJECTS, WORKERS = 1200, 20
EXEC_V1 = "client.authentication.k8s.io/v1"
PLUGIN = '#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" >> "$FOLDER/runs"\ncat "$FOLDER/credential"\n'


class Copies:
    """A follower that has copies of the objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.lists = 0

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Replace all."""
        self.lists += 1
        self.objects = {item["metadata"]["name"]: item for item in items}

    def changed(self, event: WatchEvent) -> None:
        """Apply a change."""
        name = event.object["metadata"]["name"]
        if event.type == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = event.object


class CutClient:
    """A client whose watches fail while it is cut.

    :ivar versions: of the watches that were sent.
    """

    def __init__(self, api: RestClient) -> None:
        self._api = api
        self._watching: Deferred[None] | None = None
        self.is_cut = False

    def cut(self) -> None:
        """Cut the current watch, and prevent others."""
        self.is_cut = True
        if self._watching is not None:
            self._watching.cancel()

    async def list(self, *args: Any, **options: Any) -> ObjectList:
        """List."""
        return await self._api.list(*args, **options)

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        *,
        field_selector: str = "",
        seconds: int = WATCH_TIME,
        opened: Callable[[], None] | None = None,
    ) -> None:
        """Watch, unless it is cut."""
        if self.is_cut:
            raise APIError("GET", "/cut", 0, "cut")
        watching = self._api.watch(
            resource, namespace, resource_version, deliver, label_selector, seconds=seconds, opened=opened
        )
        self._watching = Deferred.fromCoroutine(watching)
        try:
            await self._watching
        finally:
            self._watching = None
            if self.is_cut:
                raise APIError("GET", "/cut", 0, "cut")


class ObjectTests(HostTestCase):
    """Objects, and copies of them."""

    def make(self, name: str, **data: str) -> Deferred[Object]:
        """Create an object."""
        obj = {"metadata": {"name": name, "labels": {"half": str(len(data))}}, "data": data}
        return Deferred.fromCoroutine(self.admin.create(CONFIG_MAPS, obj, self.namespace))

    async def follow(self, api: Any = None) -> tuple[Reflector, Copies]:
        """Follow the objects; wait for the first event."""
        copies = Copies()
        reflector = Reflector(api or self.admin, CONFIG_MAPS, self.namespace, copies, reactor)
        reflector.start()
        self.addCleanup(reflector.stop)
        await reflector.when_synced()
        await self.make("first")
        await self.until("the first event", lambda: "first" in copies.objects)
        return reflector, copies

    async def check_same(self, copies: Copies) -> None:
        """Wait until the copies are those of the server."""
        found = await self.admin.list(CONFIG_MAPS, self.namespace)
        stored = {item["metadata"]["name"]: item for item in found.items}
        await self.until("the copies are equal", lambda: copies.objects == stored)

    async def test_many(self) -> None:
        """1,200 objects are listed in pages, and followed."""
        waiting = iter(range(OBJECTS))

        async def make() -> None:
            for number in waiting:
                await self.make(f"c{number}")

        await gatherResults([Deferred.fromCoroutine(make()) for _ in range(WORKERS)])
        found = await self.admin.list(CONFIG_MAPS, self.namespace)
        self.assertEqual(len({item["metadata"]["name"] for item in found.items}), OBJECTS)
        self.assertEqual({(item["apiVersion"], item["kind"]) for item in found.items}, {("v1", "ConfigMap")})
        reflector, copies = await self.follow()
        self.assertEqual((len(copies.objects), copies.lists), (OBJECTS + 1, 1))
        await self.admin.patch(CONFIG_MAPS, "c7", {"data": {"x": "y"}}, self.namespace)
        await self.admin.delete(CONFIG_MAPS, "c8", self.namespace)
        await self.make("new")
        await self.until("the changes", lambda: reflector.counts.events == 4)
        await self.check_same(copies)
        self.assertEqual((reflector.counts.lists, reflector.counts.watches, reflector.failure), (1, 1, ""))

    async def test_rules(self) -> None:
        """Errors have the codes and reasons that `FakeHost` has, too."""
        made = await self.make("a")
        codes = [
            await self.error(self.make("a")),
            await self.error(self.admin.get(CONFIG_MAPS, "b", self.namespace)),
            await self.error(self.admin.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "none")),
            await self.error(self.admin.create(CONFIG_MAPS, {"metadata": {}}, self.namespace)),
            await self.error(self.admin.list(CLUSTERS)),
            await self.error(self.admin.delete(CONFIG_MAPS, "a", self.namespace, uid="other")),
            await self.error(self.admin.delete(CONFIG_MAPS, "a", self.namespace, resource_version="1")),
        ]
        stale = {**made, "data": {"x": "1"}}
        await self.admin.update(CONFIG_MAPS, stale)
        codes.append(await self.error(self.admin.update(CONFIG_MAPS, stale)))
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
        codes.append(await self.error(self.admin.patch(CONFIG_MAPS, "a", patch, self.namespace)))
        await self.admin.create(LEASES, {"metadata": {"name": "a"}}, self.namespace)
        unconditional = {"metadata": {"name": "a", "namespace": self.namespace}}
        codes.append(await self.error(self.admin.update(LEASES, unconditional)))
        self.assertEqual(
            [(error.code, error.reason) for error in codes],
            [
                (409, "AlreadyExists"),
                (404, "NotFound"),
                (404, "NotFound"),
                (422, "Invalid"),
                (404, ""),
                (409, "Conflict"),
                (409, "Conflict"),
                (409, "Conflict"),
                (409, "Conflict"),
                (422, "Invalid"),
            ],
        )

    async def test_bookmarks(self) -> None:
        """A watch ends after its time with a bookmark, from which the next one continues."""
        found = await self.admin.list(CONFIG_MAPS, self.namespace)
        events: list[WatchEvent] = []
        opened: list[Deferred[Object]] = []

        def create_other() -> None:
            other = {"metadata": {"generateName": "other-"}}
            opened.append(Deferred.fromCoroutine(self.admin.create(CONFIG_MAPS, other, "default")))

        await self.admin.watch(
            CONFIG_MAPS,
            self.namespace,
            found.resource_version,
            events.append,
            seconds=9,
            opened=create_other,
        )
        (creating,) = opened
        other = await creating
        self.assertEqual({event.type for event in events}, {"BOOKMARK"})
        self.assertEqual(events[-1].resource_version, other["metadata"]["resourceVersion"])

    async def test_selectors(self) -> None:
        """Labels and names select objects of lists and watches."""
        await self.make("a")
        await self.make("b", x="1")
        found = await self.admin.list(CONFIG_MAPS, self.namespace, "half=1")
        self.assertEqual([item["metadata"]["name"] for item in found.items], ["b"])
        events: list[str] = []
        watching = Deferred.fromCoroutine(
            self.admin.watch(
                CONFIG_MAPS,
                self.namespace,
                found.resource_version,
                lambda event: events.append(event.object["metadata"].get("name", "")),
                field_selector="metadata.name=b",
            )
        )
        await self.admin.delete(CONFIG_MAPS, "a", self.namespace)
        await self.admin.delete(CONFIG_MAPS, "b", self.namespace)
        await self.until("the event", lambda: events)
        self.assertEqual(events, ["b"])
        watching.addErrback(lambda _: None)
        watching.cancel()
        await watching

    async def test_frozen(self) -> None:
        """A frozen server is noticed, and followed again without a list when it continues."""
        self.patch(heartbeat, "PERIOD", 1.0)
        self.patch(rest_client, "PROBE_TIMEOUT", 2.0)
        api = self.client(RestConfig.from_kubeconfig(self.host.member.admin, reactor))
        reflector, copies = await self.follow(api)
        self.addCleanup(self.host.thaw)
        self.host.freeze()
        await self.until("the failure", lambda: reflector.failure)
        self.assertIn("it took longer than 2 s; check that the API server runs", reflector.failure)
        self.host.thaw()
        await self.until("the end of the failure", lambda: not reflector.failure)
        await self.make("a")
        await self.check_same(copies)
        self.assertEqual(copies.lists, 1)

    async def test_killed(self) -> None:
        """After a restart of the killed server the copy is right again, without a list."""
        await self.make("a")
        reflector, copies = await self.follow()
        self.host.restart()
        await self.until("the failure", lambda: reflector.counts.failures)
        await self.until("the end of the failure", lambda: not reflector.failure)
        await self.make("b")
        await self.check_same(copies)
        self.assertEqual(copies.lists, 1)

    async def test_compacted(self) -> None:
        """Changes that the server has forgotten are in a new list: a watch from before them is expired."""
        await self.make("a")
        cut = CutClient(self.admin)
        reflector, copies = await self.follow(cut)
        cut.cut()
        await self.make("b")
        await self.admin.delete(CONFIG_MAPS, "a", self.namespace)
        last = await self.admin.patch(NAMESPACES, self.namespace, {"metadata": {"labels": {"x": "y"}}})
        self.host.compact(last["metadata"]["resourceVersion"])
        self.host.restart()
        cut.is_cut = False
        await self.until("the list", lambda: copies.lists == 2)
        await self.check_same(copies)
        self.assertEqual((reflector.counts.expirations, sorted(copies.objects)), (1, ["b", "first"]))


class CredentialTests(HostTestCase):
    """Credentials of kubeconfigs."""

    def config(self, user: dict[str, Any] | None = None, **cluster: str) -> RestConfig:
        """Return the access of a user, by default the administrator, to a changed cluster."""
        content = json.loads(self.host.member.admin.read_text())
        if user is not None:
            content["users"][0]["user"] = user
        content["clusters"][0]["cluster"] |= cluster
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(content))
        return RestConfig.from_kubeconfig(path, reactor, environ={"PATH": "/usr/bin:/bin"})

    def plugin(self, **credential: Any) -> None:
        """Set the credential of the plugin."""
        written = {"kind": "ExecCredential", "apiVersion": EXEC_V1, "status": credential}
        (self.folder / "credential").write_text(json.dumps(written))

    def with_plugin(self) -> RestClient:
        """Return a client whose credential is the plugin's."""
        program = self.folder / "plugin"
        program.write_text(PLUGIN)
        program.chmod(0o755)
        env = [{"name": "FOLDER", "value": str(self.folder.resolve())}]
        entry = {"apiVersion": EXEC_V1, "command": "./plugin", "interactiveMode": "Never", "env": env}
        return self.client(self.config({"exec": {**entry, "provideClusterInfo": True}}))

    def runs(self) -> list[Any]:
        """Return the inputs of the plugin's runs."""
        return [json.loads(line) for line in (self.folder / "runs").read_text().splitlines()]

    async def test_token_file(self) -> None:
        """A token is read again at once when it is rejected, and later when its file changes."""
        least, mighty = self.host.member.least, self.host.member.cluster_admin
        token = self.folder / "token"
        token.write_text("wrong")
        api = self.client(self.config({"tokenFile": str(token.resolve())}))
        token.write_text(least.token)
        self.assertEqual(await self.user(api), least.user)
        token.write_text(mighty.token)
        await deferLater(reactor, 1.1)
        self.assertEqual(await self.user(api), mighty.user)

    async def test_service_account(self) -> None:
        """A pod's token and CA, which kubelet swaps at once, are read again."""
        least, mighty = self.host.member.least, self.host.member.cluster_admin
        mount = MountedSecret(self.folder / "account")
        mount.swap({"token": least.token, "ca.crt": self.host.member.ca.read_bytes()})
        port = str(self.host.member.info["ports"]["kube-apiserver"])
        environ = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": port}
        config = RestConfig(lambda: in_cluster_access(environ, mount.path("")), reactor, environ={})
        api = self.client(config)
        self.assertEqual(await self.user(api), least.user)
        other = pem(family()[0][0])
        mount.swap({"token": mighty.token, "ca.crt": self.host.member.ca.read_bytes() + other})
        await deferLater(reactor, 1.1)
        self.assertEqual(await self.user(api), mighty.user)
        mount.swap({"token": mighty.token, "ca.crt": other})
        await deferLater(reactor, 1.1)
        error = await self.error(self.user(api))
        self.assertIn("check the certificate-authority", describe(error, CONFIG_MAPS))

    async def test_swapped_certificate(self) -> None:
        """A client certificate and its key, which kubelet swaps at once, are read again."""
        pki = self.host.member.place / "pki"
        mount = MountedSecret(self.folder / "certificate")

        def swap(name: str) -> None:
            files = {f"tls.{part}": (pki / f"{name}.{part}").read_bytes() for part in ("crt", "key")}
            mount.swap(files)

        swap("admin")
        files = {"client-certificate": mount.path("tls.crt"), "client-key": mount.path("tls.key")}
        api = self.client(self.config({key: str(path) for key, path in files.items()}))
        self.assertEqual(await self.user(api), "admin")
        swap("apiserver-kubelet-client")
        await deferLater(reactor, 1.1)
        self.assertEqual(await self.user(api), "kube-apiserver-kubelet-client")

    async def test_certificate_files(self) -> None:
        """A rotated client certificate is used by the next request after a while."""
        for name in ("crt", "key"):
            shutil.copy(self.host.member.place / "pki" / f"admin.{name}", self.folder / f"tls.{name}")
        folder = self.folder.resolve()
        user = {"client-certificate": str(folder / "tls.crt"), "client-key": str(folder / "tls.key")}
        api = self.client(self.config(user))
        self.assertEqual(await self.user(api), "admin")
        for name in ("crt", "key"):
            source = self.host.member.place / "pki" / f"apiserver-kubelet-client.{name}"
            shutil.copy(source, self.folder / f"tls.{name}")
        await deferLater(reactor, 1.1)
        self.assertEqual(await self.user(api), "kube-apiserver-kubelet-client")

    async def test_plugin(self) -> None:
        """A plugin's token is used until it expires, and then that of its next run."""
        self.patch(exec_plugin, "PAUSE", 0.5)
        least, mighty = self.host.member.least, self.host.member.cluster_admin
        expiry = datetime.now(UTC) + timedelta(seconds=10)
        self.plugin(token=least.token, expirationTimestamp=expiry.isoformat())
        api = self.with_plugin()
        self.assertEqual([await self.user(api) for _ in range(3)], [least.user] * 3)
        (run,) = self.runs()
        self.assertEqual(run["spec"]["cluster"]["server"], self.host.member.info["server"])
        self.plugin(token=mighty.token)
        while datetime.now(UTC) < expiry:
            await deferLater(reactor, 0.1)
        self.assertEqual(await self.user(api), mighty.user)
        self.assertEqual(len(self.runs()), 2)

    async def test_rejected_plugin(self) -> None:
        """A plugin runs again after a rejection; its certificate is used by the same request."""
        self.patch(exec_plugin, "PAUSE", 0.5)
        self.plugin(token="wrong")
        api = self.with_plugin()
        self.assertEqual((await self.error(self.user(api))).code, 401)
        certificate, key = (Path(path).read_text() for path in self.host.member.admin_pair)
        self.plugin(clientCertificateData=certificate, clientKeyData=key)
        await deferLater(reactor, 0.6)
        self.assertEqual(await self.user(api), "admin")

    async def test_failing_plugin(self) -> None:
        """A plugin that fails is an error with the cure."""
        api = self.with_plugin()
        error = await self.error(self.user(api))
        self.assertEqual(error.code, 0)
        self.assertIn("plugin: it failed with status 1; run it manually to see why", str(error))

    async def test_proxy(self) -> None:
        """Requests and watches go through the HTTP proxy of the kubeconfig."""
        proxy = Server(connect_proxy)
        self.addCleanup(proxy.close)
        port = self.host.member.info["ports"]["kube-apiserver"]
        changes = {"server": f"https://{NAME}:{port}", "proxy-url": f"http://{LOOPBACK}:{proxy.port}"}
        api = self.client(self.config(None, **changes, **{"tls-server-name": "kubernetes"}))
        self.assertEqual(await self.user(api), "admin")
        found = await api.list(CONFIG_MAPS, self.namespace)
        await api.watch(CONFIG_MAPS, self.namespace, found.resource_version, print, seconds=1)
        self.assertGreater(proxy.served, 0)
        other = self.client(self.config(None, **changes, **{"tls-server-name": "other"}))
        error = await self.error(self.user(other))
        self.assertIn("check the certificate-authority and tls-server-name", describe(error, CONFIG_MAPS))

    async def test_other_authority(self) -> None:
        """A credential is not sent to a server with another CA's certificate; the error has the cure."""
        data = b64encode(pem(family()[0][0])).decode()
        error = await self.error(
            self.user(self.client(self.config(None, **{"certificate-authority-data": data})))
        )
        self.assertIn("check the certificate-authority", describe(error, CONFIG_MAPS))
