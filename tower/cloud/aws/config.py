"""What a configuration says about AWS."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import field, frozen

from tower.cloud.aws.api import Endpoint
from tower.cloud.aws.instances import REGION, region_of
from tower.cloud.aws.metadata import ADDRESS, ADDRESS_V6
from tower.cloud.aws.signing import Scope
from tower.cloud.config.sections import Section, Sections

#: What Kubernetes tags the things of a cluster with: the cluster's id in the value, or, later, in the name.
LEGACY_CLUSTER_TAG = "KubernetesCluster"
CLUSTER_TAG = "kubernetes.io/cluster/"

#: The services that are asked.
EC2_SERVICE, INSTANCE_CONNECT, STS = "ec2", "ec2-instance-connect", "sts"

_KNOWN = {
    "global": (
        # Those of Kubernetes that mean something here.
        *("Zone", "VPC", "SubnetID", "RoleARN", "KubernetesClusterTag", "KubernetesClusterID"),
        # Those that are about load balancers and routes.
        *("RouteTableID", "DisableSecurityGroupIngress", "DisableStrictZoneCheck", "ElbSecurityGroup"),
        # Ours.
        *("Region", "InstanceFilter", "RoleExternalID", "Profile", "SharedCredentialsFile", "MetadataURL"),
    ),
    "ServiceOverride": ("Service", "Region", "URL", "SigningRegion", "SigningMethod", "SigningName"),
}

_FILTER = re.compile(r"([a-z][\w:./ -]{0,120})=([^=,]+(?:,[^,]+)*)", re.ASCII)

# Where the services are of regions whose names begin so.
_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
}

#: A name that DescribeInstances can filter by, and the values that are wanted.
Filter = tuple[str, tuple[str, ...]]


@frozen
class AWSConfig:
    """One configuration.

    :ivar region: empty: the environment's, or that of the instance that we are on.
    :ivar zone: that we are in; empty: the metadata service knows.
    :ivar role: ARN of the role to take on; empty: none.
    :ivar external_id: that the owner of *role* wants to hear; empty: none.
    :ivar profile: in the file with credentials; empty: the environment's, or ``default``.
    :ivar metadata: the metadata service; empty: the environment's, or the usual one.
    :ivar overrides: services at other addresses than the usual, by service and region.
    """

    region: str = ""
    zone: str = ""
    cluster_tag: str = ""
    cluster_id: str = ""
    vpc: str = ""
    subnet: str = ""
    role: str = ""
    filters: tuple[Filter, ...] = ()
    profile: str = ""
    credentials_file: str = ""
    metadata: str = ""
    overrides: Mapping[tuple[str, str], Endpoint] = field(factory=dict)
    external_id: str = ""

    @property
    def selection(self) -> tuple[Filter, ...]:
        """What makes an instance one of the cluster's; empty if nothing says so."""
        chosen: list[Filter] = []
        if self.cluster_id:
            chosen.append(("tag-key", (CLUSTER_TAG + self.cluster_id,)))
        elif self.cluster_tag:
            chosen.append((f"tag:{LEGACY_CLUSTER_TAG}", (self.cluster_tag,)))
        if self.vpc:
            chosen.append(("vpc-id", (self.vpc,)))
        if self.subnet:
            chosen.append(("subnet-id", (self.subnet,)))
        return (*chosen, *self.filters)

    def region_in(self, environ: Mapping[str, str]) -> str:
        """Return the region; empty if only the metadata service may know."""
        fallback = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
        return self.region or region_of(self.zone) or fallback

    def metadata_in(self, environ: Mapping[str, str]) -> str:
        """Return the metadata service's address, without a slash at its end; empty: it is not to be asked."""
        if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return ""
        mode = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower()
        usual = ADDRESS_V6 if mode == "ipv6" else ADDRESS
        return (self.metadata or environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or usual).rstrip("/")

    def endpoint(self, service: str, region: str) -> Endpoint:
        """Return where a service is in a region."""
        suffix = next(
            (each for start, each in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com"
        )
        usual = Endpoint(f"https://{service}.{region}.{suffix}/", Scope(region, service))
        return self.overrides.get((service, region), usual)


def read_aws_config(sections: Sections) -> AWSConfig:
    """Return what *sections* say.

    :raise CloudConfigError: with file and line.
    """
    sections.warn_about_unknown(_KNOWN)
    given = sections.section("global")
    zone = given.text("Zone")
    if zone and not region_of(zone):
        raise given.wrong("Zone", "invalid AWS zone")
    region = given.text("Region")
    if region and not REGION.fullmatch(region):
        raise given.wrong("Region", "invalid AWS region")
    overrides: dict[tuple[str, str], Endpoint] = {}
    for section in sections.subsections("ServiceOverride").values():
        key, endpoint = _override(section)
        if key in overrides:
            raise section.wrong(
                "Service",
                "duplicate entry found for service override: another has the same Service and Region",
            )
        overrides[key] = endpoint
    return AWSConfig(
        region=region,
        zone=zone,
        cluster_tag=given.text("KubernetesClusterTag"),
        cluster_id=given.text("KubernetesClusterID"),
        vpc=given.text("VPC"),
        subnet=given.text("SubnetID"),
        role=given.text("RoleARN"),
        filters=tuple(_filter(text, given) for text in given.texts("InstanceFilter")),
        profile=given.text("Profile"),
        credentials_file=given.text("SharedCredentialsFile"),
        metadata=_url(given, "MetadataURL", given.text("MetadataURL")).rstrip("/"),
        overrides=overrides,
        external_id=given.text("RoleExternalID"),
    )


def _override(section: Section) -> tuple[tuple[str, str], Endpoint]:
    needed = {
        "Service": "service name",
        "Region": "service region",
        "URL": "url",
        "SigningRegion": "signing region",
    }
    values = {key: section.text(key).strip() for key in needed}
    for key, what in needed.items():
        if not values[key]:
            raise section.wrong(key, f'{what} is missing [{key} is ""] in this override')
    method = section.text("SigningMethod")
    if method not in ("", "v4"):
        raise section.wrong("SigningMethod", "signing method is not known: only v4 is")
    service = values["Service"]
    scope = Scope(values["SigningRegion"], section.text("SigningName") or service)
    url = _url(section, "URL", values["URL"])
    return (service, values["Region"]), Endpoint(url if url.count("/") > 2 else f"{url}/", scope)


def _url(section: Section, key: str, text: str) -> str:
    if text and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
        raise section.wrong(key, f"{key} is no http or https URL without a query")
    return text


def _filter(text: str, section: Section) -> Filter:
    found = _FILTER.fullmatch(text)
    if not found:
        raise section.wrong("InstanceFilter", "InstanceFilter must be NAME=VALUE,…, as EC2 has them")
    return found[1], tuple(value.strip() for value in found[2].split(","))
