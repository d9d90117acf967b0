"""`tower install-systemd`: the programs as services of systemd.

Start with `install`.  `service_files` has the files of a service, from ``deploy/systemd/``, which is package
data (``tower/deploy``); `machine` is the machine, or an image of one, that they are written to.  May import
`tower.cli.client` and the rooms above `tower.cli` in the table of ``docs/architecture.md``.
"""
