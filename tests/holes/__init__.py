"""One test, or a few, for each numbered hole of KubeSphere Tower; docs/holes.md lists them."""
