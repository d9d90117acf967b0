"""Arguments of ``tower access``."""

from __future__ import annotations

from tower.cli.parser import Commands, Parser, add_command
from tower.cli.values import list_options, output_option
from tower.deferred import DeferredModule

run = DeferredModule("tower.cli.policies.commands")


def add_access_commands(commands: Commands[Parser]) -> None:
    """Add the commands."""
    access = add_command(commands, "access", "show access policies, and explain their decisions")
    inner = access.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = add_command(
        inner,
        "list",
        "list the access policies",
        "To change them: kubectl --kubeconfig ADMIN apply -f policy.yaml; with --dry-run=server, warnings "
        "show the effect of the policy.",
    )
    list_options(listing)
    listing.set_defaults(run=run.list_policies)
    explain = add_command(
        inner,
        "explain",
        "explain whether a user enters a cluster",
        "Names the access policies, the valid kubeconfigs of 'tower kubeconfig', which need no policy, and "
        "the user's names in the cluster.  With --verb, decides about a request.  Exit code 1: not admitted.",
    )
    explain.add_argument("user", metavar="USER", help="name of the user, as the front door authenticates it")
    explain.add_argument("name", metavar="CLUSTER", help="name of the cluster")
    explain.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="group of the user; repeatable"
    )
    explain.add_argument(
        "--claim", metavar="KEY=VALUE", action="append", default=[], help="claim of the user; repeatable"
    )
    explain.add_argument(
        "--verb",
        metavar="VERB",
        help="verb of a request, such as get or create; requires --resource or --path",
    )
    explain.add_argument(
        "--resource", metavar="RESOURCE", help="resource, such as pods, pods/exec or deployments.apps"
    )
    explain.add_argument("--namespace", metavar="NAME", help="namespace of the request (default: all)")
    explain.add_argument(
        "--name", metavar="NAME", dest="object_name", help="name of the object, for rules with resourceNames"
    )
    explain.add_argument(
        "--path", metavar="PATH", help="path of the request, in place of --resource, such as /metrics"
    )
    explain.add_argument(
        "--target", metavar="TARGET", help="target of the request (default: kubernetes, the API server)"
    )
    output_option(explain, "text", "yaml", "json")
    explain.set_defaults(run=run.explain)
