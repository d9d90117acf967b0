"""Tests of `tower.options.go_urls`; kube-apiserver itself: ``integration/test_bad_options.py``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.options.go_urls import url_problem


class GoURLTests(SynchronousTestCase):
    def test_urls(self) -> None:
        """These are URLs, at least for Go."""
        for text in (
            *(
                "",
                "a",
                "/a:b",
                "a:b",
                "https://a",
                "https://a:1/b?c#d",
                "https://u:p@a",
                "*",
                "//a",
                "///a:b",
            ),
            *("https://[::1]:1/", "https://[::1]", "https://a:", "https://a:70000", "https://ü/ b", "a:%zz"),
        ):
            self.assertEqual(url_problem(text), "", text)

    def test_problems(self) -> None:
        """The first problem has Go's words."""
        for text, problem in (
            (":", "missing protocol scheme"),
            ("1a:b", "first path segment in URL cannot contain colon"),
            ("a\nb", "net/url: invalid control character in URL"),
            ("https://a:x", 'invalid port ":x" after host'),
            ("https://[::1]x", 'invalid port "x" after host'),
            ("https://[::1", "missing ']' in host"),
            ("https://a b", 'invalid character " " in host name'),
            ("https://a%41", 'invalid URL escape "%41"'),
            ("https://a/%z", 'invalid URL escape "%z"'),
            ("https://a/#%", 'invalid URL escape "%"'),
            ("a:b#%", 'invalid URL escape "%"'),
            ("https://u^@a", "net/url: invalid userinfo"),
        ):
            self.assertTrue(url_problem(text).endswith(f": {problem}"), (text, url_problem(text)))
