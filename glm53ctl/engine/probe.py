"""Runs inside the engine's own Python and prints what it finds there, as one line of JSON.

It is started by path and must not import the rest of glm53ctl, which the engine does not have.
"""

import importlib
import json
import platform
from importlib import metadata

OVERLAY = "glm53-overlay"
PLUGIN_GROUP = "vllm.general_plugins"


def facts() -> dict[str, object]:
    """Import the engine for real and describe it."""
    torch = importlib.import_module("torch")
    vllm = importlib.import_module("vllm")
    platforms = importlib.import_module("vllm.platforms")
    # What `vllm serve` imports, and where a missing package has been seen to bite first.
    importlib.import_module("vllm.entrypoints.openai.api_server")
    return {
        "python": platform.python_version(),
        "vllm": vllm.__version__,
        "platform": platforms.current_platform.device_type,
        "torch": torch.__version__,
        **_overlay(),
    }


def _overlay() -> dict[str, object]:
    try:
        overlay = metadata.distribution(OVERLAY)
    except metadata.PackageNotFoundError:
        return {"overlay": None, "entry_point": False}
    plugins = overlay.entry_points.select(group=PLUGIN_GROUP)
    for plugin in plugins:
        plugin.load()  # vLLM would log a failure here and start without the plugin
    return {"overlay": overlay.version, "entry_point": bool(plugins)}


if __name__ == "__main__":
    print("\n" + json.dumps(facts()))
