"""`tower.cloud.config.sections`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import logged
from tower.cloud.config.sections import Section, read_url
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError
from tower.cloud.gcfg import parse


def section(url: str) -> Section:
    """Return a section with a URL."""
    return parse(ConfigText("a.conf", f'[a]\nurl = "{url}"\n')).section("a")


class URLTests(SynchronousTestCase):
    """Validation and warnings."""

    def test_good(self) -> None:
        """URLs of services are read without a slash at their end; one that is missing is the default."""
        for url in ("https://a", "https://a:1/b", "http://[::1]:5/b", "http://localhost"):
            with logged() as lines:
                self.assertEqual(url, read_url(section(url + "/"), "url", ""))
            self.assertEqual([], lines)
        self.assertEqual("https://d", read_url(section(""), "url", "https://d/"))
        self.assertEqual("https://a/?b=c/", read_url(section("https://a/?b=c/"), "url", "", query=True))

    def test_bad(self) -> None:
        """An invalid URL, also with a user, a query or spaces, is an error that does not show it."""
        for url in (
            "a",
            "ftp://a",
            "https://",
            "https://user:hush@a",
            "https://a?hush",
            "https://a b",
            "https://a#b",
        ):
            with self.assertRaisesRegex(CloudConfigError, "^a.conf:2: url must be a URL like") as caught:
                read_url(section(url), "url", "")
            self.assertNotIn("hush", str(caught.exception))

    def test_in_the_clear(self) -> None:
        """Credentials in cleartext over a network are logged; on this machine they are allowed."""
        with logged() as lines:
            read_url(section("http://a.example:5000/x"), "url", "")
            read_url(section("http://a.example:5000/x"), "url", "", is_secret=False)
            read_url(section("http://127.0.0.1:5000/x"), "url", "")
        self.assertEqual(1, len(lines))
        self.assertIn(
            "NOT SECURE: url is not https://: credentials for a.example are sent in cleartext", lines[0]
        )
