"""Configuration files of cloud providers: their text, sections and keys, URLs, and public SSH keys.

`tower.cloud.gcfg` parses the files' INI dialect.  Start with `tower.cloud.config.sections`.
"""
