"""Rules about the requests that users may send, in the formats of kube-apiserver, without I/O.

`abac` has the policy files of its oldest mode, `rbac` the rules, roles and bindings of the usual one.
`field_problems` has the form of their errors, and `protobuf` decodes objects of clients that send protobuf.
"""
