"""The tables of mistakes for kube-apiserver and Tower: their number, and the page of the differences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.differential import TABLES
from tests.integration.differential.page import PAGE, page

ROOT = Path(__file__).parent.parent

#: Least number of cases with equal answers, and the same for each subject.
LEAST = 150
LEAST_BY_SUBJECT = {
    "options": (("Options", "Options of OpenID issuers"), 60),
    "files": (("Files of certificates, keys, tokens and webhooks", "Files of OpenID issuers"), 50),
    "tokens": (
        (
            "Tokens of service accounts",
            "Authorization fields and the token file",
            "Answers of a TokenReview webhook",
        ),
        80,
    ),
    "certificates": (("Client certificates", "Front proxies"), 30),
    "impersonation": (("Impersonation", "Reviews of the own rights"), 50),
    "ABAC": (("ABAC files",), 14),
    "RBAC": (("Roles and bindings", "Granted rights"), 70),
    "audit": (("Audit policies",), 20),
}


class DifferencesTests(SynchronousTestCase):
    def test_number(self) -> None:
        """There are enough cases of each subject whose answers are equal; the tests compare the answers."""
        equal = {table.title: table.equal for table in TABLES}
        self.assertGreaterEqual(sum(equal.values()), LEAST)
        for subject, (titles, least) in LEAST_BY_SUBJECT.items():
            self.assertGreaterEqual(sum(equal[title] for title in titles), least, subject)
        named = [title for titles, _ in LEAST_BY_SUBJECT.values() for title in titles]
        self.assertEqual(sorted(named), sorted(equal))

    def test_names(self) -> None:
        """Each row of a table has its own name and its own case."""
        for table in TABLES:
            names = Counter(row.name for row in table.rows)
            self.assertEqual([name for name, count in names.items() if count > 1], [], table.title)
            cases = Counter(repr(row.case) for row in table.rows)
            self.assertEqual([case for case, count in cases.items() if count > 1], [], table.title)

    def test_page(self) -> None:
        """The page has the differences of the tables: make it with `tests.integration.differential`."""
        self.assertEqual((ROOT / PAGE).read_text(), page())
