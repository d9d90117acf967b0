"""The commands of ``tower store``.

Start with `tower.cli.records.store_copy`.
"""
