"""Azure: virtual machines and scale sets, and keys by the extension VMAccess."""
