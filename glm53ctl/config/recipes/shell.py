"""Reads the assignments of a shell file without a shell: nothing in it is ever executed.

What is not a plain assignment (a command, a condition, a substitution) is reported with its line.
An assignment inside a condition or a loop is not read either, because whether it happens is for
the code to decide.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_EXPORT = re.compile(r"export\s+")
_BLANKS = re.compile(r"(?:[ \t\n;]|\\\n)*")
_TILDE = re.compile(r"(?:[^\s'\"\\$;]*:)?~")
_SETS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^]]*\])?\+?=")
_DECLARES = frozenset(("export", "declare", "readonly", "typeset", "local", "unset"))
_LEADS = frozenset(("if", "elif", "while", "until", "then", "do", "else", "!", "{"))
"""Words after which a command begins."""
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_OPENERS = frozenset(("if", "for", "while", "until", "case", "select", "{", "("))
_CLOSERS = frozenset(("fi", "done", "esac", "}", ")"))
_CODE = frozenset("&|<>();`")

CODE = "shell code is not executed"
SPACES = "a value with spaces needs quotes; a shell would run the rest"
HOME = "a shell puts a home directory in the place of ~; write the whole path"
UNSET = "it refers to {}, which the file does not set"


@dataclass(frozen=True)
class Assigned:
    """One variable and the line it is set on."""

    line: int
    name: str
    value: str


@dataclass(frozen=True)
class Unread:
    """A line that was left alone, the variable it would set ("" for none), and why."""

    line: int
    name: str
    reason: str


@dataclass
class ShellFile:
    """What a shell file says plainly, and what it says in code."""

    assigned: dict[str, Assigned] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)


class _NotPlainError(Exception):
    """The value is not a plain one; the argument says why."""


# --- statements ----------------------------------------------------------------------------------


def _statement_end(text: str, start: int) -> int:
    """Return where a statement ends: the first newline outside quotes and parentheses."""
    position, depth, quote = start, 0, ""
    while position < len(text):
        char = text[position]
        if char == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "#" and (position == start or text[position - 1] in " \t\n;"):
            end = text.find("\n", position)
            position = (len(text) if end < 0 else end) - 1
        elif char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        elif char == "\n" and depth == 0:
            return position
        position += 1
    if quote and (line_end := text.find("\n", start)) >= 0:
        return line_end  # a quote that nothing closes spoils its own line, not all that follow
    return len(text)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with its first line; bodies of here-documents are passed over."""
    position, line = 0, 1
    while position < len(text):
        end = _statement_end(text, position)
        statement = text[position:end]
        yield line, statement
        line += statement.count("\n") + 1
        position = end + 1
        plain = statement.lstrip().startswith("#") or _ASSIGNMENT.match(statement.lstrip())
        if not plain and (heredoc := _HEREDOC.search(statement)):
            body = re.compile(rf"^\t*{heredoc[2]}$", re.MULTILINE).search(text, position)
            past = body.end() + 1 if body else len(text)
            line += text.count("\n", position, past)
            position = past


def _depth_change(statement: str) -> int:
    """Return how many blocks a statement opens, less those it closes."""
    change = 0
    bare = _QUOTED.sub("''", statement)
    for command in re.split(r";|&&|\|\||\n|\b(?:then|do|else)\b", bare):
        words = command.split("#", 1)[0].split()
        if not words:
            continue
        opens = words[0] in _OPENERS or "{" in words
        change += opens - (words[0] in _CLOSERS)
    return change


# --- values --------------------------------------------------------------------------------------


@dataclass
class _Scanner:
    """A position in one statement, and the variables known so far."""

    text: str
    known: dict[str, str]
    position: int = 0

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def take(self) -> str:
        char = self.peek()
        self.position += 1
        return char

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self.text, self.position):
            self.position = found.end()
        return found

    def skip_blanks(self) -> None:
        self.match(_BLANKS)

    def rest(self) -> str:
        return self.text[self.position :].strip()

    def word(self, stop: str) -> str:
        """Return characters, with quotes and variables resolved, up to one of `stop`."""
        parts: list[str] = []
        while (char := self.peek()) and char not in stop:
            parts.append(self._piece(char))
        return "".join(parts)

    def _piece(self, char: str) -> str:
        if char == "'":
            return self._single()
        if char == '"':
            return self._double()
        if char == "$":
            return self._variable()
        if char in _CODE:
            raise _NotPlainError(CODE)
        self.position += 1
        return self._escaped() if char == "\\" else char

    def _escaped(self) -> str:
        char = self.take()
        return "" if char == "\n" else char

    def _single(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise _NotPlainError("the quote is never closed")
        inner = self.text[self.position + 1 : end]
        self.position = end + 1
        return inner

    def _double(self) -> str:
        self.position += 1
        parts: list[str] = []
        while (char := self.peek()) != '"':
            if not char:
                raise _NotPlainError("the quote is never closed")
            if char == "`":
                raise _NotPlainError(CODE)
            parts.append(self._variable() if char == "$" else self._double_char())
        self.position += 1
        return "".join(parts)

    def _double_char(self) -> str:
        char = self.take()
        if char != "\\":
            return char
        following = self.take()
        if following == "\n":
            return ""
        return following if following in '"\\$`' else char + following

    def _variable(self) -> str:
        self.position += 1
        if name := self.match(_NAME):
            return self._known(name[0])
        if self.peek() != "{":
            raise _NotPlainError(CODE)
        self.position += 1
        name = self.match(_NAME)
        if name is None:
            raise _NotPlainError(CODE)
        return self._braced(name[0])

    def _braced(self, name: str) -> str:
        if self.peek() == "}":
            self.position += 1
            return self._known(name)
        also_when_empty = self.peek() == ":"
        self.position += also_when_empty
        if self.take() != "-":
            raise _NotPlainError(CODE)
        if self.peek() == "~":
            raise _NotPlainError(HOME)
        default = self.word("}")
        if self.take() != "}":
            raise _NotPlainError(CODE)
        value = self.known.get(name)
        return default if value is None or (also_when_empty and not value) else value

    def _known(self, name: str) -> str:
        if name not in self.known:
            raise _NotPlainError(UNSET.format(name))
        return self.known[name]


def _assignments(statement: str, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a statement of nothing but assignments sets."""
    scanner = _Scanner(statement, dict(known))
    scanner.skip_blanks()
    exported = scanner.match(_EXPORT) is not None
    after_value = False
    while scanner.peek() and scanner.peek() != "#":
        if found := scanner.match(_ASSIGNMENT):
            if _TILDE.match(statement, scanner.position):
                raise _NotPlainError(HOME)
            value = scanner.word(" \t\n;")
            scanner.known[found[1]] = value
            after_value = True
            yield found[1], value
        elif not (exported and scanner.match(_NAME)):  # `export NAME` sets nothing
            plain = re.match(r"[-\w./:,=]+(\s|$)", scanner.rest())
            raise _NotPlainError(SPACES if plain and after_value else CODE)
        scanner.skip_blanks()


def _words(statement: str) -> Iterator[str]:
    """Yield the words of a statement as they are written, and ";" where a command ends."""
    word, quote, depth, chars = "", "", 0, iter(statement)
    for char in chars:
        piece = char
        if char == "\\" and quote != "'":
            piece = (char + next(chars, "")).removesuffix("\\\n")
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "(" or (char == "{" and word.endswith("$")):
            depth += 1
        elif char in ")}" and depth:
            depth -= 1
        elif char == "#" and not word:
            return
        elif char in " \t\n;&|" and not depth:
            if word:
                yield word
            if char not in " \t":
                yield ";"
            word, piece = "", ""
        word += piece
    if word:
        yield word


def _targets(statement: str) -> list[str]:
    """Return the names that a statement of code seems to set or unset."""
    names: dict[str, None] = {}
    command = ""
    for word in _words(statement):
        if word == ";":
            command = ""
        elif (found := _SETS.match(word)) and command in {"", *_DECLARES}:
            names[found[1]] = None
        elif command == "unset" and _NAME.fullmatch(word):
            names[word] = None
        elif not command and word not in _LEADS:
            command = word
    return list(names)


def _plain_pairs(statement: str, found: ShellFile) -> list[tuple[str, str]]:
    known = {name: entry.value for name, entry in found.assigned.items()}
    return list(_assignments(statement, known))


def _leave(found: ShellFile, line: int, statement: str, reason: str, *, in_block: bool) -> None:
    """Record a statement that is not read."""
    for name in _targets(statement) or [""]:
        found.unread.append(Unread(line, name, reason))
        if not in_block:
            found.assigned.pop(name, None)  # code sets it again: the earlier value is not sure


def read_shell(text: str) -> ShellFile:
    """Return the plain assignments of a shell file; the last one of a name counts."""
    found = ShellFile()
    depth = 0
    for line, statement in _statements(text.replace("\r\n", "\n").removeprefix("\ufeff")):
        if not statement.strip() or statement.lstrip().startswith("#"):
            continue
        in_block = depth > 0
        try:
            pairs = [] if in_block else _plain_pairs(statement, found)
        except _NotPlainError as error:
            _leave(found, line, statement, str(error), in_block=False)
            depth = max(0, _depth_change(statement))
            continue
        if in_block:
            _leave(found, line, statement, CODE, in_block=True)
            depth = max(0, depth + _depth_change(statement))
        for name, value in pairs:
            found.assigned[name] = Assigned(line, name, value)
    return found
