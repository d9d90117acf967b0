"""Collectors of the metrics of the proxy; `tower.control.metrics.proxy_metrics` lists all."""
