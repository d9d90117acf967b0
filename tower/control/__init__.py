"""The control plane of the proxy: options, composition of its parts, and what follows the records.

Start with `tower.control.gateways`; the condition `AgentAvailable` is kept in `tower.control.availability`.
"""
