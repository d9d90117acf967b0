"""Prints the page of all differences: ``python -m tests.integration.differential > docs/...``."""

from __future__ import annotations

import sys

from tests.integration.differential.page import page

sys.stdout.write(page())
