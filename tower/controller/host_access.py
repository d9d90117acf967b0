"""A proxy's access to its host cluster."""

from __future__ import annotations

from attrs import field, frozen

from tower.clusters.host.host_statuses import HostStatuses
from tower.controller.objects.service_objects import HostSettings
from tower.kube.rest.host_api import HostAPI


@frozen
class HostAccess:
    """The API of the host cluster, and the settings of the controller.

    :ivar statuses: those of the store there.
    """

    api: HostAPI
    settings: HostSettings = field(factory=HostSettings)
    statuses: HostStatuses = field(factory=HostStatuses)
