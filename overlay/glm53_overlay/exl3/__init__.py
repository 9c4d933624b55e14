"""EXL3 in vLLM: the routed experts stay packed, everything else is native."""
