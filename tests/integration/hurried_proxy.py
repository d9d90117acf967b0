"""``tower-proxy`` that notices a host cluster's frozen API server within seconds, to save time in tests."""

from __future__ import annotations

import sys

from tower.kube.rest import heartbeat, rest_client
from tower.proxy import main

PERIOD, PROBE_TIMEOUT = 1.0, 2.0  # s

if __name__ == "__main__":
    heartbeat.PERIOD = PERIOD
    rest_client.PROBE_TIMEOUT = PROBE_TIMEOUT
    sys.exit(main())
