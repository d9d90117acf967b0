"""Authentication of users: one module for each method, and the union of those that are configured.

Start with `identity`, the result, and `union`, which asks the methods in order.
"""
