"""The page an owner looks at: what the pair is, does and lacks, in any browser, read-only.

It knows a source of views and nothing of how they are collected.
"""
