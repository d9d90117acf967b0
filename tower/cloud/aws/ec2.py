"""The instances of EC2, asked for page by page."""

from __future__ import annotations

from collections.abc import Sequence

from tower.cloud.aws.api import AWSAPI, AWSError
from tower.cloud.aws.config import Filter
from tower.cloud.aws.instances import EC2Instance, read_instances
from tower.cloud.errors import CloudError, InstanceNotFound

#: Version of the API.
VERSION = "2016-11-15"

#: Instances in one page; EC2 takes 5 to 1000.
PAGE = 500

#: Most pages of one listing.
PAGE_LIMIT = 200

_GONE = frozenset(("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"))


async def describe_instances(ec2: AWSAPI, filters: Sequence[Filter]) -> list[EC2Instance]:
    """Return all instances that pass all *filters*.

    :raise CloudError: EC2 refused, or did not come to an end.
    """
    parameters = {"MaxResults": str(PAGE)}
    for number, (name, values) in enumerate(filters, 1):
        parameters[f"Filter.{number}.Name"] = name
        parameters |= {f"Filter.{number}.Value.{i}": value for i, value in enumerate(values, 1)}
    found: list[EC2Instance] = []
    for _ in range(PAGE_LIMIT):
        page, token = read_instances(await ec2.query(VERSION, "DescribeInstances", parameters))
        found += page
        if not token:
            return found
        parameters["NextToken"] = token
    raise CloudError(f"ec2 DescribeInstances: more than {PAGE_LIMIT} pages")


async def describe_instance(ec2: AWSAPI, instance_id: str) -> EC2Instance:
    """Return one instance; for a while after its end too.

    :raise InstanceNotFound: there is none of that id.
    :raise CloudError: EC2 refused.
    """
    try:
        root = await ec2.query(VERSION, "DescribeInstances", {"InstanceId.1": instance_id})
    except AWSError as e:
        if e.code in _GONE:
            raise InstanceNotFound from None
        raise
    for instance in read_instances(root)[0]:
        if instance.id == instance_id:
            return instance
    raise InstanceNotFound
