"""Log of the programs: levels, text and JSON lines, and the thread that writes them.

`levels` decides which events are logged, and can change while the program runs.  `formats` makes the lines.
`writer` writes them: a full disk, a blocked pipe or a closed standard error does not affect a program.
`program_log` joins the three.
"""
