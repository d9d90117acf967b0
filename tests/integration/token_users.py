"""Clients of the front door that send tokens which Tower did not issue."""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from tests.integration.harness import Tower
from tests.integration.person import Person

#: Access policies in Tower's API.
POLICIES = "/apis/cluster.kubesphere.io/v1alpha1/accesspolicies"

#: A path of a cluster, and one of Tower's own API.
PODS = "/clusters/alpha/api/v1/pods"
CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"


def anybody(tower: Tower) -> Person:
    """Return a client of the front door without a credential."""
    person = tower.admin()
    (config,) = [yaml.safe_load(person.kubeconfig.read_text())]
    config["users"][0]["user"] = {}
    path = tower.folder / "anybody.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Person(path)


def message(person: Person, path: str, token: str) -> tuple[int, str, str]:
    """Return status, reason and message of an answer."""
    answer = person.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    value = json.loads(answer.body)
    return answer.status, value.get("reason", ""), value.get("message", "")


def is_authenticated(person: Person, path: str, token: str) -> bool:
    """Return whether a token is accepted; no user of these tests has a right."""
    return message(person, path, token)[0] == 403


def allow(tower: Tower, name: str, subject: Mapping[str, str], *clusters: str) -> None:
    """Add a policy for one subject."""
    spec = {"subjects": [subject], "clusters": {"names": list(clusters)}, "targets": ["*"]}
    value = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "AccessPolicy", "spec": spec}
    body = json.dumps({**value, "metadata": {"name": name}}).encode()
    answer = tower.admin().request("POST", POLICIES, body=body, headers={"Content-Type": "application/json"})
    if answer.status != 201:
        raise AssertionError(answer.body)
