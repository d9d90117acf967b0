"""Both programs in each reactor, and Twisted's own tests of reactors for Tower's."""

from __future__ import annotations

import socket
from typing import Any

from twisted.python.failure import Failure
from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.programs import Program, script
from tower.reactor.epoll_reactor import TowerReactor
from tower.reactor.poller import Poller

#: Names of modules, and of their classes that make test cases for a reactor.
BUILDERS = {
    "core": ("SystemEventTestsBuilder",),
    "fdset": ("ReactorFDSetTestsBuilder",),
    "socket": (
        "AdoptDatagramPortErrorsTestsBuilder",
        "AdoptStreamConnectionErrorsTestsBuilder",
        "AdoptStreamPortErrorsTestsBuilder",
        "IReactorSocketVerificationTestsBuilder",
    ),
    "stdio": ("StdioFilesTests",),
    "threads": ("ThreadTestsBuilder",),
    "time": ("TimeTestsBuilder",),
}


class IdleSocket:
    """A socket that receives nothing; it keeps a poller in the reactor."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()

    def fileno(self) -> int:
        """See IFileDescriptor."""
        return self._near.fileno()

    def logPrefix(self) -> str:
        """See ILoggingContext."""
        return "idle socket"

    def connectionLost(self, reason: Failure) -> None:
        """Close."""
        self._near.close()
        self._far.close()


class EPollReactor(TowerReactor):
    """Tower's reactor with a poller in it; Twisted's tests skip by this name what epoll cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets = Poller(self)  # type: ignore[arg-type]
        self._sockets.addReader(IdleSocket())

    def removeAll(self) -> list[Any]:
        """Return them without the poller, which the tests do not expect."""
        removed = super().removeAll()
        if self._sockets in removed:
            removed.remove(self._sockets)
            self._sockets.connectionLost(Failure(ConnectionError()))
        return removed


def _test_case(module: str, name: str) -> type[SynchronousTestCase]:
    """Return a test case for `EPollReactor`."""
    builder = namedAny(f"twisted.internet.test.test_{module}.{name}")
    attributes = {"__module__": __name__, "__doc__": builder.__doc__, "reactorFactory": EPollReactor}
    return type(name, (builder, SynchronousTestCase), attributes)


globals().update({name: _test_case(module, name) for module, names in BUILDERS.items() for name in names})


class ProgramTests(harness.TowerTestCase):
    """``twistd --reactor`` with the proxy and an agent."""

    reactor = "tower"

    def program(self, program: Program, environment: dict[str, str] | None = None) -> Program:
        """Return *program* in a ``twistd`` with the reactor."""
        name, *options = program.argv
        twistd = [script("twistd"), "-n", "--pidfile=", f"--reactor={self.reactor}"]
        argv = [*twistd, name.rpartition("/")[2], *options]
        return Program(program.name, argv, self.folder, environment)

    def new_tower(self) -> harness.Tower:
        """Return a proxy in the reactor."""
        tower = super().new_tower()
        tower.proxy = self.program(tower.proxy)
        return tower

    def test_requests(self) -> None:
        """Requests are answered, and both programs end properly."""
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.tower.tower("cluster", "add", "alpha")
        agent = self.tower.agent("alpha", backend.kubeconfig("alpha"))
        agent.program = self.program(agent.program, agent.environment)
        agent.program.start()
        agent.wait_until_ready()
        jane = self.tower.person("alpha", "jane", "--group=dev")
        for _ in range(20):
            self.assertEqual(jane.get("/version").status, 200)
        for program in (agent.program, self.tower.proxy):
            self.assertTrue(program.stop(), program.tail())


class EPollProgramTests(ProgramTests):
    """Twisted's default on Linux."""

    reactor = "epoll"


class SelectProgramTests(ProgramTests):
    """The portable reactor."""

    reactor = "select"


class AsyncioProgramTests(ProgramTests):
    """The reactor on asyncio's loop, for programs that also use its libraries."""

    reactor = "asyncio"
