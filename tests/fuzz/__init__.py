"""``python -m tests.fuzz``: invalid inputs for everything that reads untrusted input.

Inputs are mutations of good ones and follow from a seed, so every finding can be reproduced.  A parser must
raise only its documented errors, come to an end, need little memory, give the same result for every cut of
the input, and accept nothing that a reference reads differently.
"""
