"""The CPU engine on this machine: a locked vLLM in its own environment, installed and examined."""
