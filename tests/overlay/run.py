"""Runs the overlay's tests in the engine's Python, which has torch and vLLM but no pytest.

    .engine/bin/python tests/overlay/run.py SITE_PACKAGES_WITH_PYTEST [pytest's arguments]

pytest comes from the tools' environment. That is the last place looked at, so the engine's own
packages win; and only named plugins are loaded, since others may want the tools' versions.
"""

import os
import sys


def main() -> int:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    sys.path.append(sys.argv[1])
    import pytest

    return pytest.main(["-q", "-p", "pytest_timeout", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
