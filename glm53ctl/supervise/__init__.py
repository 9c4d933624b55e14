"""Rank supervision: one program a node keeps its engine and the pair in step.

`rank` runs the life of one rank; `link` joins the supervisors; `guard` makes sure that nothing of
an engine survives its supervisor; the other modules are the judgements those three act on.
"""
