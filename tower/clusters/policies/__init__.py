"""Access policies: the users that may enter clusters without a credential that Tower issued.

Start with `access_policy`, the record; `policy_object` reads and shows its object, `access_policies` writes
it, and `policy_index` finds the policies of a user.
"""
