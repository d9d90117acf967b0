"""tower-proxy for ``twistd -n -y proxy.tac``, in a container or a unit; TOWER_ variables say every flag."""

from __future__ import annotations

from twisted.application.service import Application

from tower.proxy import Options, makeService

options = Options()
options.parseOptions([])
application = Application("tower-proxy")
makeService(options).setServiceParent(application)
