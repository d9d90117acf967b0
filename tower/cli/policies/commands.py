"""Commands about access policies."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tower.cli import output
from tower.cli.client import GROUP_PATH, CommandFailed, TowerClient, UsageFailed
from tower.cli.listing import listed_or_watched, selection
from tower.escaping import escaped


def list_policies(client: TowerClient, options: argparse.Namespace) -> str:
    """List the policies."""
    return listed_or_watched(
        partial(client.call, "GET", f"{GROUP_PATH}/accesspolicies"),
        selection(options),
        options,
        "no access policy matches the selector"
        if options.selector
        else "there are no access policies: users need a kubeconfig of 'tower kubeconfig' to enter a cluster",
    )


def explain(client: TowerClient, options: argparse.Namespace) -> str:
    """Explain whether policies, or issued credentials, let a user enter a cluster.

    :raise CommandFailed: they do not; the text has the reason.
    """
    body = {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "AccessReview",
        "spec": _question(options),
    }
    answer = client.call("POST", f"{GROUP_PATH}/accessreviews", body)
    status = answer["status"]
    refusal = "" if status["allowed"] else f"{status['reason']}{_namespace_hint(options, status)}"
    if options.output != "text":
        text = output.structured(answer, options.output)
        if not refusal:
            return text
        print(text, flush=True)
        raise CommandFailed(refusal)
    others = [*map(_described, status["concerned"]), *map(_credential, status["credentials"])]
    if refusal:
        raise CommandFailed(f"{refusal} ({'; '.join(others)})" if others else refusal)
    if status["policies"]:
        way = f"access policy {', '.join(status['policies'])}"
    else:
        (name, *_) = (each["name"] for each in status["credentials"] if each["allowed"])
        way = f"credential {name}, without an access policy"
    lines = [
        f"{options.user} enters cluster {options.name} by {way}",
        f"  user in the cluster:   {status['user']}",
        f"  groups in the cluster: {', '.join(status['groups']) or '<none>'}",
    ]
    if "until" in status:
        lines.append(f"  until:                 {status['until']}")
    lines += [f"  {each}" for each in others]
    return "\n".join(map(escaped, lines))


def _namespace_hint(options: argparse.Namespace, status: dict[str, Any]) -> str:
    """Return a hint to set --namespace, or an empty string."""
    if not options.resource or options.namespace or not (status["concerned"] or status["credentials"]):
        return ""
    return "; checked for all namespaces; to check one, add --namespace NAME"


def _credential(credential: dict[str, Any]) -> str:
    """Return a credential that Tower issued, in words."""
    text = f"credential {credential['name']}: kubeconfig of Tower"
    if credential["groups"]:
        text += f", groups {', '.join(credential['groups'])}"
    text += f", expires {credential['expirationTimestamp']}"
    return f"{text}, rejected: {credential['reason']}" if "reason" in credential else text


def _question(options: argparse.Namespace) -> dict[str, Any]:
    asked = (options.resource, options.namespace, options.object_name, options.path)
    if options.verb is None and any(asked):
        raise UsageFailed("--resource, --namespace, --name and --path require --verb, such as --verb get")
    if options.verb is not None and not (options.resource or options.path):
        raise UsageFailed("--verb requires --resource or --path, such as --resource pods")
    if options.object_name and not options.resource:
        raise UsageFailed("--name requires --resource, such as --resource pods")
    if options.resource and options.path:
        raise UsageFailed("--resource and --path are mutually exclusive")
    claims: dict[str, list[str]] = {}
    for claim in options.claim:
        key, equals, value = claim.partition("=")
        if not (key and equals):
            raise UsageFailed(f"--claim {claim!r}: must be KEY=VALUE")
        claims.setdefault(key, []).append(value)
    resource, _, subresource = (options.resource or "").partition("/")
    resource, _, group = resource.partition(".")
    spec = {
        "user": options.user,
        "groups": options.group,
        "claims": claims,
        "cluster": options.name,
        "target": options.target,
        "verb": options.verb,
        "group": group,
        "resource": f"{resource}/{subresource}" if subresource else resource,
        "namespace": options.namespace,
        "name": options.object_name,
        "path": options.path,
    }
    return {key: value for key, value in spec.items() if value}


def _described(policy: dict[str, Any]) -> str:
    """Return one policy in words."""
    text = f"access policy {policy['name']}: {policy['access']} access to {', '.join(policy['targets'])}"
    if "timeWindow" in policy:
        text += f", {policy['timeWindow']} ({'open' if policy['open'] else 'closed'} now)"
    if "ttl" in policy:
        text += f", for {policy['ttl']} at a time"
    return text
