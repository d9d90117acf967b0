"""A proxy's access to its host cluster."""

from __future__ import annotations

from attrs import field, frozen

from tower.clusters.host.host_statuses import HostStatuses
from tower.controller.objects.service_objects import HostSettings
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.host_link import HostLink


@frozen
class HostAccess:
    """The API of the host cluster, and the settings of the controller.

    :ivar statuses: those of the store there.
    :ivar link: of *api*, with its metrics; None: there are none.
    """

    api: HostAPI
    settings: HostSettings = field(factory=HostSettings)
    statuses: HostStatuses = field(factory=HostStatuses)
    link: HostLink | None = None
