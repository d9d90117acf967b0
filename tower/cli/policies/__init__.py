"""The commands ``tower access``: `arguments` defines them, `commands` runs them."""
