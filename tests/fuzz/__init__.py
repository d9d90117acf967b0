"""``python -m tests.fuzz``: everything that reads what others wrote gets what nobody should write.

Inputs are mutations of good ones and follow from a seed, so every finding can be had again.  What a parser
has to keep: it raises what its documentation says and nothing else, comes to an end, needs no memory to
speak of, does the same however the input is cut, and accepts nothing that a reference reads in another way.
"""
