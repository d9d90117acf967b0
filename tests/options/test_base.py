"""Options from flags and environment, and how their errors end a program."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from twisted.logger import ILogObserver, Logger, LogLevel
from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

import tower
from tower.errors import ConfigurationError
from tower.logs.formats import syslog_observer
from tower.options.base import EnvironmentOptions, public_host
from tower.options.errors import OptionError
from tower.options.parameters import Parameter, flag, list_parameter, parameter, secret
from tower.options.values import read_duration, read_port, read_port_range, unless_empty


def read_words(text: str) -> list[str]:
    """Return the words of a list without numbers."""
    if not text.replace(",", "").isalpha():
        raise ValueError("has other characters")
    return text.split(",")


class Options(EnvironmentOptions):
    """Some options of each sort."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter("port", "8080", "A port.", read_port),
        parameter("secure-port", "8443", "Another.", read_port),
        parameter("cluster-ports", "6000-7000", "Some.", read_port_range),
        parameter("keepalive", "10s", "A duration.", read_duration, "k"),
        parameter("name", None, "Any text."),
        parameter("title", None, "Another name of it."),
        list_parameter("words", None, "A list.", unless_empty(read_words)),
        *secret("token", "A secret."),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [flag("leader-elect", "A switch.")]
    aliases: ClassVar[Mapping[str, str]] = {"title": "name"}
    repeated: ClassVar[frozenset[str]] = frozenset({"target"})

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        super().__init__({} if environ is None else environ)
        self.targets: list[str] = []

    def opt_target(self, text: str) -> None:
        """Repeatable."""
        self.targets.append(text)


def parsed(*arguments: str, **environ: str) -> Options:
    """Return options that were given so."""
    options = Options(environ)
    options.parse(arguments)
    return options


class EnvironmentOptionsTests(SynchronousTestCase):
    """Sources of values, and errors about bad ones."""

    def refused(self, *arguments: str, **environ: str) -> str:
        """Expect one error of one line, and return it."""
        text = str(self.assertRaises(usage.UsageError, parsed, *arguments, **environ))
        self.assertNotIn("\n", text)
        return text

    def test_defaults(self) -> None:
        """Defaults are read as if the user had typed them."""
        options = parsed()
        self.assertEqual(options["port"], 8080)
        self.assertEqual(options["cluster-ports"], range(6000, 7001))
        self.assertEqual(options["keepalive"], 10.0)
        self.assertIsNone(options["name"])
        self.assertEqual(options.given, {})

    def test_flags(self) -> None:
        """Flags are read in the syntax of getopt and of Go."""
        options = parsed(
            "--port=1", "--secure_port", "2", "--cluster-ports", "none", "-k", "1m", "--leader-elect"
        )
        values = [
            options[name] for name in ("port", "secure-port", "cluster-ports", "keepalive", "leader-elect")
        ]
        self.assertEqual(values, [1, 2, None, 60.0, 1])
        self.assertEqual(set(options.given.values()), {"flag"})
        self.assertEqual(parsed("--keep=5s")["keepalive"], 5.0)

    def test_values_are_left_alone(self) -> None:
        """Only names of flags are rewritten, not values that look like them."""
        self.assertEqual(parsed("--name", "--a_b=true")["name"], "--a_b=true")
        self.assertEqual(parsed("--name=a_b=c_d")["name"], "a_b=c_d")
        self.assertEqual(parsed("-k", "1s", "--leader_elect")["leader-elect"], 1)

    def test_switches(self) -> None:
        """A switch takes a boolean after an equals sign, as in Go."""
        self.assertEqual(parsed("--leader-elect=true")["leader-elect"], 1)
        self.assertEqual(parsed("--leader-elect=false")["leader-elect"], 0)
        self.assertIn("--leader-elect 'maybe'", self.refused("--leader-elect=maybe"))

    def test_environment(self) -> None:
        """Variables set options that no flag sets."""
        options = parsed(
            "--port=1", TOWER_PORT="2", TOWER_SECURE_PORT="3", TOWER_LEADER_ELECT="T", TOWER_NAME=""
        )
        self.assertEqual(
            [options[n] for n in ("port", "secure-port", "leader-elect", "name")], [1, 3, 1, None]
        )
        self.assertEqual(
            options.given, {"port": "flag", "secure-port": "environment", "leader-elect": "environment"}
        )
        self.assertEqual(parsed(TOWER_LEADER_ELECT="0")["leader-elect"], 0)
        self.assertEqual(parsed("--leader-elect", TOWER_LEADER_ELECT="False")["leader-elect"], 1)
        self.assertEqual(parsed("-k2s", TOWER_KEEPALIVE="3s")["keepalive"], 2.0)

    def test_bad_environment_behind_a_flag(self) -> None:
        """A variable that a flag overrides is not read."""
        self.assertEqual(parsed("--port", "1", TOWER_PORT="xyz")["port"], 1)

    def test_real_environment(self) -> None:
        """The default is the process's environment."""
        self.patch(os, "environ", {"TOWER_V": "4"})
        options = EnvironmentOptions()
        options.parse([])
        self.assertEqual(options["v"], 4)

    def test_service_links(self) -> None:
        """The variables that Kubernetes adds for a Service named tower set no port."""
        links = {
            "TOWER_PORT": "tcp://10.0.0.1:80",
            "TOWER_PORT_80_TCP": "tcp://10.0.0.1:80",
            "TOWER_SERVICE_PORT": "80",
        }
        self.assertEqual(parsed(**links)["port"], 8080)

    def test_no_settings(self) -> None:
        """TOWER_HELP and TOWER_VERSION do nothing."""
        self.assertEqual(parsed(TOWER_HELP="1", TOWER_VERSION="1.0").given, {})

    def test_repeated(self) -> None:
        """The variable of a repeatable option holds comma-separated values."""
        self.assertEqual(parsed("--target=a", "--target", "b,c").targets, ["a", "b,c"])
        self.assertEqual(parsed(TOWER_TARGET="a=x:1, b=y:2,").targets, ["a=x:1", "b=y:2"])
        self.assertEqual(parsed("--target=c", TOWER_TARGET="a,b").targets, ["c"])

    def test_lists(self) -> None:
        """Repeats of a list add up, empty ones add nothing, and flags replace the variable."""
        for arguments, expected in (
            ([], None),
            (["--words="], None),
            (["--words=a,b", "--words", "c"], ["a", "b", "c"]),
            (["--words=", "--word=a", "--words="], ["a"]),
            (["--words=a", "--words=", "--"], ["a"]),
        ):
            self.assertEqual(parsed(*arguments)["words"], expected, arguments)
        self.assertEqual(parsed(TOWER_WORDS="a,b")["words"], ["a", "b"])
        self.assertEqual(parsed("--words=c", "--words=d", TOWER_WORDS="a,b")["words"], ["c", "d"])
        for arguments in (["--words=1", "--words=a"], ["--words=a", "--words=1"]):
            self.assertIn("has other characters", self.refused(*arguments))

    def test_aliases(self) -> None:
        """Both names set the option, a flag before a variable; both names in one place are an error."""
        for arguments, environ, expected in (
            (["--title=a"], {}, "a"),
            (["--name=a"], {}, "a"),
            ([], {"TOWER_TITLE": "a"}, "a"),
            (["--title=a"], {"TOWER_NAME": "b"}, "a"),
            (["--name=a"], {"TOWER_TITLE": "b"}, "a"),
        ):
            options = parsed(*arguments, **environ)
            self.assertEqual(options["name"], expected)
            self.assertIn("name", options.given)
        text = "--title and --name are the same option: omit one of them"
        self.assertEqual(self.refused("--name=a", "--title=a"), text)
        self.assertEqual(self.refused(TOWER_NAME="a", TOWER_TITLE="a"), text)

    def test_errors(self) -> None:
        """An error has flag or variable, value and cure."""
        for arguments in (["--port", "xyz"], ["--port=xyz"], ["--port=1", "--port=xyz"]):
            self.assertEqual(
                self.refused(*arguments), "--port 'xyz' is not a port: give a number from 1 to 65535"
            )
        self.assertIn("--keepalive '0s'", self.refused("-k", "0s"))
        self.assertEqual(
            self.refused(TOWER_SECURE_PORT="x"),
            "TOWER_SECURE_PORT 'x' is not a port: give a number from 1 to 65535",
        )
        self.assertIn("TOWER_LEADER_ELECT 'maybe'", self.refused(TOWER_LEADER_ELECT="maybe"))
        self.assertIn("--bogus", self.refused("--bogus=1"))
        self.assertIn("-z", self.refused("-z"))
        self.assertIn("--port", self.refused("--port"))
        self.assertIn("'extra'", self.refused("extra"))
        self.assertIn("'extra'", self.refused("--", "extra", "--port=1"))

    def test_many_errors(self) -> None:
        """After 20 errors the rest of the command line is not read, which could take long."""
        error = self.assertRaises(usage.UsageError, Options({}).parse, ["--bogus"] * 1000)
        self.assertEqual(len(str(error).splitlines()), 21)
        self.assertTrue(str(error).endswith("the rest of the options was not read"))

    def test_unknown(self) -> None:
        """Unknown and misspelt options are named with bad values, and the nearest option is named."""
        for arguments, expected in (
            (["--prot=1"], "--prot is not an option of tower: did you mean --port?"),
            (["--prot", "1", "--keepalive=x"], "--keepalive 'x'"),
            (["--zzz"], "--zzz is not an option of tower: --help lists the options"),
            (["--state-dir", "/x"], "--state-dir is not an option of tower: it is an option of tower-agent"),
            (["-z", "1", "--port=2"], "-z is not an option of tower: --help lists the options"),
            (["prot", "--bogus"], "--bogus is not an option"),
            (["secure-prt"], "'secure-prt' is not an option: did you mean --secure-port?"),
            (["--port"], "--port requires a value: --help describes it"),
            (["--por"], "--port requires a value: --help describes it"),
            (["--log=x"], "--log is ambiguous: give one of --log-file, --log-format, --log-levels"),
        ):
            error = self.assertRaises(usage.UsageError, Options({}).parse, arguments)
            self.assertIn(expected, str(error))
        error = self.assertRaises(usage.UsageError, Options({}).parse, ["--a", "--b", "--port=x", "c"])
        self.assertEqual(len(str(error).splitlines()), 4)

    def test_secrets(self) -> None:
        """A flag takes precedence over the environment, the value over the file."""
        path = Path(self.mktemp())
        path.write_text("filed\n")
        file = str(path)
        for expected, arguments, environ in (
            (None, [], {}),
            ("a", ["--token=a", "--token-file", file], {"TOWER_TOKEN": "b"}),
            ("filed", ["--token-file", file], {"TOWER_TOKEN": "b"}),
            ("b", [], {"TOWER_TOKEN": "b\n", "TOWER_TOKEN_FILE": file}),
            ("filed", [], {"TOWER_TOKEN_FILE": file}),
        ):
            self.assertEqual(parsed(*arguments, **environ).secret("token"), expected)
        self.assertEqual(parsed("--token=a").given["token"], "flag")

    def test_secret_file_missing(self) -> None:
        """The error about a missing secret file names the file."""
        self.assertIn("--token-file '/missing'", self.refused("--token-file=/missing"))
        self.assertIn("TOWER_TOKEN_FILE '/missing'", self.refused(TOWER_TOKEN_FILE="/missing"))

    def test_secret_at_standard_input(self) -> None:
        """Standard input is read up to its end and a limit; it may be empty or closed."""
        for data, expected in ((b"t0ken\n", "t0ken"), (b"", ""), (b" \n", ""), (None, "")):
            self.standard_input(data)
            self.assertEqual(parsed("--token-file=-").secret("token"), expected)
        self.standard_input(b"t0ken")
        self.assertEqual(parsed("--token-file", "-", TOWER_TOKEN="other").secret("token"), "t0ken")
        for data, words in ((b"x" * 70_000, "too large"), (b"\xff", "is not text")):
            self.standard_input(data)
            self.assertIn("--token-file '-' ", error := self.refused("--token-file=-"))
            self.assertIn(words, error)

    def standard_input(self, data: bytes | None) -> None:
        """Set standard input; None: it is closed."""
        if data is None:
            self.patch(sys, "stdin", None)
            return
        path = Path(self.mktemp())
        path.write_bytes(data)
        file = path.open()
        self.addCleanup(file.close)
        self.patch(sys, "stdin", file)

    def test_forgotten_secret(self) -> None:
        """A forgotten secret is not in the options any more."""
        options = parsed("--token=t0ken")
        options.forget_secret("token")
        self.assertIsNone(options.secret("token"))
        self.assertNotIn("t0ken", repr(options))

    def test_klog(self) -> None:
        """Klog's flags are accepted; its verbosity has effect."""
        line = "--v=5 --logtostderr=true --alsologtostderr --stderrthreshold INFO --log_dir=/tmp"
        options = parsed(*line.split(" "), "--vmodule=a=1,b=2", "--log_file", "/x", "--port=1")
        self.assertEqual([options["v"], options["vmodule"], options["port"]], [5, {"a": 1, "b": 2}, 1])
        self.assertEqual(
            [parsed(*words)["v"] for words in (["-v", "3"], ["-v=3"], ["-v3"], ["--v", "3"])], [3] * 4
        )
        self.assertIn("--v 'x'", self.refused("--v=x"))
        self.assertIn("--vmodule 'x'", self.refused("--vmodule=x"))

    def test_version(self) -> None:
        """The version shown is Tower's."""
        out = io.StringIO()
        self.patch(sys, "stdout", out)
        self.assertEqual(self.assertRaises(SystemExit, parsed, "--version").code, 0)
        self.assertIn(tower.__version__, out.getvalue())

    def test_help(self) -> None:
        """The help shows defaults as a user types them, and no flags without effect."""
        text = str(Options())
        self.assertIn("[default: 6000-7000]", text)
        self.assertNotIn("stderrthreshold", text)

    def test_parse_options(self) -> None:
        """Called by twistd, an error ends the program with one line on stderr and exit code 1."""
        error = self.assertRaises(SystemExit, Options().parseOptions, ["--port=xyz"])
        self.assertEqual(error.code, "tower: --port 'xyz' is not a port: give a number from 1 to 65535")
        options = Options()
        options.parent = Parent()
        error = self.assertRaises(SystemExit, options.parseOptions, ["--port=x\ny"])
        self.assertTrue(str(error.code).startswith("tower-proxy: --port 'x\\ny' is not a port"))

    def test_several_errors(self) -> None:
        """Every bad option and variable is named, each on its own line; each option is read once."""
        options = Options({"TOWER_SECURE_PORT": "x", "TOWER_LEADER_ELECT": "maybe", "TOWER_TARGET": "a"})
        options.parent = Parent()
        error = self.assertRaises(SystemExit, options.parseOptions, ["--port=1\n2", "-k0s", "extra"])
        extra = "tower-proxy: 'extra' is not an option, and tower-proxy has no subcommands: --help lists the "
        self.assertEqual(
            str(error.code).splitlines(),
            [
                f"{extra}options",
                "tower-proxy: TOWER_LEADER_ELECT 'maybe' is not a boolean: give true or false",
                "tower-proxy: --port '1\\n2' is not a port: give a number from 1 to 65535",
                "tower-proxy: TOWER_SECURE_PORT 'x' is not a port: give a number from 1 to 65535",
                "tower-proxy: --keepalive '0s' must be more than 0, such as 10s",
            ],
        )
        self.assertEqual(options.targets, ["a"])

    def test_failed_checks(self) -> None:
        """Failed checks are collected too, except those of an option that is wrong or misspelt."""

        def needs(flag: str) -> None:
            raise OptionError(flag, "1", "is wrong")

        class Checked(Options):
            def check_rules(self) -> None:
                super().check_rules()
                self.check(needs, "port")
                self.check(needs, "secure-port")

        options = Checked({"TOWER_PORT": "1"})
        error = self.assertRaises(usage.UsageError, options.parse, [])
        self.assertEqual(str(error), "TOWER_PORT '1' is wrong\n--secure-port '1' is wrong")
        error = self.assertRaises(usage.UsageError, options.parse, ["--secure-port=x"])
        first, second = str(error).splitlines()
        self.assertIn("--secure-port 'x' is not a port", first)
        self.assertEqual(second, "TOWER_PORT '1' is wrong")
        error = self.assertRaises(usage.UsageError, options.parse, ["--unknown", "--name"])
        self.assertEqual(
            str(error).splitlines(),
            [
                "--unknown is not an option of tower: --help lists the options",
                "--name requires a value: --help describes it",
                "TOWER_PORT '1' is wrong",
                "--secure-port '1' is wrong",
            ],
        )
        error = self.assertRaises(usage.UsageError, options.parse, ["--secure-prt=x"])
        first, second = str(error).splitlines()
        self.assertIn("did you mean --secure-port?", first)
        self.assertEqual(second, "TOWER_PORT '1' is wrong")

    def test_log_level_of_twistd(self) -> None:
        """Twistd gets an observer that follows --v, unless its user chose another."""
        chosens: list[dict[str, Any]] = [{}, {"logger": str}, {"syslog": True, "prefix": "tower"}]
        for chosen in chosens:
            options, parent = Options(), Parent(chosen)
            options.parent = parent
            options.parseOptions([])
            parent.postOptions()
            expected = chosen.get("logger") if chosen else options.log_observer
            if "syslog" in chosen:
                expected = parent["logger"]
                self.assertEqual((expected.func, expected.args), (syslog_observer, ("tower",)))
            self.assertEqual(parent.get("logger"), expected)

    def test_log_observer(self) -> None:
        """The log follows --log-file, --log-format and --v."""
        path = Path(self.mktemp())
        options = parsed("--v=0", f"--log-file={path}", "--log-format=json")
        observer = options.log_observer()
        self.assertTrue(ILogObserver.providedBy(observer))
        log = Logger(namespace="tower.x", observer=observer)
        for level in (LogLevel.debug, LogLevel.info):
            log.emit(level, "seen {x}", x=level.name)
        options.reload_log()
        options.flush_log()
        self.assertIn("seen info", path.read_text())
        self.assertNotIn("seen debug", path.read_text())

    def test_no_log(self) -> None:
        """A log file or a file of levels that cannot be used ends the program with one line."""
        levels = Path(self.mktemp())
        levels.write_text("v=much")
        for argument, word in (
            (f"--log-file={levels}/log", "log-file"),
            (f"--log-levels={levels}", "v=much"),
        ):
            ended = self.assertRaises(SystemExit, parsed(argument).log_observer)
            self.assertIn(word, str(ended.code))
        options = parsed(f"--log-levels={levels}")
        options.reload_log()  # not started
        levels.write_text("v=4")
        options.log_observer()
        levels.write_text("v=lots")
        self.assertIn("v=lots", str(self.assertRaises(ConfigurationError, options.reload_log)))


class Parent(usage.Options):
    """Plays twistd's own options."""

    def __init__(self, values: dict[str, object] | None = None) -> None:
        super().__init__()
        self.subCommand = "tower-proxy"
        self["nodaemon"] = True
        self.update(values or {})


class PublicHostTests(SynchronousTestCase):
    """The host in join lines and kubeconfigs."""

    def test_hosts(self) -> None:
        """It is the published host, else the one listened on, never a wildcard."""
        self.assertEqual(public_host("0.0.0.0", "tower.example.com"), "tower.example.com")
        self.assertEqual(public_host("10.0.0.1", None), "10.0.0.1")
        for wildcard in ("0.0.0.0", "::", ""):
            error = str(self.assertRaises(ConfigurationError, public_host, wildcard, None))
            self.assertIn("--publish-service-address", error)
