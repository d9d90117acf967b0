"""The resources `accesspolicies` and `accessreviews` of Tower's own API.

`policies_api` serves policies, `policy_form` describes them to the writer, and `policy_preview` lists
the effects of a change.  `access_reviews` explains whether a user enters a cluster.
"""
