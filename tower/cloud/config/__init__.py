"""Configuration files of cloud providers: gcfg syntax, sections, public keys, URLs."""
