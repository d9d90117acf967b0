"""tower-agent for ``twistd -n -y agent.tac``, in a container or a unit, with flags from TOWER_ variables."""

from __future__ import annotations

from twisted.application.service import Application
from twisted.logger import ILogObserver

from tower.agent import Options, makeService

options = Options()
options.parseOptions([])
application = Application("tower-agent")
application.setComponent(ILogObserver, options.log_observer())
makeService(options).setServiceParent(application)
