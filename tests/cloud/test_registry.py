"""Tests of `tower.cloud.registry` (acceptance case 7.3.11 of upstream's behaviour)."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel
from twisted.logger import capturedLogs as captured_logs
from twisted.trial.unittest import SynchronousTestCase

from tower.cloud import registry
from tower.cloud.config.text import CONFIG_LIMIT, ConfigText
from tower.cloud.errors import CloudError, InstanceNotFound, NotImplementedByCloud
from tower.cloud.fake import FakeCloud
from tower.cloud.registry import GROUP, CloudProviders, Factory, get_instance_provider_id, is_external
from tower.errors import ConfigurationError

MADE = FakeCloud()


def made_here(config: ConfigText | None) -> FakeCloud:
    """Be the factory of an entry point."""
    return MADE


def entry(name: str, value: str) -> EntryPoint:
    """Return an entry point."""
    return EntryPoint(name, value, GROUP)


def said(logs: Any) -> list[str]:
    """Return what was logged."""
    return [event["log_format"].format(**event) for event in logs]


class RegistryCase(SynchronousTestCase):
    """A registry of its own for each test."""

    def setUp(self) -> None:
        """Start without providers."""
        self.entries: list[EntryPoint] = []
        self.providers = CloudProviders(lambda: self.entries)
        self.given: list[ConfigText | None] = []

    def factory(self, result: Any = MADE) -> Factory:
        """Return a factory that notes what it is given."""

        def make(config: ConfigText | None) -> Any:
            self.given.append(config)
            if isinstance(result, Exception):
                raise result
            return result

        return make

    def why_not(self, name: str, config_file: str = "") -> str:
        """Return the error of a provider that cannot be made."""
        error = self.assertRaises(ConfigurationError, self.providers.init, name, config_file)
        return str(error)

    def config(self, content: bytes) -> str:
        """Write a configuration."""
        path = Path(self.mktemp())
        path.write_bytes(content)
        return str(path)


class RegisterTests(RegistryCase):
    """Names."""

    def test_registered(self) -> None:
        """Registered names are known, others are not, and the list is sorted."""
        self.providers.register("b", self.factory())
        self.providers.register("a", self.factory())
        self.assertTrue(self.providers.has("a"))
        self.assertFalse(self.providers.has("A"))
        self.assertEqual(self.providers.names(), ["a", "b"])

    def test_twice(self) -> None:
        """A second provider of the same name is an error, and the first one stays."""
        self.providers.register("a", self.factory())
        error = self.assertRaises(ConfigurationError, self.providers.register, "a", self.factory(None))
        self.assertEqual(str(error), 'Cloud provider "a" was registered twice')
        self.assertIs(self.providers.get("a", None), MADE)

    def test_nameless(self) -> None:
        """The names "" and external are reserved."""
        for name in ("", "external"):
            self.assertRaises(ConfigurationError, self.providers.register, name, self.factory())

    def test_log(self) -> None:
        """A registration is logged."""
        with captured_logs() as logs:
            self.providers.register("a", self.factory())
        self.assertEqual(said(logs), ['Registered cloud provider "a"'])

    def test_get_unknown(self) -> None:
        """An unknown provider is not an error of get."""
        self.assertIsNone(self.providers.get("a", None))

    def test_get_error(self) -> None:
        """An exception of a factory is raised unchanged by get."""
        self.providers.register("a", self.factory(KeyError("x")))
        self.assertRaises(KeyError, self.providers.get, "a", None)

    def test_calls_back(self) -> None:
        """A factory may use the registry."""
        self.providers.register("a", self.factory())

        def nested(config: ConfigText | None) -> Any:
            self.providers.register("c", self.factory())
            return self.providers.get("a", config) if self.providers.has("a") else None

        self.providers.register("b", nested)
        self.assertIs(self.providers.get("b", None), MADE)
        self.assertEqual(self.providers.names(), ["a", "b", "c"])

    def test_external(self) -> None:
        """Only the exact name is external."""
        self.assertTrue(is_external("external"))
        self.assertFalse(is_external("External"))
        self.assertFalse(is_external(""))

    def test_of_the_process(self) -> None:
        """The functions of the module share one registry, which knows Tower's own providers."""
        for name in ("aws", "azure", "fake", "gce", "openstack"):
            self.assertTrue(registry.is_cloud_provider(name), name)
            self.assertIn(name, registry.cloud_providers())
        self.assertIsInstance(registry.init_cloud_provider("fake", ""), FakeCloud)
        self.assertIsInstance(registry.get_cloud_provider("fake", None), FakeCloud)
        self.assertRaises(ConfigurationError, registry.register_cloud_provider, "fake", self.factory())


class InitTests(RegistryCase):
    """Providers by name and configuration file."""

    def test_nothing_wanted(self) -> None:
        """The empty name and external return no provider, are logged, and do not open the file."""
        with captured_logs() as logs:
            self.assertIsNone(self.providers.init("", "/nowhere/at/all"))
            self.assertIsNone(self.providers.init("external", "/nowhere/at/all"))
        self.assertEqual(said(logs), ["No cloud provider specified.", "External cloud provider specified"])

    def test_unknown(self) -> None:
        """An unknown name is an error, and the log has the known ones."""
        self.providers.register("known", self.factory())
        with captured_logs() as logs:
            self.assertEqual(self.why_not("x"), 'unknown cloud provider "x"')
        self.assertEqual(said(logs), ["registered cloud providers: known"])

    def test_factory_makes_nothing(self) -> None:
        """A factory that makes nothing is the same as none."""
        self.providers.register("x", self.factory(None))
        self.assertEqual(self.why_not("x"), 'unknown cloud provider "x"')

    def test_factory_fails(self) -> None:
        """An exception of a factory is in the error."""
        self.providers.register("x", self.factory(ValueError("no such region")))
        self.assertEqual(self.why_not("x"), 'could not init cloud provider "x": no such region')

    def test_no_provider(self) -> None:
        """A factory must return a provider."""
        self.providers.register("x", self.factory("text"))
        self.assertEqual(
            self.why_not("x"),
            'could not init cloud provider "x": '
            "its factory returned a str, which does not implement ICloudProvider",
        )

    def test_no_file(self) -> None:
        """Without a file the factory gets None, not an empty text."""
        self.providers.register("x", self.factory())
        self.assertIs(self.providers.init("x", ""), MADE)
        self.assertEqual(self.given, [None])

    def test_file(self) -> None:
        """The factory gets the file's path and text without a byte order mark, which repr does not show."""
        self.providers.register("x", self.factory())
        path = self.config(b"\xef\xbb\xbf[global]\r\npassword = hunter2\n")
        self.providers.init("x", path)
        (given,) = self.given
        assert given is not None
        self.assertEqual((given.path, given.text), (path, "[global]\r\npassword = hunter2\n"))
        self.assertNotIn("hunter2", repr(given))

    def test_empty_file(self) -> None:
        """An empty file is a text."""
        self.providers.register("x", self.factory())
        self.providers.init("x", self.config(b""))
        self.assertIsNotNone(self.given[0])

    def test_missing_file(self) -> None:
        """A file that cannot be opened is an error, and the factory is not called."""
        self.providers.register("x", self.factory())
        self.assertEqual(
            self.why_not("x", "/nowhere/cloud.conf"),
            "Couldn't open cloud provider configuration /nowhere/cloud.conf: No such file or directory",
        )
        self.assertIn("Is a directory", self.why_not("x", os.curdir))
        self.assertIn("null byte", self.why_not("x", "a\0b"))
        self.assertEqual(self.given, [])

    def test_bad_file(self) -> None:
        """A file that is not text, or too large, is an error."""
        self.providers.register("x", self.factory())
        self.assertIn("not UTF-8 in line 2", self.why_not("x", self.config(b"[a]\n\xff\n")))
        self.assertIn("larger than", self.why_not("x", self.config(b"#" * (CONFIG_LIMIT + 1))))


class EntryPointTests(RegistryCase):
    """Providers of other packages."""

    def test_found(self) -> None:
        """A provider is found by its entry point, now or later."""
        self.assertFalse(self.providers.has("acme"))
        self.entries.append(entry("acme", f"{__name__}:made_here"))
        self.assertTrue(self.providers.has("acme"))
        self.assertEqual(self.providers.names(), ["acme"])
        self.assertIs(self.providers.init("acme", ""), MADE)

    def test_lazy(self) -> None:
        """A broken entry point affects no others; its error names package and cure."""
        self.entries += [entry("broken", "no.such.package:make"), entry("acme", f"{__name__}:made_here")]
        self.assertEqual(self.providers.names(), ["acme", "broken"])
        self.assertIs(self.providers.init("acme", ""), MADE)
        error = self.why_not("broken")
        self.assertTrue(
            error.startswith('could not init cloud provider "broken": its package no.such.package')
        )
        self.assertIn("No module named 'no'", error)
        self.assertIn("pip install --force-reinstall", error)

    def test_not_there(self) -> None:
        """A missing factory and one that is not callable have different errors."""
        self.entries.append(entry("a", f"{__name__}:nothing"))
        self.entries.append(entry("b", f"{__name__}:MADE"))
        self.assertIn("has no attribute 'nothing'", self.why_not("a"))
        self.assertIn("is not callable", self.why_not("b"))

    def test_two(self) -> None:
        """Two packages that bring the same name are an error for that name alone."""
        self.entries += [
            entry("x", "one:make"),
            entry("x", "two:make"),
            entry("acme", f"{__name__}:made_here"),
        ]
        self.assertEqual(self.providers.names(), ["acme", "x"])
        self.assertIn('Cloud provider "x" was registered twice: by the packages one, two', self.why_not("x"))
        self.assertIs(self.providers.init("acme", ""), MADE)

    def test_registered_too(self) -> None:
        """The provider of a package cannot be registered again."""
        self.entries.append(entry("acme", f"{__name__}:made_here"))
        error = self.assertRaises(ConfigurationError, self.providers.register, "acme", self.factory())
        self.assertEqual(str(error), 'Cloud provider "acme" was registered twice')


class ProviderIDTests(SynchronousTestCase):
    """`get_instance_provider_id`."""

    def provider_id(self, cloud: FakeCloud, node: str = "a") -> Any:
        """Return the provider ID."""
        result: Deferred[str] = Deferred.fromCoroutine(get_instance_provider_id(cloud, node))
        return self.successResultOf(result)

    def failure(self, cloud: FakeCloud) -> Exception:
        """Return what it raises."""
        result: Deferred[str] = Deferred.fromCoroutine(get_instance_provider_id(cloud, "a"))
        error = self.failureResultOf(result).value
        assert isinstance(error, Exception)
        return error

    def test_id(self) -> None:
        """It is the provider's name and the instance's id."""
        self.assertEqual(
            self.provider_id(FakeCloud(provider="mine", instance_ids={"a": "i-1"})), "mine://i-1"
        )

    def test_passed_on(self) -> None:
        """The errors for missing nodes and unsupported calls are raised unchanged."""
        for error in (InstanceNotFound(), NotImplementedByCloud()):
            self.assertIs(self.failure(FakeCloud(instance_id_errors={"a": error})), error)

    def test_other_errors(self) -> None:
        """Other errors name the call."""
        error = self.failure(FakeCloud(instance_id_errors={"a": CloudError("quota")}))
        self.assertEqual(str(error), "failed to get instance ID from cloud provider: quota")

    def test_no_instances(self) -> None:
        """A cloud without instances is an error."""
        error = self.failure(FakeCloud(disable_instances=True))
        self.assertEqual(str(error), "failed to get instances from cloud provider")

    def test_texts(self) -> None:
        """The errors have upstream's texts."""
        self.assertEqual(str(InstanceNotFound()), "instance not found")
        self.assertEqual(str(NotImplementedByCloud()), "unimplemented")
        from tower.cloud.errors import DiskNotFound, ImplementedElsewhere

        self.assertEqual(str(DiskNotFound()), "disk is not found")
        self.assertEqual(str(ImplementedElsewhere()), "implemented by alternate to cloud provider")


class LogLevelTests(RegistryCase):
    """How loud."""

    def test_debug(self) -> None:
        """A registration is logged at the debug level."""
        with captured_logs() as logs:
            self.providers.register("a", self.factory())
        self.assertEqual([event["log_level"] for event in logs], [LogLevel.debug])
