"""``TOWER_`` variables: known names, misspelt ones, and those of Kubernetes."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tower import BUILD, __version__
from tower.control import proxy_options
from tower.member import options as agent_options
from tower.options.variables import NOT_SETTINGS, OPTIONS, unknown_variables


class UnknownVariablesTests(SynchronousTestCase):
    """Variables that no program reads are errors."""

    def unknown(self, **environ: str) -> list[str]:
        """Return the errors about *environ*."""
        return list(unknown_variables(environ, ()))

    def test_all_options(self) -> None:
        """The list has every option of both programs, and no other."""
        programs = (proxy_options.Options({}), agent_options.Options({}))
        options = {entry.removesuffix("=") for program in programs for entry in program.longOpt}
        self.assertEqual(OPTIONS, options - NOT_SETTINGS)

    def test_misspelt(self) -> None:
        """A misspelt variable is an error with the nearest known name."""
        self.assertEqual(
            self.unknown(TOWER_KEEPALVE="1s", TOWER_TOKENFILE="t"),
            [
                "TOWER_KEEPALVE is not a variable of Tower: did you mean TOWER_KEEPALIVE?",
                "TOWER_TOKENFILE is not a variable of Tower: did you mean TOWER_TOKEN_FILE?",
            ],
        )

    def test_unlike_any(self) -> None:
        """Without a similar name, the error refers to --help."""
        for name in ("TOWER_XXXXXXXXXX", "TOWER_FOO"):
            self.assertEqual(
                self.unknown(**{name: "1"}),
                [f"{name} is not a variable of Tower: unset it; --help lists the options"],
            )

    def test_known(self) -> None:
        """Variables of either program, of other programs, and empty ones are accepted."""
        self.assertEqual(
            self.unknown(
                TOWER_PROXY_SERVER="ws://x",
                TOWER_SECURE_PORT="1",
                TOWER_STATE_DIR="/x",
                TOWER_KUBECONFIG="/x",
                TOWER_HELP="1",
                TOWER_VERSION="1.0",
                TOWER_KEEPALVE="",
                TOWERS="2",
                HOME="/",
            ),
            [],
        )

    def test_service_links(self) -> None:
        """The variables that Kubernetes adds for Services named tower and tower-api are accepted."""
        for service in ("TOWER", "TOWER_API"):
            links = {
                f"{service}_SERVICE_HOST": "10.0.0.1",
                f"{service}_SERVICE_PORT": "80",
                f"{service}_SERVICE_PORT_HTTPS": "443",
                f"{service}_PORT": "tcp://10.0.0.1:80",
                f"{service}_PORT_80_TCP": "tcp://10.0.0.1:80",
                f"{service}_PORT_80_TCP_PROTO": "tcp",
                f"{service}_PORT_80_TCP_PORT": "80",
                f"{service}_PORT_80_TCP_ADDR": "10.0.0.1",
            }
            self.assertEqual(self.unknown(**links), [])

    def test_programs(self) -> None:
        """Both programs reject a misspelt variable, with every other bad option, and take the other's."""
        proxy = proxy_options.Options({"TOWER_SECUREPORT": "1", "TOWER_PORT": "x", "TOWER_NAME": "alpha"})
        error = self.assertRaises(UsageError, proxy.parse, ["--keepalive=0s"])
        self.assertEqual(
            str(error).splitlines(),
            [
                "TOWER_PORT 'x' is not a port: give a number from 1 to 65535, or none",
                "--keepalive '0s' must be more than 0, such as 10s",
                "TOWER_SECUREPORT is not a variable of Tower: did you mean TOWER_SECURE_PORT?",
            ],
        )
        agent = agent_options.Options({"TOWER_SERVER": "ws://x", "TOWER_CLUSTER_PORTS": "none"})
        error = self.assertRaises(UsageError, agent.parse, [])
        self.assertTrue(str(error).startswith("TOWER_SERVER is not a variable of Tower: "))


class VersionTests(SynchronousTestCase):
    """--version."""

    def test_names(self) -> None:
        """Each program displays its own name and version, and whether its modules are compiled."""
        for program, name in (
            (proxy_options.Options({}), "tower-proxy"),
            (agent_options.Options({}), "tower-agent"),
        ):
            out = io.StringIO()
            with redirect_stdout(out), self.assertRaises(SystemExit):
                program.parse(["--version"])
            self.assertEqual(out.getvalue(), f"{name} {__version__} ({BUILD})\n")


class HelpTests(SynchronousTestCase):
    """Defaults in --help are values that a user can type."""

    def test_defaults(self) -> None:
        """Durations, sizes and ranges have their units; an option without a default shows none."""
        for program, defaults in (
            (proxy_options.Options({}), ("6000-7000", "10s", "32MiB", "24h", "8443", "100")),
            (agent_options.Options({}), ("10s", "2m", "32MiB", "1GiB", "auto")),
        ):
            text = " ".join(str(program).split())
            for default in defaults:
                self.assertIn(f"[default: {default}]", text)
            for repr_ in ("range(", "10.0]", "()", "None", "[default: ]"):
                self.assertNotIn(repr_, text)
