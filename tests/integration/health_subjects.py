"""Clusters of each kind with a credential and a CA that tests can break."""

from __future__ import annotations

import base64
import http.client
import json
import shlex
from pathlib import Path
from typing import Final, Protocol

from tests.fakes.chains import family, pem
from tests.integration.harness import Tower
from tests.integration.member import Access, Member
from tests.integration.node_fleet_kit import NodeFleet
from tests.integration.old_peers import OldAgent
from tests.integration.programs import LOOPBACK, Program

API = "cluster.kubesphere.io/v1alpha1"
CLUSTERS = f"/apis/{API}/clusters"
PAGE_PATIENCE = 30.0  # s

OURS: Final = "Tower agent"
OLD: Final = "old agent"
NODES: Final = "SSH cluster"
KINDS = (OURS, OLD, NODES)


def add(tower: Tower, cluster: str) -> None:
    """Add a cluster with agents; faster than `tower cluster add`."""
    body = {"apiVersion": API, "kind": "Cluster", "metadata": {"name": cluster}, "spec": {}}
    headers = {"Content-Type": "application/json"}
    answer = tower.admin().request("POST", CLUSTERS, body=json.dumps(body).encode(), headers=headers)
    assert answer.status == 201, answer


class Credential:
    """A kubeconfig, and files with its token and its CA.

    :param folder: for the files.
    :param access: the right token.
    :param server: ``host:port`` in the kubeconfig, instead of the API server's.
    """

    def __init__(
        self, folder: Path, name: str, member: Member, access: Access, server: str | None = None
    ) -> None:
        self.kubeconfig = folder / f"{name}.kubeconfig"
        self.token = folder / f"{name}.token"
        self.authority = folder / f"{name}.ca"
        self._access, self._authority = access, member.ca.read_bytes()
        self.server = server or member.service
        self.write()

    def write(self, *, token: str = "", authority: bytes = b"") -> None:
        """Write the files, with another token or CA, or with the right ones."""
        token, authority = token or self._access.token, authority or self._authority
        config = json.loads(self._access.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = token
        config["clusters"][0]["cluster"]["server"] = f"https://{self.server}"
        config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
        contents = ((self.kubeconfig, json.dumps(config).encode()), (self.token, token.encode()))
        for path, content in (*contents, (self.authority, authority)):
            new = path.with_name(path.name + ".new")
            new.touch(0o600)
            new.write_bytes(content)
            new.replace(path)


class Subject(Protocol):
    """A cluster of one kind.

    :ivar name: of the cluster.
    :ivar agent_version: in lists; a regular expression.
    """

    kind: str
    name: str
    credential: Credential
    agent_version: str

    def start(self) -> None:
        """Add the cluster, and start its agent."""
        raise NotImplementedError

    def apply(self) -> None:
        """Use the changed files of the credential."""
        raise NotImplementedError


class OurAgent:
    """See `Subject`: it follows its files."""

    kind = OURS
    agent_version = r"[0-9]+\.[0-9]+\..+"

    def __init__(self, tower: Tower, name: str, credential: Credential) -> None:
        self.tower, self.name, self.credential = tower, name, credential

    def start(self) -> None:
        """Add the cluster, and start its agent."""
        add(self.tower, self.name)
        self.agent = self.tower.agent(self.name, self.credential.kubeconfig)
        self.agent.program.start()

    def apply(self) -> None:
        """Do nothing."""

    @property
    def program(self) -> Program:
        """The agent."""
        return self.agent.program

    def page(self, path: str = "/readyz") -> tuple[int, str]:
        """Return status and text of the health page; 0 if there is none."""
        connection = http.client.HTTPConnection(LOOPBACK, self.agent.health_port, timeout=PAGE_PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


class OldAgentCluster:
    """See `Subject`: the agent reads its files when it starts."""

    kind = OLD
    agent_version = r"0\.0\.0-rc"

    def __init__(self, tower: Tower, name: str, credential: Credential) -> None:
        self.tower, self.name, self.credential = tower, name, credential
        self._program: Program | None = None

    def start(self) -> None:
        """Add the cluster, and start its agent."""
        add(self.tower, self.name)
        words = shlex.split(self.tower.tower("join", self.name, "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        self._program = OldAgent(
            self.tower.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            self.credential.server,
            ca=self.credential.authority,
            bearer=self.credential.token,
        ).program
        self._program.start()

    def stop(self) -> None:
        """End the agent if it runs."""
        if self._program is not None:
            self._program.stop()

    def apply(self) -> None:
        """Restart the agent, as its cure demands."""
        assert self._program is not None
        self._program.stop()
        self._program.start()


class NodeCluster:
    """See `Subject`: the proxy keeps the credential."""

    kind = NODES
    agent_version = "(<none>)?"

    def __init__(self, tower: Tower, name: str, credential: Credential, fleet: NodeFleet) -> None:
        self.tower, self.name, self.credential = tower, name, credential
        self._fleet = fleet

    def start(self) -> None:
        """Add the cluster."""
        self._fleet.add_to(self.tower, self.credential.kubeconfig, cluster=self.name)

    def apply(self) -> None:
        """Give the proxy the kubeconfig."""
        self.tower.tower("cluster", "set", self.name, "--member-kubeconfig", str(self.credential.kubeconfig))


def subjects(
    tower: Tower, fleet: NodeFleet, group: str, member: Member, access: Access
) -> tuple[OurAgent, OldAgentCluster, NodeCluster]:
    """Return a cluster of each kind, not started, in which requests have the rights of *access*.

    :param fleet: nodes that reach the API server.
    :param group: end of the clusters' names.
    """

    def credential(name: str) -> Credential:
        return Credential(tower.folder, name, member, access)

    ours, old, nodes = (f"{kind}-{group}" for kind in ("ours", "old", "nodes"))
    return (
        OurAgent(tower, ours, credential(ours)),
        OldAgentCluster(tower, old, credential(old)),
        NodeCluster(tower, nodes, credential(nodes), fleet),
    )


def other_authority() -> bytes:
    """Return a CA that no API server has."""
    return pem(family()[0][0])
