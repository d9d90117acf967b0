"""Configuration of the provider aws, and its errors."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.cloud.aws.api import Endpoint
from tower.cloud.aws.config import AWSConfig, read_aws_config
from tower.cloud.aws.metadata import ADDRESS
from tower.cloud.aws.signing import Scope
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError
from tower.cloud.gcfg import parse

OVERRIDE = """\
[ServiceOverride "1"]
Service = ec2
Region = us-west-2
URL = https://ec2.foo.bar
SigningRegion = us-west-2
SigningMethod = v4
SigningName = ec2-custom
"""


def read(text: str) -> AWSConfig:
    """Read a configuration."""
    return read_aws_config(parse(ConfigText("aws.conf", text)))


class ConfigTest(SynchronousTestCase):
    """Configurations."""

    def test_all(self) -> None:
        """Every key that means something is read, in any case of letters."""
        found = read(
            "[Global]\nzone = us-east-1a\nKubernetesClusterTag = old\n"
            "kubernetesclusterid = new\nVPC = vpc-1\n"
            "SubnetID = subnet-1\nRoleARN = arn:aws:iam::1:role/r\nRegion = us-east-1\nProfile = p\n"
            "SharedCredentialsFile = /f\nMetadataURL = http://127.0.0.1:1/\nRouteTableID = rtb-1\n"
            "InstanceFilter = tag:role=node,edge\nInstanceFilter = instance-type=m5.large\n"
        )
        self.assertEqual(
            found,
            AWSConfig(
                *("us-east-1", "us-east-1a", "old", "new", "vpc-1", "subnet-1", "arn:aws:iam::1:role/r"),
                (("tag:role", ("node", "edge")), ("instance-type", ("m5.large",))),
                *("p", "/f", "http://127.0.0.1:1"),
            ),
        )

    def test_endpoints(self) -> None:
        """Services have their default URLs, or those of overrides for their region."""
        found = read(OVERRIDE)
        self.assertEqual(
            found.endpoint("ec2", "us-west-2"),
            Endpoint("https://ec2.foo.bar/", Scope("us-west-2", "ec2-custom")),
        )
        for service, region, url in (
            ("ec2", "us-east-1", "https://ec2.us-east-1.amazonaws.com/"),
            ("ec2-instance-connect", "us-west-2", "https://ec2-instance-connect.us-west-2.amazonaws.com/"),
            ("sts", "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn/"),
            ("ec2", "eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu/"),
            ("ec2", "us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com/"),
            ("ec2", "us-iso-east-1", "https://ec2.us-iso-east-1.c2s.ic.gov/"),
            ("ec2", "us-isob-east-1", "https://ec2.us-isob-east-1.sc2s.sgov.gov/"),
            ("ec2", "eu-isoe-west-1", "https://ec2.eu-isoe-west-1.cloud.adc-e.uk/"),
        ):
            self.assertEqual(found.endpoint(service, region), Endpoint(url, Scope(region, service)))

    def test_surroundings(self) -> None:
        """Region and metadata service default to the environment's."""
        self.assertEqual(read("").region_in({}), "")
        self.assertEqual(read("").region_in({"AWS_REGION": "a-b-1", "AWS_DEFAULT_REGION": "c"}), "a-b-1")
        self.assertEqual(
            read("[global]\nZone = us-gov-west-1a").region_in({"AWS_REGION": "x"}), "us-gov-west-1"
        )
        self.assertEqual(read("").metadata_in({}), ADDRESS)
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://[fd00:ec2::254]/"}
        self.assertEqual(read("").metadata_in(environ), "http://[fd00:ec2::254]")
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6"}
        self.assertEqual(read("").metadata_in(environ), "http://[fd00:ec2::254]")
        self.assertEqual(read("").metadata_in({"AWS_EC2_METADATA_DISABLED": "True"}), "")

    def test_wrong(self) -> None:
        """Errors have file and line; those of overrides are upstream's."""
        for text, wanted in {
            "[global]\nZone = here": "aws.conf:2: invalid AWS zone",
            "[global]\nRegion = Frankfurt": "aws.conf:2: invalid AWS region",
            "[global]\n\nInstanceFilter = running": "aws.conf:3: InstanceFilter must be a filter of",
            "[global]\nMetadataURL = ftp://x": "aws.conf:2: MetadataURL must be a URL like",
            "[global]\nMetadataURL = http://u:p@x/": "aws.conf:2: MetadataURL must be a URL like",
            OVERRIDE.replace("Service = ec2", "Service ="): (
                'aws.conf:2: service name is missing [Service is ""] in this override'
            ),
            OVERRIDE.replace("Region = us-west-2\nURL", "URL"): (
                'aws.conf:1: service region is missing [Region is ""] in this override'
            ),
            OVERRIDE.replace("URL = https://ec2.foo.bar\n", ""): (
                'aws.conf:1: url is missing [URL is ""] in this override'
            ),
            OVERRIDE.replace("SigningRegion = us-west-2\n", ""): (
                'aws.conf:1: signing region is missing [SigningRegion is ""] in this override'
            ),
            OVERRIDE.replace("= v4", "= v2"): "aws.conf:6: SigningMethod must be v4",
            OVERRIDE.replace("https", "gopher"): "aws.conf:4: URL must be a URL like",
            OVERRIDE + OVERRIDE.replace('"1"', '"2"'): (
                "aws.conf:9: duplicate entry found for service override: another has the same"
            ),
        }.items():
            error = self.assertRaises(CloudConfigError, read, text)
            self.assertIn(wanted, str(error))
