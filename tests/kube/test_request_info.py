"""Tests for `tower.kube.request_info`, after those of kube-apiserver's RequestInfo."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.request_info import is_discovery, parse_request_info


class RequestInfoTests(SynchronousTestCase):
    """Verb and object of requests."""

    def test_resources(self) -> None:
        """Verb, group, version, namespace, resource, subresource and name."""
        for method, target, expected in (
            (b"GET", b"/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
            (b"GET", b"/api/v1/namespaces/other", ("get", "", "v1", "other", "namespaces", "", "other")),
            (
                b"PUT",
                b"/api/v1/namespaces/other/status",
                ("update", "", "v1", "other", "namespaces", "status", "other"),
            ),
            (
                b"PUT",
                b"/api/v1/namespaces/a/finalize",
                ("update", "", "v1", "a", "namespaces", "finalize", "a"),
            ),
            (b"GET", b"/api/v1/namespaces/other/pods", ("list", "", "v1", "other", "pods", "", "")),
            (b"GET", b"/api/v1/namespaces/other/pods/foo", ("get", "", "v1", "other", "pods", "", "foo")),
            (b"HEAD", b"/api/v1/namespaces/other/pods/foo", ("get", "", "v1", "other", "pods", "", "foo")),
            (b"GET", b"/api/v1/pods", ("list", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch=true", ("watch", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?limit=1&watch=1", ("watch", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch=false", ("list", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch=0", ("list", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch", ("watch", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?w%61tch=%31&watch=0", ("watch", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch=False", ("list", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/pods?watch=1;a&limit=%zz", ("list", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/watch/pods", ("watch", "", "v1", "", "pods", "", "")),
            (b"GET", b"/api/v1/watch/namespaces/o/pods", ("watch", "", "v1", "o", "pods", "", "")),
            (b"GET", b"/api/v1/namespaces/o/pods/foo/log", ("get", "", "v1", "o", "pods", "log", "foo")),
            (
                b"POST",
                b"/api/v1/namespaces/o/pods/foo/exec?x",
                ("create", "", "v1", "o", "pods", "exec", "foo"),
            ),
            (b"GET", b"/api/v1/proxy/namespaces/o/pods/foo/x", ("proxy", "", "v1", "o", "pods", "", "foo")),
            (
                b"POST",
                b"/apis/apps/v1/namespaces/o/deployments",
                ("create", "apps", "v1", "o", "deployments", "", ""),
            ),
            (
                b"PATCH",
                b"/apis/apps/v1/namespaces/o/deployments/d",
                ("patch", "apps", "v1", "o", "deployments", "", "d"),
            ),
            (b"DELETE", b"/api/v1/nodes/n", ("delete", "", "v1", "", "nodes", "", "n")),
            (b"DELETE", b"/api/v1/namespaces/o/pods", ("deletecollection", "", "v1", "o", "pods", "", "")),
            (b"OPTIONS", b"/api/v1/pods", ("", "", "v1", "", "pods", "", "")),
        ):
            info = parse_request_info(method, target)
            self.assertTrue(info.is_resource, target)
            self.assertEqual(
                (
                    info.verb,
                    info.group,
                    info.version,
                    info.namespace,
                    info.resource,
                    info.subresource,
                    info.name,
                ),
                expected,
            )

    def test_selected_name(self) -> None:
        """A field selector for one name sets the name of a list or watch."""
        for selector, expected in (
            ("metadata.name=a", "a"),
            ("metadata.name%3D%3Da,status.phase!=Running", "a"),
            ("metadata.name!=a", ""),
            ("metadata.name=b,metadata.name=a", "a"),
            ("metadata.name=b,metadata.name=", ""),
            ("metadata.name=a%5C%2Cb", "a,b"),
            ("metadata.name=a%5Cb", ""),
            ("metadata.name=a,nothing", ""),
            ("metadata.name=a=b", ""),
            ("metadata.name=a/b", ""),
            ("metadata.name=..", ""),
            ("metadata.namespace=a", ""),
        ):
            for query, verb in (("", "list"), ("watch=1&", "watch")):
                target = f"/api/v1/pods?{query}fieldSelector={selector}".encode()
                info = parse_request_info(b"GET", target)
                self.assertEqual((info.verb, info.name), (verb, expected), target)
        name = b"fieldSelector=metadata.name=a"
        for begin in (b"fieldSelector=&", b"&" * 10_000):
            info = parse_request_info(b"GET", b"/api/v1/pods?" + begin + name)
            self.assertEqual((info.verb, info.name), ("list", ""))
        info = parse_request_info(b"DELETE", b"/api/v1/pods?fieldSelector=metadata.name=a")
        self.assertEqual((info.verb, info.name), ("deletecollection", ""))

    def test_no_resources(self) -> None:
        """Everything else has a verb and a path."""
        for target in (
            b"/",
            b"/api",
            b"/api/v1",
            b"/apis",
            b"/apis/apps",
            b"/apis/apps/v1",
            b"/healthz/a/b",
            b"/version",
        ):
            info = parse_request_info(b"GET", target + b"?timeout=32s")
            self.assertFalse(info.is_resource, target)
            self.assertEqual((info.verb, info.path), ("get", target.decode()))

    def test_watch_of_nothing(self) -> None:
        """An unfinished path is about no object."""
        self.assertFalse(parse_request_info(b"GET", b"/api/v1/watch").is_resource)

    def test_decoded(self) -> None:
        """Names are compared decoded."""
        self.assertEqual(parse_request_info(b"GET", b"/api/v1/p%6fds/%61").resource, "pods")

    def test_long_running(self) -> None:
        """Watches and the streams of pods may take for ever, nothing else."""
        for target in (
            b"/api/v1/pods?watch=true",
            b"/api/v1/namespaces/a/pods/b/log",
            b"/api/v1/namespaces/a/pods/b/exec",
        ):
            self.assertTrue(parse_request_info(b"GET", target).is_long_running)
        for target in (b"/api/v1/pods", b"/healthz", b"/api/v1/namespaces/a/pods/log"):
            self.assertFalse(parse_request_info(b"GET", target).is_long_running)


class DiscoveryTests(SynchronousTestCase):
    """Requests whose errors clients do not show."""

    def test_paths(self) -> None:
        """Groups, their resources, OpenAPI and the version are; resources are not."""
        for target in (
            b"/api",
            b"/api?timeout=32s",
            b"/api/v1",
            b"/api/v1/",
            b"/apis",
            b"/apis/apps",
            b"/apis/apps/v1?timeout=32s",
            b"/openapi/v2",
            b"/openapi/v3/apis/apps/v1?hash=A",
            b"/swagger-2.0.0.pb-v1",
            b"/version",
        ):
            self.assertTrue(is_discovery(target), target)
            self.assertTrue(is_discovery(b"/clusters/alpha" + target, len(b"/clusters/alpha")), target)
            self.assertFalse(is_discovery(b"/x" + target), target)
        for target in (
            b"/",
            b"/apix",
            b"/api/v1/pods",
            b"/apis/apps/v1/deployments",
            b"/versions",
            b"/healthz",
        ):
            self.assertFalse(is_discovery(target), target)
