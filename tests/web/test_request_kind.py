"""Tests of `tower.web.request_kind`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.request_kind import _kind, is_long_running, request_kind

POD = b"/clusters/alpha/api/v1/namespaces/default/pods/web"


class RequestKindTests(SynchronousTestCase):
    """Kinds of requests."""

    def test_kinds(self) -> None:
        """Each kind of request is known by its target and upgrade, at every port."""
        for target, upgrade, kind in (
            (POD, b"", "short"),
            (b"/api/v1/namespaces/watch/pods/proxy", b"", "short"),
            (b"/clusters/alpha/api/v1/pods?watch=1", b"", "watch"),
            (b"/api/v1/watch/pods", b"", "watch"),
            (POD + b"/exec?command=ls", b"websocket", "exec"),
            (POD + b"/attach", b"SPDY/3.1", "exec"),
            (POD + b"/portforward", b"SPDY/3.1", "portforward"),
            (POD + b"/log", b"", "logs"),
            (POD + b"/proxy/", b"", "raw"),
            (b"/clusters/alpha/api/v1/pods?w%61tch=1", b"", "watch"),
            (b"/apis/cluster.kubesphere.io/v1alpha1/clusters?%77atch=true", b"", "watch"),
            (POD + b"/%6cog?follow=true", b"", "logs"),
            (POD + b"?fieldSelector=metadata.name%3Dx", b"", "short"),
            (b"/clusters/alpha/debug/pprof/profile?seconds=90", b"", "raw"),
            (b"/debug/pprof/trace", b"", "raw"),
            (b"/clusters/alpha/%64ebug/pprof/heap", b"", "raw"),
            (b"/clusters/alpha/debug/pprof", b"", "short"),
            (b"/clusters/alpha/targets/web/debug/pprof/", b"", "short"),
            (b"/clusters/alpha/targets/web/watch", b"", "short"),
            (b"/clusters/alpha/targets/web/", b"websocket", "raw"),
        ):
            self.assertEqual(request_kind(b"GET", target, upgrade), kind, target)

    def test_long_running(self) -> None:
        """Verb, subresource and profiles make a request long-running as in kube-apiserver; targets do not."""
        for method, target, expected in (
            (b"GET", POD, False),
            (b"GET", POD + b"/log", True),
            (b"POST", POD + b"/exec", True),
            (b"GET", b"/api/v1/pods?watch=1", True),
            (b"POST", b"/api/v1/pods?watch=1", False),
            (b"GET", POD + b"/%70roxy/", True),
            (b"GET", b"/clusters/alpha/debug/pprof/profile?seconds=90", True),
            (b"GET", b"/debug/flags/v", False),
            (b"GET", b"/clusters/alpha/targets/web/api/v1/watch/pods", False),
        ):
            self.assertEqual(is_long_running(method, target), expected, target)

    def test_long(self) -> None:
        """Long targets of clients are not kept in memory."""
        _kind.cache_clear()
        for target, kept in ((b"/x?watch=" + b"1" * 1000, 0), (b"/x?watch=1", 1)):
            request_kind(b"GET", target, b"")
            self.assertEqual(_kind.cache_info().currsize, kept)
