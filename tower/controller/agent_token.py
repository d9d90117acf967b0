"""The token of a cluster's ``kubesphere-v1`` agents: imported from the host's objects, or created.

Its ID is in an annotation of the cluster's object, so that a changed token is noticed: the previous one is
revoked, which ends the tunnels of its agents.
"""

from __future__ import annotations

from attrs import frozen

from tower.clusters.v1_tokens import V1Tokens, id_of_token
from tower.errors import Invalid, NotFound


@frozen
class AgentToken:
    """The current token; `id` is not secret."""

    token: str
    id: str


async def settle_token(tokens: V1Tokens, cluster: str, given: str, known_id: str, source: str) -> AgentToken:
    """Make *given* the cluster's token; create one if it is empty, or was revoked since it was imported.

    :param given: in the host's objects; may be empty.
    :param known_id: ID of the token that was imported last; may be empty.
    :param source: field or object that has *given*, for errors.
    :raise TowerError: the token is invalid, or the store cannot be written.
    """
    token = given.strip()
    ids = {each.id for each in tokens.tokens(cluster)}
    is_revoked = bool(token) and id_of_token(token) == known_id and known_id not in ids
    if not token or is_revoked:
        token = await tokens.mint(cluster)
    elif id_of_token(token) not in ids:
        try:
            await tokens.mint(cluster, token)
        except Invalid as e:
            raise Invalid(f"{source}: {e}") from e
    settled = AgentToken(token, id_of_token(token))
    if known_id and known_id != settled.id:
        try:
            await tokens.revoke(cluster, known_id)
        except NotFound:
            pass  # it was revoked before
    return settled
