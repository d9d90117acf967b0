"""``python -m tests.soak``: mixed load on real programs for as long as you like; every byte is checked.

It fails when an answer is wrong, when something fails that nothing has broken on purpose, or when a program
grows.  By hand, since it takes long: ``make soak``, or ``make soak SOAK=600`` for ten minutes.
"""
