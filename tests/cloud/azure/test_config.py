"""Configuration of the provider azure, and its errors."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import logged
from tower.cloud.azure.config import METADATA, AzureConfig, read_azure_config
from tower.cloud.azure.machines import path_of, power_of, zone_of
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError, CloudError
from tower.cloud.interfaces import Zone

YAML = """\
# as shown by the portal
tenantId: 99999999-8888-7777-6666-555555555555
subscriptionId: 11111111-2222-3333-4444-555555555555
resourceGroup: my_group(1)
aadClientId: client
aadClientSecret: "s3cr3t"
location: westeurope
vnetName: net
"""


def read(text: str) -> AzureConfig:
    """Read a configuration."""
    return read_azure_config(ConfigText("azure.yaml", text), {})


class ConfigTest(SynchronousTestCase):
    """Configurations."""

    def test_yaml(self) -> None:
        """YAML is read, and unrelated keys are ignored."""
        found = read(YAML)
        self.assertEqual((found.group, found.client, found.location), ("my_group(1)", "client", "westeurope"))
        self.assertEqual((found.login, found.metadata), ("https://login.microsoftonline.com", METADATA))
        self.assertEqual(found.manager, "https://management.azure.com")
        self.assertEqual(found.audience, "https://management.azure.com/")
        self.assertNotIn("s3cr3t", repr(found))

    def test_json(self) -> None:
        """JSON is read, its keys in any case of letters."""
        found = read(
            '{"SubscriptionID": "1-2", "resourcegroup": "g", "useManagedIdentityExtension": true,\n'
            '"userAssignedIdentityID": "/subscriptions/x", "vmCacheTTLInSeconds": 5}'
        )
        self.assertEqual(
            (found.subscription, found.group, found.managed, found.cache), ("1-2", "g", True, 5.0)
        )
        self.assertEqual(found.identity, "/subscriptions/x")

    def test_logins(self) -> None:
        """The first configured login in Kubernetes' order is used; a pod's own only without any."""
        bare = YAML.replace('aadClientSecret: "s3cr3t"\n', "")
        pod = {
            "AZURE_FEDERATED_TOKEN_FILE": "/token",
            "AZURE_CLIENT_ID": "of-the-pod",
            "AZURE_TENANT_ID": "tenant-of-the-pod",
        }
        by_certificate = f"{bare}aadClientCertPath: /cert.pfx\naadClientCertPassword: s3cr3t\n"
        for text, environ, wanted in (
            (YAML, pod, ("client", "", "", False)),
            (bare, pod, ("client", "/token", "", False)),
            (bare.replace("aadClientId", "x"), pod, ("of-the-pod", "/token", "", False)),
            (by_certificate, pod, ("client", "", "/cert.pfx", False)),
            (by_certificate + 'aadClientSecret: "s3cr3t"', {}, ("client", "", "", False)),
            (YAML + "useManagedIdentityExtension: true", pod, ("", "", "", True)),
            (YAML + "useFederatedWorkloadIdentityExtension: true", pod, ("client", "/token", "", False)),
            (
                YAML + "useFederatedWorkloadIdentityExtension: true\naadFederatedTokenFile: /mine",
                {},
                ("client", "/mine", "", False),
            ),
        ):
            found = read_azure_config(ConfigText("azure.yaml", text), environ)
            self.assertEqual((found.client, found.token_file, found.certificate, found.managed), wanted)
            self.assertNotIn("s3cr3t", repr(found))

    def test_clouds(self) -> None:
        """Other clouds have other addresses, and a configuration may have its own."""
        china = read(YAML + "cloud: AzureChinaCloud\n")
        self.assertEqual(china.login, "https://login.chinacloudapi.cn")
        self.assertEqual(china.audience, "https://management.chinacloudapi.cn/")
        own = read(
            YAML + "resourceManagerEndpoint: http://127.0.0.1:1/\nactiveDirectoryEndpoint: http://[::1]:2\n"
        )
        self.assertEqual((own.manager, own.login), ("http://127.0.0.1:1", "http://[::1]:2"))
        self.assertEqual(own.audience, "http://127.0.0.1:1/")

    def test_in_the_clear(self) -> None:
        """Credentials in cleartext are logged, except on this machine."""
        for url, wanted in (("http://arm.example", 1), ("http://127.0.0.1:1", 0), ("https://arm.example", 0)):
            with logged() as lines:
                read(f"{YAML}resourceManagerEndpoint: {url}\n")
            self.assertEqual(sum("NOT SECURE" in line for line in lines), wanted)

    def test_wrong(self) -> None:
        """Errors have file and line, and never a value that may be secret."""
        for text, wanted in {
            "": "azure.yaml: must be a JSON or YAML object",
            "[]": "azure.yaml: must be a JSON or YAML object",
            "a: b: s3cr3t": "azure.yaml:1: this is not YAML",
            "a: 1\nb: *s3cr3t": "azure.yaml:2: this is not YAML",
            '{"a": 1,\n"b": s3cr3t}': "azure.yaml:2: this is not JSON",
            YAML.replace("subscriptionId", "x"): "azure.yaml: subscriptionId is missing",
            YAML.replace("my_group(1)", "a/b"): "azure.yaml:4: resourceGroup is not valid",
            YAML.replace("my_group(1)", ".."): "azure.yaml:4: resourceGroup is not valid",
            YAML.replace("1111-", "1111/"): "azure.yaml:3: subscriptionId is not valid",
            YAML.replace('"s3cr3t"', "[s3cr3t]"): "azure.yaml:6: aadClientSecret must be a string",
            YAML.replace('"s3cr3t"', ""): "azure.yaml:6: aadClientSecret is missing",
            YAML
            + "useManagedIdentityExtension: maybe": "azure.yaml:9: useManagedIdentityExtension must be true",
            YAML + "useFederatedWorkloadIdentityExtension: true": (
                "azure.yaml:9: aadFederatedTokenFile is missing, and AZURE_FEDERATED_TOKEN_FILE is not set"
            ),
            YAML + "cloud: Mars": "azure.yaml:9: cloud must be AzurePublicCloud",
            YAML + "metadataEndpoint: ftp://x": "azure.yaml:9: metadataEndpoint must be a URL like",
            YAML + "vmCacheTTLInSeconds: -1": "azure.yaml:9: vmCacheTTLInSeconds must be a number of seconds",
            "[" * 100_000: "azure.yaml",
            "{" * 100_000: "azure.yaml",
        }.items():
            error = self.assertRaises(CloudConfigError, read, text)
            self.assertIn(wanted, str(error))
            self.assertNotIn("s3cr3t", str(error))


class MachinesTest(SynchronousTestCase):
    """Reading of Azure's resources."""

    def test_provider_ids(self) -> None:
        """A provider id is a path to a machine, of our subscription, and nothing else."""
        above = "/subscriptions/s-1/resourceGroups/g/providers/Microsoft.Compute"
        for path in (
            f"{above}/virtualMachines/a",
            f"{above.lower()}/virtualmachinescalesets/p/virtualMachines/0",
        ):
            self.assertEqual(path_of(f"azure://{path}", "S-1"), path)
        for path in (
            *("", "/", f"{above}/virtualMachines/", f"{above}/virtualMachines/..", f"{above}/disks/a"),
            *(
                f"{above}/virtualMachines/a/..",
                f"{above}/virtualMachines/a\n",
                f"{above}/virtualMachines/a%2f",
            ),
        ):
            self.assertRaises(CloudError, path_of, f"azure://{path}", "s-1")
        self.assertRaises(CloudError, path_of, f"azure://{above}/virtualMachines/a", "s-2")

    def test_power(self) -> None:
        """The state is found among a machine's statuses, or it is not known."""
        for statuses, wanted in (
            ([{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}], "running"),
            ([{"code": 5}, {}, None, "x"], ""),
            (None, ""),
        ):
            self.assertEqual(power_of({"instanceView": {"statuses": statuses}}), wanted)

    def test_zones(self) -> None:
        """A zone is one of a location, whose name may be written with blanks."""
        self.assertEqual(zone_of("West Europe", "3"), Zone("westeurope-3", "westeurope"))
        self.assertEqual(zone_of("westeurope", ""), Zone("", "westeurope"))
