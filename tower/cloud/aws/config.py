"""Configuration of the provider aws."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import field, frozen

from tower.cloud.aws.api import Endpoint
from tower.cloud.aws.instances import REGION, region_of
from tower.cloud.aws.metadata import ADDRESS, ADDRESS_V6
from tower.cloud.aws.signing import Scope
from tower.cloud.config.sections import Section, Sections

#: Kubernetes' tags of a cluster's resources: with the cluster's ID as value, or, later, in the name.
LEGACY_CLUSTER_TAG = "KubernetesCluster"
CLUSTER_TAG = "kubernetes.io/cluster/"

#: The services.
EC2_SERVICE, INSTANCE_CONNECT, STS = "ec2", "ec2-instance-connect", "sts"

_KNOWN = {
    "global": (
        # Kubernetes' keys that are used.
        *("Zone", "VPC", "SubnetID", "RoleARN", "KubernetesClusterTag", "KubernetesClusterID"),
        # Kubernetes' keys for load balancers and routes, which are ignored.
        *("RouteTableID", "DisableSecurityGroupIngress", "DisableStrictZoneCheck", "ElbSecurityGroup"),
        # Tower's.
        *("Region", "InstanceFilter", "RoleExternalID", "Profile", "SharedCredentialsFile", "MetadataURL"),
    ),
    "ServiceOverride": ("Service", "Region", "URL", "SigningRegion", "SigningMethod", "SigningName"),
}

_FILTER = re.compile(r"([a-z][\w:./ -]{0,120})=([^=,]+(?:,[^,]+)*)", re.ASCII)

# Domains of the services, by prefix of the region.
_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
}

#: Name and values of a filter of DescribeInstances.
Filter = tuple[str, tuple[str, ...]]


@frozen
class AWSConfig:
    """One configuration.

    :ivar region: empty: the environment's, or that of this instance.
    :ivar zone: of Tower; empty: the metadata service's.
    :ivar role: ARN of the role to assume; empty: none.
    :ivar external_id: required by the owner of *role*; empty: none.
    :ivar profile: empty: the environment's, or ``default``.
    :ivar metadata: URL of the metadata service; empty: the environment's, or the default.
    :ivar overrides: endpoints, by service and region.
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
        """Filters that select the cluster's instances; may be empty."""
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
        """Return the region; empty: only the metadata service knows it."""
        fallback = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
        return self.region or region_of(self.zone) or fallback

    def metadata_in(self, environ: Mapping[str, str]) -> str:
        """Return the metadata service's URL, without a trailing slash; empty: it is disabled."""
        if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return ""
        mode = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower()
        default = ADDRESS_V6 if mode == "ipv6" else ADDRESS
        return (self.metadata or environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or default).rstrip("/")

    def endpoint(self, service: str, region: str) -> Endpoint:
        """Return the endpoint of a service in a region."""
        suffix = next(
            (each for start, each in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com"
        )
        default = Endpoint(f"https://{service}.{region}.{suffix}/", Scope(region, service))
        return self.overrides.get((service, region), default)


def read_aws_config(sections: Sections) -> AWSConfig:
    """Read a configuration; raise `CloudConfigError` with file and line."""
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
        metadata=given.url("MetadataURL", "") if given.text("MetadataURL") else "",
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
        raise section.wrong("SigningMethod", "SigningMethod must be v4")
    service = values["Service"]
    scope = Scope(values["SigningRegion"], section.text("SigningName") or service)
    section.url("URL", "")  # validate; a trailing slash is significant
    url = values["URL"]
    return (service, values["Region"]), Endpoint(url if url.count("/") > 2 else f"{url}/", scope)


def _filter(text: str, section: Section) -> Filter:
    found = _FILTER.fullmatch(text)
    if not found:
        raise section.wrong(
            "InstanceFilter", "InstanceFilter must be a filter of DescribeInstances: NAME=VALUE,…"
        )
    return found[1], tuple(value.strip() for value in found[2].split(","))
