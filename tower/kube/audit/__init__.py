"""Audit policies in the format of kube-apiserver (``audit.k8s.io/v1``), and bodies for events; without I/O.

`policy_file` reads and checks a file, `policy` decides on requests, `bodies` makes JSON of bodies.
"""
