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
    """Explain whether policies admit a user to a cluster.

    :raise CommandFailed: they do not; the text has the reason.
    """
    body = {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "AccessReview",
        "spec": _question(options),
    }
    answer = client.call("POST", f"{GROUP_PATH}/accessreviews", body)
    status = answer["status"]
    if options.output != "text":
        text = output.structured(answer, options.output)
        if status["allowed"]:
            return text
        print(text, flush=True)
        raise CommandFailed(status["reason"])
    if not status["allowed"]:
        others = "; ".join(_described(each) for each in status["concerned"])
        raise CommandFailed(f"{status['reason']} ({others})" if others else status["reason"])
    lines = [
        f"{options.user} enters cluster {options.name} by access policy {', '.join(status['policies'])}",
        f"  user in the cluster:   {status['user']}",
        f"  groups in the cluster: {', '.join(status['groups']) or '<none>'}",
    ]
    if "until" in status:
        lines.append(f"  until:                 {status['until']}")
    lines += [f"  {_described(each)}" for each in status["concerned"]]
    return "\n".join(map(escaped, lines))


def _question(options: argparse.Namespace) -> dict[str, Any]:
    asked = (options.resource, options.namespace, options.object_name, options.path)
    if options.verb is None and any(asked):
        raise UsageFailed("--resource, --namespace, --name and --path require --verb, such as --verb get")
    if options.object_name and not options.resource:
        raise UsageFailed("--name requires --resource, such as --resource pods")
    if options.resource and options.path:
        raise UsageFailed("--resource and --path exclude each other")
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
