"""Every fault of a member in every view of every kind of cluster, and every repair.

The faults are real: wrong rights, tokens and CAs; API servers that are frozen, stopped, or have another time.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.fakes.chains import issue, pem
from tests.integration import harness
from tests.integration.health_subjects import KINDS, NODES, OLD, OURS, Subject, other_authority, subjects
from tests.integration.health_views import ABSENT, VIEWS, Case, Fault, Views, everywhere
from tests.integration.member import AGENT_RIGHTS, Access, Member, Running
from tests.integration.node_fleet_kit import NodeFleet
from tests.integration.ports import free_port, free_ports
from tests.integration.process_clock import ProcessClock
from tower.trust.pki import pem_of_key

HOUR = 3600
CLUSTERS = 15

SYNCHRONIZE = '(59|60|61)m behind that of the API server"?: synchronize both machines with NTP'

RIGHTS = Fault(
    "rights deleted",
    "ImpersonationAllowed",
    "ImpersonationDenied",
    {OURS: "tower rbac agent", OLD: "tower rbac agent", NODES: "tower rbac proxy"},
    "run 'tower rbac agent [|] kubectl apply -f -' in the member cluster",
)
TOKEN = Fault(
    "wrong token",
    "MemberCredential",
    "CredentialRejected",
    {
        OURS: "renew the agent's token",
        OLD: "and restart the agent",
        NODES: "tower cluster set nodes-token --member-kubeconfig",
    },
    "kubectl -n tower-system create token",
)
AUTHORITY = Fault(
    "wrong CA",
    "APIServerReachable",
    "CertificateUntrusted",
    {
        OURS: "correct its CA or name in the agent's kubeconfig",
        OLD: "correct the CA in the agent's kubeconfig",
        NODES: "tower cluster set nodes-ca --member-kubeconfig FILE' with a kubeconfig that has the right CA",
    },
    "correct certificate-authority, .*ours-ca.kubeconfig",
)
FROZEN = Fault(
    "frozen API server",
    "APIServerReachable",
    "Timeout",
    everywhere("restart the API server if it is frozen"),
    "restart the API server if it is frozen",
)
STOPPED = Fault(
    "stopped API server",
    "APIServerReachable",
    "ConnectionRefused|Unreachable|ConnectionLost",
    everywhere("start the API server"),
    "refuses connections: start the API server",
)
CLOCK = Fault(
    "clock 1 h off",
    "APIServerReachable",
    "ClockSkew",
    everywhere(SYNCHRONIZE),
    SYNCHRONIZE,
    available=True,
)
DATES = Fault(
    "clock 1 h off, new certificate",
    "APIServerReachable",
    "CertificateNotYetValid",
    everywhere(SYNCHRONIZE),
    SYNCHRONIZE,
)
FAULTS = (RIGHTS, TOKEN, AUTHORITY, FROZEN, STOPPED, CLOCK, DATES)
DIRECTIONS = ("fault", "repair")


class ClusterHealthTests(harness.TowerTestCase):
    """Clusters of each kind; faults of different API servers and credentials occur at the same time."""

    timeout = 600

    def setUp(self) -> None:
        """Start three API servers, a node, and the clusters, a set of each kind for each fault."""
        super().setUp()
        self.fleet = NodeFleet(self.tower.node_files, 1, port=free_port())
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        folder = Path(tempfile.mkdtemp(prefix="tower-member-"))
        self.addCleanup(shutil.rmtree, folder, True)
        places = [folder / name for name in ("first", "second", "third")]
        for place in places:
            place.mkdir()
        servers = [Running(place, "--bare") for place in places]
        self.first, self.second, self.third = servers
        threads = ThreadPoolExecutor(len(servers))  # the servers end with their threads
        self.addCleanup(threads.shutdown)
        for server in servers:
            self.addCleanup(server.halt)
        list(threads.map(Running.start, servers))
        member = self.first.member
        self.groups = {
            RIGHTS: self.new_clusters("rights", member, member.least),
            TOKEN: self.new_clusters("token", member, member.cluster_admin),
            AUTHORITY: self.new_clusters("ca", member, member.cluster_admin),
            FROZEN: self.new_clusters("frozen", self.second.member, self.second.member.least),
            CLOCK: self.new_clusters("clock", self.third.member, self.third.member.least),
        }
        self.groups[STOPPED], self.groups[DATES] = self.groups[FROZEN], self.groups[CLOCK]

    def new_tower(self) -> harness.Tower:
        """Return a Tower with ports for all clusters."""
        tower = super().new_tower()
        tower.cluster_ports = free_ports(CLUSTERS)
        tower.proxy = tower.proxy_program()
        return tower

    def new_clusters(self, group: str, member: Member, access: Access) -> Sequence[Subject]:
        """Return a cluster of each kind, not started."""
        found = subjects(self.tower, self.fleet, group, member, access)
        self.addCleanup(found[1].stop)
        return found

    def cases(self, *faults: Fault) -> list[Case]:
        """Return the clusters that have these faults."""
        return [Case(fault, subject) for fault in faults for subject in self.groups[fault]]

    def test_matrix(self) -> None:
        """Every view of every kind of cluster shows every fault in time with its cure, and every repair."""
        views = Views(self.tower)
        faults = RIGHTS, TOKEN, AUTHORITY, FROZEN, CLOCK
        clock = ProcessClock(self.third.member.info["pids"]["kube-apiserver"])
        cases = self.cases(*faults)
        self.start_clusters()
        views.wait("the first checks", cases)
        views.checked.clear()
        views.change("the faults", cases, partial(self.break_many, clock), broken=True)
        views.change("the repairs", cases, partial(self.repair_many, clock), broken=False)
        cases = self.cases(STOPPED, DATES)
        views.change("the end and the dates", cases, partial(self.break_servers, clock), broken=True)
        views.change("the start and the dates", cases, partial(self.repair_servers, clock), broken=False)
        wanted = {
            (fault.name, kind, view, direction)
            for fault, kind, view, direction in product(FAULTS, KINDS, VIEWS, DIRECTIONS)
            if (kind, view) not in ABSENT
        }
        self.assertEqual(views.checked, wanted)

    def start_clusters(self) -> None:
        """Add all clusters and start their agents."""
        for fault in (RIGHTS, TOKEN, AUTHORITY, FROZEN, CLOCK):
            for subject in self.groups[fault]:
                subject.start()

    def use(self, fault: Fault, *, token: str = "", authority: bytes = b"") -> None:
        """Give clusters another credential, or the right one."""
        for subject in self.groups[fault]:
            subject.credential.write(token=token, authority=authority)
            subject.apply()

    def break_many(self, clock: ProcessClock) -> None:
        """Make all faults that an API server survives."""
        os.kill(self.second.member.info["pids"]["kube-apiserver"], signal.SIGSTOP)
        clock.set(HOUR)
        self.first.member.kubectl("delete", "clusterrolebinding", "tower-agent")
        self.use(TOKEN, token="wrong")
        self.use(AUTHORITY, authority=other_authority())

    def repair_many(self, clock: ProcessClock) -> None:
        """Repair them."""
        os.kill(self.second.member.info["pids"]["kube-apiserver"], signal.SIGCONT)
        clock.set(0)
        self.first.member.kubectl("apply", "-f", str(AGENT_RIGHTS))
        self.use(TOKEN)
        self.use(AUTHORITY)

    def break_servers(self, clock: ProcessClock) -> None:
        """End an API server; let another use a certificate that is valid by its own clock only."""
        self.second.halt()
        clock.set(HOUR)
        self.certify(begin=HOUR / 2)

    def repair_servers(self, clock: ProcessClock) -> None:
        """Start the API server, and repair the clock; the certificate was good with the right clock."""
        self.second.resume()
        clock.set(0)
        self.certify(begin=-HOUR)

    def certify(self, begin: float) -> None:
        """Let the third API server use a new certificate.

        :param begin: of its validity, s from now.
        """
        folder = self.third.member.place / "pki"
        authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        certificate, own = issue("kube-apiserver", (authority, key), begin=begin)
        for path, content in (
            ("kube-apiserver.key", pem_of_key(own)),
            ("kube-apiserver.crt", pem(certificate)),
        ):
            new = folder / f"{path}.new"
            new.write_bytes(content)
            new.replace(folder / path)
