"""The clusters' own ports.

Start with `cluster_ports`: which cluster has which port.  `port_assignment` gives ports to clusters without
one, and releases unused ones.
"""
