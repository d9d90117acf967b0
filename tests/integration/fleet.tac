"""Many agents in one process, for ``twistd -y``: their lists of arguments are in the file FLEET, as JSON."""

import json
import os
from pathlib import Path

from twisted.application.service import Application, IServiceCollection

from tower.agent import Options, makeService

application = Application("fleet")
services = IServiceCollection(application)
for arguments in json.loads(Path(os.environ["FLEET"]).read_text()):
    options = Options()
    options.parseOptions(arguments)
    makeService(options).setServiceParent(services)
