"""EC2's instances, listed page by page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.config import Filter
from tower.cloud.aws.instances import EC2Instance, instance_items, read_instance
from tower.cloud.aws.xml import parse_long_xml, parse_xml, text_of
from tower.cloud.errors import AnswerTooLarge, CloudError, InstanceNotFound
from tower.reactor.cooperate import map_cooperatively

#: Version of the API.
VERSION = "2016-11-15"

#: Instances in one page; EC2 allows 5 to 1000.
PAGE = 200
SMALLEST_PAGE = 5

#: Maximum number of instances of a list.
LIMIT = 100_000

_GONE = frozenset(("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"))

_ROOT = "DescribeInstancesResponse"

# Four fifths of EC2's data about an instance are not used here.  They are cut out before parsing: every
# element that has only text, unless its name is one of these,
_USED = (
    rb"(?:i(?:nstance(?:Id|Type)|p(?:v6)?Address)|p(?:rivate(?:DnsName|IpAddress)|ublicIp|latform)"
    rb"|d(?:nsName|eviceIndex)|n(?:ame|extToken)|availabilityZone|reservationSet)>"
)
# and these with their contents, if their start and end are near each other.
_SETS = (
    rb"tagSet|groupSet|blockDeviceMapping|(?:cpu|hibernation|metadata|enclave|privateDnsName|maintenance)Options"
    rb"|capacityReservationSpecification|iamInstanceProfile|monitoring|operator|productCodes"
)
_UNUSED = re.compile(
    rb"<(?:(?!%b)[A-Za-z0-9]+>[^<]*</[A-Za-z0-9]+>|(%b)>(?:[^<]*<(?!/\1>)){0,999}[^<]*</\1>)" % (_USED, _SETS)
)


class EC2:
    """EC2 in one region.

    A page may be too large: if pods have addresses of the VPC, EC2 lists up to 750 for an instance.  Then
    smaller pages are requested from there on.
    """

    def __init__(self, api: AWSAPI, clock: IReactorTime) -> None:
        self._api = api
        self._clock = clock
        self._page = PAGE

    async def instances(self, filters: Sequence[Filter]) -> list[EC2Instance]:
        """Return all instances that match all *filters*.

        :raise CloudError: EC2 rejects the request, or the list does not end.
        """
        while True:
            page = self._page
            try:
                return await self._list(filters, page)
            except AnswerTooLarge:
                if page == SMALLEST_PAGE:
                    raise
                self._page = min(self._page, max(SMALLEST_PAGE, page // 4))

    async def instance(self, instance_id: str) -> EC2Instance:
        """Return an instance; EC2 lists terminated ones for a while.

        :raise InstanceNotFound: there is none.
        :raise CloudError: EC2 rejects the request.
        """
        try:
            body = await self._api.query_text(VERSION, "DescribeInstances", {"InstanceId.1": instance_id})
        except AWSError as e:
            if e.code in _GONE:
                raise InstanceNotFound from None
            raise
        for instance in map(read_instance, instance_items(_checked(parse_xml(body)))):
            if instance.id == instance_id:
                return instance
        raise InstanceNotFound

    async def _list(self, filters: Sequence[Filter], page: int) -> list[EC2Instance]:
        parameters = {"MaxResults": str(page)}
        for number, (name, values) in enumerate(filters, 1):
            parameters[f"Filter.{number}.Name"] = name
            parameters |= {f"Filter.{number}.Value.{i}": value for i, value in enumerate(values, 1)}
        found: list[EC2Instance] = []
        for _ in range(LIMIT // page):
            body = await self._api.query_text(VERSION, "DescribeInstances", parameters)
            root = _checked(await parse_long_xml(self._clock, body, _UNUSED))
            found += await map_cooperatively(self._clock, instance_items(root), read_instance)
            token = text_of(root, "nextToken")
            if not token:
                return found
            parameters["NextToken"] = token
        raise CloudError(f"ec2 DescribeInstances: more than {LIMIT // page} pages")


def _checked(root: Element) -> Element:
    """Return the root if it is of DescribeInstances: another response would look like an empty list."""
    if root.tag != _ROOT or root.find("reservationSet") is None:
        raise CloudError("ec2 DescribeInstances: the response is not valid")
    return root
