"""Tower: one secure front door to all your Kubernetes clusters, wherever they run."""

__version__ = "1.0.0.dev0"
