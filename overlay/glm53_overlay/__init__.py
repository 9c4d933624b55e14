"""vLLM plugin of the GLM-5.3-Flash appliance: entry points only, no source patches."""

__version__ = "0.1.0"
