"""Clouds' APIs, played by servers that refuse what the real ones refuse."""
