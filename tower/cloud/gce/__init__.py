"""Google Compute Engine: instances, and keys in metadata."""
