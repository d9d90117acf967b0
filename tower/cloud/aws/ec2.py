"""The instances of EC2, asked for page by page."""

from __future__ import annotations

from collections.abc import Sequence

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.config import Filter
from tower.cloud.aws.instances import EC2Instance, read_instances
from tower.cloud.errors import AnswerTooLarge, CloudError, InstanceNotFound

#: Version of the API.
VERSION = "2016-11-15"

#: Instances in one page; EC2 takes 5 to 1000.  A page is read in one go, so it should not be too large.
PAGE = 200
SMALLEST_PAGE = 5

#: Most instances of one listing.
LIMIT = 100_000

_GONE = frozenset(("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"))


class EC2:
    """EC2 in one region.

    A page with as many instances as usual can be too large: where pods have addresses of the network's, EC2
    tells of each, and there may be 750 on an instance.  Then smaller pages are asked for, from there on.
    """

    def __init__(self, api: AWSAPI) -> None:
        self._api = api
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
            root = await self._api.query(VERSION, "DescribeInstances", {"InstanceId.1": instance_id})
        except AWSError as e:
            if e.code in _GONE:
                raise InstanceNotFound from None
            raise
        for instance in read_instances(root)[0]:
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
            more, token = read_instances(await self._api.query(VERSION, "DescribeInstances", parameters))
            found += more
            if not token:
                return found
            parameters["NextToken"] = token
        raise CloudError(f"ec2 DescribeInstances: more than {LIMIT // page} pages")
