"""OpenStack: Nova's servers, and keys in their metadata."""
