"""Many users at once, and disconnections everywhere: no byte goes to the wrong side."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.exchanges import Client
from tests.integration.programs import wait_for

CLIENTS = 200
EXCHANGES = 10  # for each user
SEED = 20261121
AT_REST = 2.5  # s, for the other sides to close
USERS = (
    ("jane", "alpha", "token", "front-door"),
    ("joe", "alpha", "cert", "port"),
    ("jill", "beta", "token", "front-door"),
)


class CrosstalkTests(harness.TowerTestCase):
    """Two clusters and three users; two of the users share the tunnel of one cluster."""

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha", "beta")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        for cluster in ("alpha", "beta"):
            self.tower.add(cluster, self.backend.kubeconfig(cluster), self.backend.target(cluster, "raw"))
        self.users = [
            (self.tower.person(cluster, user, "--auth", auth, "--via", via), user, cluster)
            for user, cluster, auth, via in USERS
        ]
        self.programs = [self.tower.proxy, *(agent.program for agent in self.tower.agents)]

    def streams(self) -> int:
        """Return the number of streams in all tunnels."""
        total = 0
        for cluster in ("alpha", "beta"):
            path = f"/apis/cluster.kubesphere.io/v1alpha1/clusters/{cluster}/agents"
            listed = self.tower.admin().request("GET", path).body.decode()
            total += sum(map(int, re.findall(r'"streams": ?(\d+)', listed)))
        return total

    def descriptors_at_rest(self) -> list[int]:
        """Return the number of open files of each program once no stream is left."""
        self.backend.close_idle()
        wait_for("the streams to end", lambda: not self.streams())
        counted = self.descriptors()
        while (again := self.descriptors()) != counted:
            counted = again
        return counted

    def descriptors(self) -> list[int]:
        """Return how many files each program has open, after a while: a close waits for the other side."""
        time.sleep(AT_REST)
        return [program.descriptors() for program in self.programs]

    def exchange(self, each: int, clients: int, first: int = 0) -> Counter[str]:
        """Exchange bytes by many clients at once; return the number of each outcome."""

        async def everybody() -> Counter[str]:
            crowd = [
                Client(*self.users[number % len(self.users)], (first + number) * each, SEED + first + number)
                for number in range(clients)
            ]
            await asyncio.gather(*(client.run(each) for client in crowd))
            return sum((client.seen for client in crowd), Counter())

        return asyncio.run(everybody())

    def test_crosstalk(self) -> None:
        """200 at once, 2,000 exchanges, a third of them broken off: every byte arrives at the right side."""
        self.exchange(2, 12)
        before = self.descriptors_at_rest()
        seen = self.exchange(EXCHANGES, CLIENTS, first=1000)
        reported = self.backend.report()
        self.assertEqual(reported["faults"], [])
        self.assertEqual(seen.total(), CLIENTS * EXCHANGES)
        for kind in ("get", "post", "upgrade", "raw"):
            self.assertGreater(seen[kind], 50, seen)
            self.assertGreater(seen[f"{kind}, broken off"], 50, seen)
        self.descriptors_at_rest()
        for program, then in zip(self.programs, before, strict=True):
            wait_for(f"the descriptors of {program.name}", lambda: program.descriptors() <= then)  # noqa: B023
        for program in self.programs:
            self.assertNotIn("Traceback", program.output())

    def test_strays_are_noticed(self) -> None:
        """The backend notices a request as the wrong user, and bytes of another owner."""
        (jane, *_), (joe, *_), (jill, *_) = self.users
        for person, owner in ((joe, "jane@alpha/1"), (jill, "jane@alpha/2")):
            self.assertEqual(person.get(f"/marks/{owner}?size=1").status, 502)
        jane.request("POST", f"{jane.prefix}/marks/jane@alpha/3?size=1", body=b"jane@alpha/4/up")
        reported = json.dumps(self.backend.report()["faults"])
        for part in ("as joe", "came to beta as jill", "jane@alpha/3/up: b'jane@alpha/4"):
            self.assertIn(part, reported)
