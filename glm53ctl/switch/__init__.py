"""`glm53ctl switch`: another profile for the pair, kept only if it proves itself.

Here is the asking side; the head decides (`supervise/trial.py`), also when nobody watches.
"""
