"""Turns a shell recipe's `.env` or `local.sh` into settings, and says what became of every line.

Nothing in the file is executed.
"""

from glm53ctl.config.recipes.importer import Imported, import_file, import_recipe, render_imported
from glm53ctl.config.recipes.work import Note, Verdict

__all__ = ["Imported", "Note", "Verdict", "import_file", "import_recipe", "render_imported"]
