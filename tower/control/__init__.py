"""The control plane of the proxy: its options, services that follow its records, and its metrics.

Start with `tower.control.proxy_options`; `tower.control.planes` composes everything for `tower.proxy`.
`tower.control.availability` sets the condition `Available` and those that it sums up;
`tower.control.metrics.cluster_metrics` collects the clusters' metrics.  May import `tower.web` and below.
"""
