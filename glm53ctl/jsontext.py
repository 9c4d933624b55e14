"""JSON that anybody may have written."""

import json
from typing import Any


def json_or_none(text: str) -> Any:
    """Return what a text says as JSON, None where it is none or nested too deeply to read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
