"""vLLM plugin of the GLM-5.3-Flash appliance. Entry points only; nothing of vLLM is patched on disk."""

__version__ = "0.1.0"
