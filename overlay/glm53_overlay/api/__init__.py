"""The API as clients of both recipes know it, around vLLM's own server.

`middleware.Middleware` (`--middleware`) sees every request and answer; `plugin.EndpointPlugin`
(entry point `glm53_api`) adds and replaces routes. What a request must be is decided by pure
functions in `requests`, `media` and `window`, what becomes of an answer in `answers`.

The rules about bodies have their counterpart in glm53ctl's linter, which explains a request that
somebody shows it. Neither can import the other: the engine's Python has no glm53ctl, the tools'
Python no overlay. `tests/unit/overlay/test_api_same_rules.py` holds both to the same verdicts.
"""
