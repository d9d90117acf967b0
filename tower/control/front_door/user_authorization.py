"""Modes of authorization that options of the proxy configure, and what they follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.application.service import MultiService, Service

from tower.clusters.credentials import ADMINS
from tower.control.front_door.authorization_options import ABAC, ALWAYS_ALLOW, RBAC, WEBHOOK
from tower.errors import ConfigurationError
from tower.kube.access.rbac import ALL_RIGHTS, Rule
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.reflector_group import ReflectorGroup
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.webhook_client import WebhookClient
from tower.options.followed_file import FollowedFile
from tower.reactor.closing import Closing
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.abac_file import AbacFile
from tower.web.access.authorization.decision import Authorizer
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.access.authorization.impersonation import Impersonation
from tower.web.access.authorization.mode_filter import PERIOD, ModeAuthorization
from tower.web.access.authorization.own_rbac import OwnRbac
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.access.authorization.rbac_follower import BINDING_TYPES, ROLE_TYPES, RbacFollower
from tower.web.access.authorization.union import AlwaysAllow, AlwaysDeny, AuthorizerUnion, PrivilegedGroups
from tower.web.access.authorization.webhook import CacheTimes, WebhookAuthorizer

#: Interval of checks of the policy file, s.
FILE_PERIOD = 1.0

#: Shortest interval of questions to the webhook about watches and commands in progress, s.
SHORTEST_AGAIN = 10.0


class UserAuthorization(MultiService):
    """The modes in their order, and the services that they need.

    :param rbac: the roles and bindings of Tower's own API.
    :ivar rules: the filter for clusters; None: the first mode allows all requests, so there is nothing to
        decide.
    :ivar own_rules: the filter for Tower's own API.
    :ivar files: those that the modes follow.
    :ivar impersonation: decides whether a user may act as another one.
    :raise ConfigurationError: a file cannot be used; names option and file.
    """

    def __init__(
        self, options: Mapping[str, Any], reactor: IReactor, reloads: Reloads, rbac: OwnRbac
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        modes = options["authorization-mode"]
        self.rights = OwnRights(rbac)
        self._own = own = DecisionCache(self.rights)
        rbac.on_change.append(own.clear)
        self.own_rules = ModeAuthorization(own, "", reactor)
        self.impersonation = Impersonation(own, own, lambda: own.generation)
        self._add(periodic(reactor, PERIOD, self._sweep_impersonation))
        self._add(periodic(reactor, PERIOD, self.own_rules.sweep))
        self.files: Sequence[FollowedFile[Any]] = ()
        self.rules: ModeAuthorization | None = None
        if modes[0] == ALWAYS_ALLOW:
            return
        self._options, self._reactor, self._reloads, self._rbac_of_tower = options, reactor, reloads, rbac
        union = AuthorizerUnion()
        self._cache = cache = DecisionCache(union)
        authorizers = [self._mode(mode) for mode in modes]
        union.use(PrivilegedGroups(), *authorizers)
        # to allow all requests does not mean that all users may act as others
        deciding = [each for each in authorizers if not isinstance(each, AlwaysAllow)]
        self.impersonation = Impersonation(
            own, AuthorizerUnion(own, *deciding), lambda: own.generation + cache.generation
        )
        self.rules = ModeAuthorization(cache, ",".join(modes), reactor, partial(_rules_for, authorizers))
        self._add(periodic(reactor, PERIOD, self.rules.sweep))
        if WEBHOOK in modes:
            kept = options["authorization-webhook-cache-authorized-ttl"]
            for ask_again in (self.rules.ask_again, self.impersonation.ask_again):
                self._add(periodic(reactor, max(kept, SHORTEST_AGAIN), ask_again))

    def _sweep_impersonation(self) -> None:
        self.impersonation.sweep()

    def _mode(self, mode: str) -> Authorizer:
        make: dict[str, Callable[[], Authorizer]] = {
            ABAC: self._abac,
            RBAC: self._rbac,
            WEBHOOK: self._webhook,
            ALWAYS_ALLOW: AlwaysAllow,
        }
        return make.get(mode, AlwaysDeny)()

    def _abac(self) -> Authorizer:
        abac = AbacFile(self._options["authorization-policy-file"], self._cache.clear)
        self.files = (abac.file,)
        self._reloads.add(abac.file.option, abac.file.reload)
        self._add(periodic(self._reactor, FILE_PERIOD, abac.file.check))
        return abac

    def _rbac(self) -> Authorizer:
        if self._options["authorization-kubeconfig"] is None:
            self._rbac_of_tower.on_change.append(self._cache.clear)
            return self._rbac_of_tower
        follower = RbacFollower(self._cache.clear)
        config = self._config("authorization-kubeconfig")
        self._add(_Following(follower, RestClient(self._reactor, config), self._reactor))
        return follower

    def _webhook(self) -> Authorizer:
        options = self._options
        times = CacheTimes(
            options["authorization-webhook-cache-authorized-ttl"],
            options["authorization-webhook-cache-unauthorized-ttl"],
        )
        client = WebhookClient(self._reactor, self._config("authorization-webhook-config-file"))
        self._add(Closing(client.close))
        version = options["authorization-webhook-version"]
        return WebhookAuthorizer(client, version, times, self._reactor.seconds)

    def _config(self, option: str) -> RestConfig:
        try:
            return RestConfig.from_kubeconfig(self._options[option], self._reactor)
        except ConfigurationError as e:
            raise ConfigurationError(f"--{option}: {e}") from e

    def _add(self, service: Service) -> None:
        service.setServiceParent(self)


def _rules_for(
    authorizers: Iterable[Authorizer], user: UserInfo, namespace: str, cluster: str
) -> tuple[list[Rule], list[str]]:
    """Return the rules of a user in a namespace of a cluster, and why some are not known."""
    if ADMINS in user.groups:
        return list(ALL_RIGHTS), []
    rules: list[Rule] = []
    errors: list[str] = []
    for each in authorizers:
        if isinstance(each, AlwaysAllow):
            rules += ALL_RIGHTS
        elif isinstance(each, OwnRbac | RbacFollower):
            found, problems = each.index.rules_for(user, namespace, cluster)
            rules += found
            errors += problems
        elif not isinstance(each, AlwaysDeny):
            mode = WEBHOOK.lower() if isinstance(each, WebhookAuthorizer) else ABAC
            errors.append(f"{mode} authorizer does not support user rule resolution")
    return rules, errors


class _Following(Service):
    """Follows the roles and bindings of one cluster."""

    def __init__(self, follower: RbacFollower, api: RestClient, reactor: IReactor) -> None:
        self._api = api
        group = ReflectorGroup(reactor)
        made = partial(Reflector, api, namespace=None, reactor=reactor, group=group)
        roles = zip(ROLE_TYPES, follower.roles, strict=True)
        bindings = zip(BINDING_TYPES, follower.bindings, strict=True)
        self._reflectors = [
            *(made(resource=resource, follower=each) for resource, each in roles),
            *(made(resource=resource, follower=each) for resource, each in bindings),
        ]

    def startService(self) -> None:
        """Start."""
        super().startService()  # type: ignore[no-untyped-call]
        for each in self._reflectors:
            each.start()

    def stopService(self) -> None:
        """Stop, and close the connections."""
        super().stopService()  # type: ignore[no-untyped-call]
        for each in self._reflectors:
            each.stop()
        self._api.close()
