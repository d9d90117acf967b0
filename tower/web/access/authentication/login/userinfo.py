"""The user of a session, as the provider's userinfo endpoint describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from tower.clusters.login.login_session import LoginSession
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authentication.login.token_endpoint import ProviderRefused
from tower.web.access.authentication.oidc.claimed_user import refreshed_user
from tower.web.access.authentication.oidc.issuer import IssuerSettings


def session_of_userinfo(
    session: LoginSession, issuer: IssuerSettings, claims: Mapping[str, Any]
) -> LoginSession:
    """Return a session with the user that *claims* of the userinfo endpoint make.

    :raise ProviderRefused: it is another user's.
    :raise Unauthorized: the user is not accepted any more.
    """
    before = UserInfo(session.user, session.groups, session.uid, session.extra)
    is_same = claims.get("sub") == session.subject
    found = refreshed_user(issuer, before, claims) if is_same else before
    if not is_same or found.name != session.user:
        raise ProviderRefused(f"the provider {session.issuer} answered with another user")
    return evolve(session, groups=found.groups, uid=found.uid)
