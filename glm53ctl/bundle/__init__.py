"""`glm53ctl support-bundle`: what a stranger needs to help, and nothing that is not his business.

Structured data goes through lists of what is allowed, logs through a reader that passes only lines
of known shapes, and everything through one `Redactor` (glm53ctl/redact.py).
"""
