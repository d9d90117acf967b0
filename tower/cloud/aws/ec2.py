"""The instances of EC2, asked for page by page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.config import Filter
from tower.cloud.aws.instances import EC2Instance, instance_items, read_instance
from tower.cloud.aws.xml import parse_long_xml, parse_xml, text_of
from tower.cloud.errors import AnswerTooLarge, CloudError, InstanceNotFound
from tower.reactor.cooperate import map_cooperatively

#: Version of the API.
VERSION = "2016-11-15"

#: Instances in one page; EC2 takes 5 to 1000.
PAGE = 200
SMALLEST_PAGE = 5

#: Most instances of one listing.
LIMIT = 100_000

_GONE = frozenset(("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"))

_ROOT = "DescribeInstancesResponse"

# Of what EC2 says of an instance four fifths are of no use here; cut out, they need not be parsed.  That is
# each element that has nothing but text, unless its name is one of these,
_USED = (
    rb"(?:i(?:nstance(?:Id|Type)|p(?:v6)?Address)|p(?:rivate(?:DnsName|IpAddress)|ublicIp|latform)"
    rb"|d(?:nsName|eviceIndex)|n(?:ame|extToken)|availabilityZone|reservationSet)>"
)
# and these with all that is in them, as far as their begin and end are near each other.
_SETS = (
    rb"tagSet|groupSet|blockDeviceMapping|(?:cpu|hibernation|metadata|enclave|privateDnsName|maintenance)Options"
    rb"|capacityReservationSpecification|iamInstanceProfile|monitoring|operator|productCodes"
)
_UNUSED = re.compile(
    rb"<(?:(?!%b)[A-Za-z0-9]+>[^<]*</[A-Za-z0-9]+>|(%b)>(?:[^<]*<(?!/\1>)){0,999}[^<]*</\1>)" % (_USED, _SETS)
)


class EC2:
    """EC2 in one region.

    :param clock: an ``IReactorTime``.

    A page with as many instances as usual can be too large: where pods have addresses of the network's, EC2
    tells of each, and there may be 750 on an instance.  Then smaller pages are asked for, from there on.
    """

    def __init__(self, api: AWSAPI, clock: Any) -> None:
        self._api = api
        self._clock = clock
        self._page = PAGE

    async def instances(self, filters: Sequence[Filter]) -> list[EC2Instance]:
        """Return all instances that pass all *filters*.

        :raise CloudError: EC2 refused, or did not come to an end.
        """
        while True:
            page = self._page
            try:
                return await self._all(filters, page)
            except AnswerTooLarge:
                if page == SMALLEST_PAGE:
                    raise
                self._page = min(self._page, max(SMALLEST_PAGE, page // 4))

    async def instance(self, instance_id: str) -> EC2Instance:
        """Return one instance; for a while after its end too.

        :raise InstanceNotFound: there is none of that id.
        :raise CloudError: EC2 refused.
        """
        try:
            said = await self._api.query_text(VERSION, "DescribeInstances", {"InstanceId.1": instance_id})
        except AWSError as e:
            if e.code in _GONE:
                raise InstanceNotFound from None
            raise
        for instance in map(read_instance, instance_items(_checked(parse_xml(said)))):
            if instance.id == instance_id:
                return instance
        raise InstanceNotFound

    async def _all(self, filters: Sequence[Filter], page: int) -> list[EC2Instance]:
        parameters = {"MaxResults": str(page)}
        for number, (name, values) in enumerate(filters, 1):
            parameters[f"Filter.{number}.Name"] = name
            parameters |= {f"Filter.{number}.Value.{i}": value for i, value in enumerate(values, 1)}
        found: list[EC2Instance] = []
        for _ in range(LIMIT // page):
            said = await self._api.query_text(VERSION, "DescribeInstances", parameters)
            root = _checked(await parse_long_xml(self._clock, said, _UNUSED))
            found += await map_cooperatively(self._clock, instance_items(root), read_instance)
            token = text_of(root, "nextToken")
            if not token:
                return found
            parameters["NextToken"] = token
        raise CloudError(f"ec2 DescribeInstances: more than {LIMIT // page} pages")


def _checked(root: Element) -> Element:
    """Return the root of an answer that is one: any other looks like one without instances."""
    if root.tag != _ROOT or root.find("reservationSet") is None:
        raise CloudError("ec2 DescribeInstances: the answer is none")
    return root
