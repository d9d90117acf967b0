"""The manifest of Tower's agent."""

from __future__ import annotations

from typing import Any

from tower.member.manifest.rights import KEY_SECRET, rights
from tower.member.manifest.settings import AgentSettings, Joining
from tower.member.manifest.text import manifest_text
from tower.member.manifest.workload import TOKEN_SECRET, workload

_HEAD = f"""\
# Agent of Tower for cluster {{name}}.  Keep it secret: it contains a join token.
#
#   kubectl apply -f THIS-FILE                      # to remove all of it: kubectl delete -f THIS-FILE
#   kubectl -n {{namespace}} rollout status deployment tower-agent
#
# The replicas share one key, which the first of them stores in Secret {KEY_SECRET}.  When it is enrolled,
# the token in Secret {TOKEN_SECRET} is used up, and nothing needs it.
"""


def agent_objects(joining: Joining, settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are applied."""
    return [*rights(settings), *workload(joining, settings)]


def agent_manifest(joining: Joining, settings: AgentSettings) -> str:
    """Return the manifest, without a final newline.  Secret."""
    head = _HEAD.format(name=joining.cluster, namespace=settings.namespace)
    return manifest_text(head, agent_objects(joining, settings))
