"""What the schema's fields say of themselves: the strings below them, read from the source.

Pydantic can do it as well, for every class as it is imported: a third of the time that `glm53ctl
status` takes, for texts that only documents need.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from glm53ctl.config.schema import Config, Section, Setting


@cache
def docstrings(section: type[Section]) -> Mapping[str, str]:
    """Return the docstring of each field of a section that has one."""
    module = ast.parse(textwrap.dedent(inspect.getsource(section)))
    body = next(node.body for node in module.body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def description(setting: Setting) -> str:
    """Return what a setting says of itself."""
    return docstrings(setting.section).get(setting.key[-1], "")


def json_schema() -> dict[str, Any]:
    """Return the configuration's JSON schema, with all descriptions."""
    schema = Config.model_json_schema()
    for section in Section.__subclasses__():
        node = schema if section is Config else schema["$defs"].get(section.__name__)
        for name, text in docstrings(section).items() if node is not None else ():
            node["properties"][name]["description"] = text
    return schema
