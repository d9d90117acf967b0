"""Cloud providers: which instances there are, and how a key gets to them."""
