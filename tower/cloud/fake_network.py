"""Routes and load balancers of the fake cloud."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, field
from zope.interface import implementer

from tower.cloud.errors import CloudError
from tower.cloud.interfaces import (
    ILoadBalancer,
    IRoutes,
    LoadBalancerStatus,
    Route,
    Zone,
    default_load_balancer_name,
)


@define(kw_only=True)
class Balancer:
    """A load balancer of the fake cloud."""

    name: str
    region: str
    load_balancer_ip: str
    ports: list[Any]
    hosts: list[str]


@implementer(IRoutes, ILoadBalancer)
@define(eq=False)
class FakeNetwork:
    """Records calls like `tower.cloud.fake.FakeCloud`.

    :param record: called first with each call's name; may raise its error.
    :param zone: returns the zone.
    :ivar external_ip: of all load balancers.
    :ivar exists: whether services have a load balancer.
    :ivar route_map: cluster and route, by name.
    :ivar updates: clusters, services and nodes of `update_load_balancer`, in order.
    """

    _record: Callable[[str], Awaitable[None]]
    _zone: Callable[[], Awaitable[Zone]]
    external_ip: str = ""
    exists: bool = False
    balancers: dict[str, Balancer] = field(factory=dict)
    route_map: dict[str, tuple[str, Route]] = field(factory=dict)
    updates: list[tuple[str, Mapping[str, Any], Sequence[str]]] = field(factory=list)

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        """See IRoutes."""
        await self._record("list-routes")
        return [route for of, route in self.route_map.values() if of == cluster]

    async def create_route(self, cluster: str, name_hint: str, route: Route) -> None:
        """See IRoutes."""
        await self._record("create-route")
        name = f"{cluster}-{route.target_node}-{route.destination_cidr}"
        if name in self.route_map:
            raise CloudError(f'route "{name}" already exists')
        self.route_map[name] = (cluster, Route(name, route.target_node, route.destination_cidr))

    async def delete_route(self, cluster: str, route: Route) -> None:
        """See IRoutes."""
        await self._record("delete-route")
        name = f"{cluster}-{route.target_node}-{route.destination_cidr}"
        if self.route_map.pop(name, None) is None:
            raise CloudError(
                f"no route found for node:{route.target_node} with DestinationCIDR== {route.destination_cidr}"
            )

    async def get_load_balancer(self, cluster: str, service: Mapping[str, Any]) -> LoadBalancerStatus | None:
        """See ILoadBalancer."""
        await self._record("")
        return LoadBalancerStatus((self.external_ip,)) if self.exists else None

    async def get_load_balancer_name(self, cluster: str, service: Mapping[str, Any]) -> str:
        """See ILoadBalancer."""
        return default_load_balancer_name(service)

    async def ensure_load_balancer(
        self, cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> LoadBalancerStatus:
        """See ILoadBalancer."""
        await self._record("create")
        name = default_load_balancer_name(service)
        spec = service.get("spec", {})
        zone = await self._zone()
        self.balancers[name] = Balancer(
            name=name,
            region=zone.region,
            load_balancer_ip=spec.get("loadBalancerIP", ""),
            ports=list(spec.get("ports", ())),
            hosts=list(nodes),
        )
        return LoadBalancerStatus((self.external_ip,))

    async def update_load_balancer(
        self, cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> None:
        """See ILoadBalancer."""
        await self._record("update")
        self.updates.append((cluster, service, nodes))

    async def ensure_load_balancer_deleted(self, cluster: str, service: Mapping[str, Any]) -> None:
        """See ILoadBalancer."""
        await self._record("delete")
        self.balancers.pop(default_load_balancer_name(service), None)
