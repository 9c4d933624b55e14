"""Every line of a recipe's settings file to a setting or a note."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import JsonValue

from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.layers import Layer, Origin, Said
from glm53ctl.config.masks import names_a_secret, shown
from glm53ctl.config.recipes import names
from glm53ctl.config.recipes.judge import keep_what_stands
from glm53ctl.config.recipes.names import NO_COUNTERPART, SAME_NAME, Recipe
from glm53ctl.config.recipes.nodes import make_nodes
from glm53ctl.config.recipes.shell import Assigned, read_shell
from glm53ctl.config.recipes.values import HANDLERS, JUDGED_WORD_BY_WORD, same
from glm53ctl.config.recipes.work import Note, Verdict, Work
from glm53ctl.config.validation import nested
from glm53ctl.credentials import stored
from glm53ctl.errors import UserError
from glm53ctl.plan.owned import owned_env


@dataclass
class Imported:
    """Settings as nested values, and a note for every line."""

    name: str
    values: dict[str, JsonValue]
    notes: list[Note]

    def to_yaml(self) -> str:
        """Return the settings as a configuration file."""
        text: str = yaml.safe_dump(self.values, sort_keys=False, allow_unicode=True)
        return text


def _recipe_of(variables: Mapping[str, Assigned]) -> Recipe:
    """Return the recipe that a file belongs to, by the names that only one of them has."""
    score = {recipe: len(telling & variables.keys()) for recipe, telling in names.TELLING.items()}
    return max(Recipe, key=lambda recipe: score[recipe])


def _paths_of(recipe: Recipe) -> dict[str, str]:
    """Return settings by recipe name; the other recipe's names count where they are free."""
    merged: dict[str, str] = {}
    for other in (*(r for r in Recipe if r is not recipe), recipe):
        merged.update(SAME_NAME[other])
    return merged


def _reason_for_none(work: Work, name: str) -> str | None:
    """Return why a known name has no setting, None for an unknown name."""
    if work.recipe is Recipe.TENSORFOLD and name in names.OF_TENSORFOLD:
        return names.OF_TENSORFOLD[name]
    if name in owned_env() and name not in NO_COUNTERPART:
        return names.OWNED
    families = (why for start, why in names.FAMILIES if name.startswith(start))
    return NO_COUNTERPART.get(name) or next(families, None)


def _unknown(name: str) -> str:
    known = [*SAME_NAME[Recipe.VLLM], *SAME_NAME[Recipe.TENSORFOLD], *HANDLERS, *NO_COUNTERPART]
    close = difflib.get_close_matches(name, [*known, *names.NODE_NAMES], n=1, cutoff=0.75)
    return "neither recipe has this name" + (f"; did it mean {close[0]}?" if close else "")


def _secret(work: Work, variable: Assigned) -> None:
    credential = names.SECRETS.get(variable.name)
    if not variable.value:
        work.note(variable, Verdict.NO_COUNTERPART, "it is empty: no secret is set")
    elif credential:
        work.credentials.add(credential)
        reason = f"put it into {stored(credential)} (mode 0600) on the head"
        work.note(variable, Verdict.SECRET, reason)
    else:
        why = _reason_for_none(work, variable.name) or "no setting needs it"
        work.note(variable, Verdict.SECRET, f"not taken: {why}")


def _variable(work: Work, variable: Assigned, paths: Mapping[str, str]) -> None:
    """Take one variable, or note why not."""
    name = variable.name
    none = _reason_for_none(work, name)
    if name in names.NODE_NAMES:
        return
    if name in names.SECRETS or names_a_secret(name):
        _secret(work, variable)
    elif name in HANDLERS:
        HANDLERS[name](work, variable)
    elif work.recipe is Recipe.TENSORFOLD and name in names.OF_TENSORFOLD:
        work.note(variable, Verdict.NO_COUNTERPART, names.OF_TENSORFOLD[name])
    elif name in paths:
        same(work, variable, paths[name])
    elif none is not None:
        work.note(variable, Verdict.NO_COUNTERPART, none)
    else:
        work.note(variable, Verdict.UNKNOWN, _unknown(name))


def _tree(work: Work) -> dict[str, JsonValue]:
    """Return what was taken as nested values, in the order of the schema."""
    origin = Origin(Layer.FILE, "")
    taken = {path: Said(work.taken[path].value, origin) for path in LEAVES if path in work.taken}
    return {"profile": names.PROFILE_OF[work.recipe], **nested(taken)}


def _taken_notes(work: Work) -> Iterator[Note]:
    for path, one in work.taken.items():
        if path == "nodes":
            for variable in (v for name, v in work.variables.items() if name in work.used):
                yield Note(variable.line, variable.name, Verdict.TAKEN, "part of nodes")
        else:
            reason = f"{path}: {shown(path, one.value)}"
            yield Note(one.line, one.key, Verdict.TAKEN, reason)


def _changed(work: Work) -> Iterator[Note]:
    """Yield what is different here although the file does not mention it."""
    if "api.host" not in work.taken:
        reason = "the recipe listens on every address, here on 127.0.0.1: see api.host"
        yield Note(0, "HOST", Verdict.CHANGED, reason)
    reason = "the licences of checkpoint and draft must be accepted: see licenses.accept"
    yield Note(0, "licenses", Verdict.CHANGED, reason)


def _silent(work: Work) -> Iterator[Note]:
    """Yield a note for each variable that nothing was said about."""
    said = {note.key for note in work.notes}
    for variable in work.variables.values():
        if variable.name not in said:
            reason = "nothing here is made of it"
            yield Note(variable.line, variable.name, Verdict.NO_COUNTERPART, reason)


def import_recipe(text: str, name: str, *, head_address: str | None = None) -> Imported:
    """Read a recipe's settings file without executing it.

    `name` is what messages call the file. `head_address` is the head's fabric address for the
    TensorFold recipe, which finds it at start and does not write it down.
    """
    shell = read_shell(text)
    work = Work(_recipe_of(shell.assigned), shell.assigned)
    for unread in shell.unread:
        reason = f"not read: {unread.reason}"
        work.notes.append(Note(unread.line, unread.name, Verdict.NOT_READ, reason))
    paths = _paths_of(work.recipe)
    lists = [v for v in shell.assigned.values() if v.name in JUDGED_WORD_BY_WORD]
    single = [v for v in shell.assigned.values() if v.name not in JUDGED_WORD_BY_WORD]
    # Names that others lean on come first: what counts of *_TOKENS depends on the method.
    for variable in sorted(single, key=lambda v: v.name in HANDLERS):
        _variable(work, variable, paths)
    make_nodes(work, head_address)
    keep_what_stands(work)
    for variable in lists:
        _variable(work, variable, paths)
    keep_what_stands(work)
    work.notes += _changed(work)
    work.notes += _taken_notes(work)
    work.notes += _silent(work)
    return Imported(name, _tree(work), sorted(work.notes))


def import_file(path: Path, *, head_address: str | None = None) -> Imported:
    """Read a recipe's settings file from the disk; see `import_recipe`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError("CFG_FILE", f"{path}: cannot read it: {what}.") from None
    return import_recipe(text, str(path), head_address=head_address)


def _line(name: str, note: Note) -> str:
    """Return a note as one line for a terminal."""
    place = f"{name}:{note.line}" if note.line else name
    verdict = "" if note.verdict is Verdict.NOT_READ else f"{note.verdict.value}: "
    return ": ".join(part for part in (place, note.key, verdict + note.reason) if part)


def render_imported(imported: Imported) -> tuple[str, list[str]]:
    """Return the configuration file, and one line for a terminal about each line read."""
    return imported.to_yaml(), [_line(imported.name, note) for note in imported.notes]
