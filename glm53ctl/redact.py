"""What leaves this host in a report, made safe to show: the one place for records, logs, bundles.

Texts are searched through a `_View`, in which escapes are decoded and line wraps are folded, so
that a secret is found however it was printed; what is found is replaced where it really stands.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import pairwise

from glm53ctl.config.masks import (
    KEY_VARIABLE,
    MORE_SECRET_NAMES,
    NOT_SHOWN,
    TOKEN_PREFIXES,
    names_a_secret,
)

_FOLD = "\0"
"""Stands for a line wrap in a view, and may stand between any two characters of what is sought."""

Span = tuple[int, int]


def _split(pattern: str) -> re.Pattern[str]:
    """Compile a pattern whose every `~` allows folds."""
    return re.compile(pattern.replace("~", _FOLD + "*"))


def _letters(word: str) -> str:
    return "~".join(map(re.escape, word))


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(_letters, words))


# --- the view ------------------------------------------------------------------------------------

_ESCAPE = re.compile(
    r"%(?P<percent>[2-7][0-9A-Fa-f])|\\u00(?P<json>[2-7][0-9A-Fa-f])|\\x(?P<hex>[2-7][0-9A-Fa-f])|"
    r"\\(?P<literal>[/\"'])|(?P<fold>\\*(?:\r?\n|\\r\\n|\\n|\\r)[ \t]*)"
)


@dataclass(frozen=True)
class _View:
    """A text as it was meant, and where each of its characters begins and ends in the original."""

    text: str
    places: tuple[Span, ...]

    @classmethod
    def of(cls, original: str) -> "_View":
        """Decode escapes and fold wraps, once."""
        parts: list[str] = []
        places: list[Span] = []
        at = 0
        for found in _ESCAPE.finditer(original):
            parts.append(original[at : found.start()])
            places += ((i, i + 1) for i in range(at, found.start()))
            code = found["percent"] or found["json"] or found["hex"]
            parts.append(chr(int(code, 16)) if code else found["literal"] or _FOLD)
            places.append(found.span())
            at = found.end()
        parts.append(original[at:])
        places += ((i, i + 1) for i in range(at, len(original)))
        return cls("".join(parts), tuple(places))

    def span(self, start: int, end: int) -> Span:
        """Return where a piece of the view stands in the original."""
        return self.places[start][0], self.places[end - 1][1]


Piece = tuple[Span, str]
"""What is to be replaced in the original, and by what."""


def _replaced(text: str, find: Callable[[_View], Iterable[Piece]]) -> str:
    """Replace what is found; of pieces that overlap the first found counts, and all is covered."""
    pieces = sorted(find(_View.of(text)), key=lambda piece: piece[0])
    parts: list[str] = []
    at = 0
    for (start, end), new in pieces:
        if start >= at:
            parts += [text[at:start], new]
        at = max(at, end)
    return "".join([*parts, text[at:]])


_PROMPT_KEYS = (
    "prompt",
    "message",
    "content",
    "input",
    "text",
    "query",
    "reasoning",
    "delta",
    "arguments",
    "suffix",
    "stop",
)
"""What requests and answers keep the user's words under."""

# --- secrets -------------------------------------------------------------------------------------

_TOKEN = _split(rf"(?<![A-Za-z0-9])(?:{_any_of(TOKEN_PREFIXES)})~[\w\0-]{{4,}}")
_ENDS = r"\s\"',;&})\]\\"
"""What ends a value without quotes, unless the value goes on behind it."""
_UNIT = (
    rf"(?:[^{_ENDS}]|[}})\]](?=[^{_ENDS}.\0])|"
    rf"[,;&](?=[^{_ENDS}\0])(?![\w-]+[\"']?\s*[=:]))"
)
_SCHEMES = ("bearer", "basic", "token", "digest", "apikey", "key")
_HEADERS = ("bearer", "authorization", "api-key", "api_key", "api key:", "cookie:")
_HEADER = _split(
    rf"(?i:{_any_of(_HEADERS)})[\"']?[\s\0]*[:=,]*"
    rf"(?:[\s\[(\0]|[bru]?[\"']|(?i:{_any_of(_SCHEMES)})\s)*(?<![\w-])(?P<secret>{_UNIT}{{3,}})"
)
_OPTION = re.compile(
    r"--[\w\0-]*(?i:token|secret|passw(?:or)?d|passphrase|api-?key|credentials?)[\"']?(?:[\s\0]|,)+"
    rf"[\"']?(?P<secret>(?!-){_UNIT}{{2,}})"
)
"""A command line's option with its value behind it, also as a list of words."""
_NAMED = re.compile(
    r"(?<!\w)(?P<name>[A-Za-z_][\w\0-]*)(?P<quote>[\"'])?\s*(?P<sign>[=:])[=>]*"
    r"(?P<open>(?:[\s\0\[(]|'(?=[\[(]+\")|\"(?=[\[(]+')|[A-Za-z.]{2,}\((?=[\"'])|[bru](?=[\"']))*)"
)
_BARE = re.compile(rf"{_UNIT}{{2,}}")
_CLOSING = re.compile(r"[\"'][\s\0]*(?:[,:;})\]]|$)")
"""A quote that ends what is around a name, as in `"api_key=", "next"`."""
_NEXT = re.compile(r"[\"']?[\s\0]*,[\s\0]*")
_USERINFO = _split(rf"{_letters('://')}~[^\s/@:\"']*:(?P<secret>[^\s/\"'<>]+)@")
_LONGEST_QUOTED = 1000
_NO_SECRET = re.compile(
    rf"(?i)none|null|true|false|not|auto|bearer|basic|{re.escape(NOT_SHOWN.lower())}"
)
"""What stands where a secret could: no value, or our own `(not shown)`."""

_PASS = re.compile(r"(?:[A-Z0-9_]+_|(?i:user|db|admin|login|auth)_)?(?i:pass|pwd)")
_NO_PASSWORD = re.compile(r"[~./].*|\d{1,2}(?:/\d+|%)?", re.DOTALL)
"""`pass` counts and `PWD` is a directory more often than they are passwords."""


def _find_secrets(view: _View, known: Iterable[str] = ()) -> Iterator[Piece]:
    for secret in known:
        for found in _split(_letters(secret)).finditer(view.text):
            yield view.span(*found.span()), NOT_SHOWN
    for found in _TOKEN.finditer(view.text):
        yield view.span(*found.span()), NOT_SHOWN
    for pattern in (_HEADER, _OPTION, _USERINFO):
        for found in pattern.finditer(view.text):
            if not _NO_SECRET.fullmatch(found["secret"]):
                yield view.span(*found.span("secret")), NOT_SHOWN
    for found in _NAMED.finditer(view.text):
        strong = _names_one(found["name"])
        if strong or _names_a_password(found, view.text):
            for start, end in _values(view, found.end(), several=set("[(") & set(found["open"])):
                value = view.text[start:end]
                if not _NO_SECRET.fullmatch(value) and (strong or not _NO_PASSWORD.match(value)):
                    yield view.span(start, end), NOT_SHOWN


def _names_one(name: str) -> bool:
    """Say whether a name, which may begin in a line before, is one of a secret."""
    whole, tail = (part.replace("-", "_") for part in (name.replace(_FOLD, ""), _tail(name)))
    if whole.lower().endswith("_file"):
        return False
    found = MORE_SECRET_NAMES.search(whole) or KEY_VARIABLE.fullmatch(tail)
    return names_a_secret(whole) or found is not None


def _tail(name: str) -> str:
    return name.rpartition(_FOLD)[2]


def _names_a_password(found: re.Match[str], text: str) -> bool:
    """Say whether a name is a short one of a password, and not a word before a colon."""
    name = _tail(found["name"]).replace("-", "_")
    first = found.start() == 0 or text[found.start() - 1] in "\0{[(,;" or name != found["name"]
    alone = found["sign"] == "=" or found["quote"] or first or "_" in name
    return bool(alone and _PASS.fullmatch(name))


def _values(view: _View, at: int, *, several: Collection[str]) -> Iterator[Span]:
    """Yield where the value that begins at `at` of a view stands, of a list every one."""
    while (value := _value(view, at)) is not None:
        yield value
        then = _NEXT.match(view.text, value[1])
        if not several or then is None:
            return
        at = then.end()


def _value(view: _View, at: int) -> Span | None:
    """Return where one value stands, without its quotes; None if there is none."""
    text = view.text
    if _CLOSING.match(text, at):
        return None
    if text[at : at + 1] in ("'", '"'):
        for end in range(at + 1, min(len(text), at + _LONGEST_QUOTED)):
            if text[end] in "'\"" and _ends(view, at, end):
                stripped = text[at + 1 : end].rstrip("\\")
                return (at + 1, at + 1 + len(stripped)) if len(stripped) > 1 else None
        at += 1
    bare = _BARE.match(text, at)
    return bare.span() if bare else None


def _ends(view: _View, opened: int, end: int) -> bool:
    r"""Say whether a quote ends what another one began; one that is escaped within it does not.

    JSON within JSON has `"`, `\"` and `\\\"` for its quotes; behind pairs of backslashes is an end.
    """
    lengths = [stop - start for start, stop in (view.places[opened], view.places[end])]
    if max(lengths) > len(r"\""):  # %22
        return lengths[1] <= lengths[0]
    depth, count = _backslashes(view, opened), _backslashes(view, end)
    while depth and count % 2:
        depth, count = depth // 2, count // 2
    return count % 2 == 0


def _backslashes(view: _View, quote: int) -> int:
    start, stop = view.places[quote]
    count, at = stop - start - 1, quote - 1
    while at >= 0 and view.text[at] == "\\":
        count, at = count + 1, at - 1
    return count


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without keys and tokens: those of known shapes and names, and `known` ones."""
    return _replaced(text, lambda view: _find_secrets(view, known))


_PROMPT = _split(rf"(?i)[\"']?(?<![a-z])(?:{_any_of(_PROMPT_KEYS)})\w*[\"']?\s*[:=]")
_QUERY = re.compile(r"\?[^\s\"']+")


def without_prompt(line: str) -> tuple[str, bool]:
    """Return a line of a log up to where it quotes a request, and whether it did."""
    line = _QUERY.sub(f"?{NOT_SHOWN}", line) if " HTTP/" in line else line
    view = _View.of(line)
    found = _PROMPT.search(view.text)
    if found is None:
        return line, False
    return f"{line[: view.span(*found.span())[0]]}{NOT_SHOWN}", True


# --- addresses -----------------------------------------------------------------------------------

_COLONS = re.compile(r"[0-9A-Fa-f:.\0]{2,}")
_LONGEST_IPV6 = len("0000:0000:0000:0000:0000:0000:255.255.255.255")
_MOST_COLONS = 8
"""Of nine groups, the first or the last of which is empty."""
_HARMLESS = frozenset({"127.0.0.1", "0.0.0.0", "::1", "::", "255.255.255.255"})  # noqa: S104


def _addresses_in(run: str) -> Iterator[tuple[int, int, str]]:
    """Yield the IPv6 addresses in a run of their characters, of those within another none.

    A name may stand before one and a port behind it, with a colon between: an address can begin and
    end at any colon, at the dot of a sentence, and where a line was wrapped.
    """
    places = [i for i, char in enumerate(run) if char != _FOLD]
    bare = run.replace(_FOLD, "")
    wraps = {i for i, (a, b) in enumerate(pairwise(places), 1) if b - a > 1}
    marks = {i for i, char in enumerate(bare) if char in ":."}
    edges = wraps | marks | {i + 1 for i in marks} | {0, len(bare)}
    covered = 0
    for start in sorted(edges - {len(bare)}):
        for end in range(min(start + _LONGEST_IPV6, len(bare)), max(start, covered), -1):
            address = _as_ipv6(bare[start:end]) if end in edges else None
            if address is not None:
                if address not in _HARMLESS:
                    yield places[start], places[end - 1] + 1, address
                covered = end
                break


def _as_ipv6(text: str) -> str | None:
    """Return an IPv6 address in its one form, a mapped IPv4 address as such; None for others."""
    if not 2 <= text.count(":") <= _MOST_COLONS:
        return None
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return None
    return str(address.ipv4_mapped or address)


# --- records: facts that others judge ---------------------------------------------------------

_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")


def without_public_addresses(text: str) -> str:
    """Return a text with documentation addresses for public ones, which still parses as one.

    The same address becomes the same one everywhere, so that what belongs together still does.
    """
    seen: dict[str, str] = {}
    text = _IPV4.sub(lambda m: _stand_in_v4(m[0], seen), text)
    return _COLONS.sub(lambda m: _stand_in_v6(m[0], seen), text)


def _stand_in_v4(address: str, seen: dict[str, str]) -> str:
    try:
        public = IPv4Address(address).is_global
    except AddressValueError:
        return address
    return seen.setdefault(address, f"192.0.2.{len(seen) % 254 + 1}") if public else address


def _stand_in_v6(run: str, seen: dict[str, str]) -> str:
    """Replace the public ones in a run of an address's characters; those that overlap as one."""
    parts: list[str] = []
    at = 0
    for start, end, address in _addresses_in(run):
        if ":" not in address or not IPv6Address(address).is_global:
            continue
        if start >= at:
            parts += [run[at:start], seen.setdefault(address, f"2001:db8::{len(seen) + 1:x}")]
        at = end
    return "".join([*parts, run[at:]])


# --- bundles: texts for strangers ---------------------------------------------------------------

_DOTTED = _split(r"(?<!\d)(?:\d~){1,3}(?:\.~(?:\d~){1,3}){3}")
_MAC = _split(
    r"(?P<mac>(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]~){2}(?:[:-]~(?:[0-9A-Fa-f]~){2}){5,}|"
    r"(?<![0-9A-Fa-f.])(?:[0-9A-Fa-f]~){4}(?:\.~(?:[0-9A-Fa-f]~){4}){2}(?![0-9A-Fa-f]))"
)
_NAMED_BY_MAC = _split(r"(?<![A-Za-z0-9])e~n~x~(?P<mac>(?:[0-9a-f]~){12})(?![A-Za-z0-9])")
"""What systemd calls a network card on USB."""
_GUID = _split(
    r"(?P<mac>(?<![0-9A-Fa-f:])(?:0~x~(?:[0-9A-Fa-f]~){12,}|"
    r"(?:[0-9A-Fa-f]~){4}(?::~(?:[0-9A-Fa-f]~){4}){3}(?![0-9A-Fa-f:])))"
)
_BARE_MAC = str.maketrans("", "", f":-.{_FOLD}")
_RUN = re.compile(r"[\w+/=\0-]{20,}")
_URL_HOST = _split(rf"{_letters('://')}~(?P<host>[^\s/\"'<>,)\]]+)")
_SHORT_SUFFIXES = ("cc", "cu", "gz", "js", "md", "nn", "pt", "py", "rs", "sh", "so", "ts", "xz")
"""Two letters at the end of a file or of a module; any other two may be those of a country."""
_AT_HOST = re.compile(r"(?<![\w.+-])(?P<host>[\w.+-]+@[\w.\0-]+)")
_DOMAIN = re.compile(
    r"(?<![\w.-])(?P<host>(?:[A-Za-z0-9][\w-]*\.)+(?:"
    r"lan|local|localdomain|home|internal|intranet|arpa|box|com|net|org|info|dev|app|cloud|xyz|"
    rf"(?!(?:{'|'.join(_SHORT_SUFFIXES)})(?![\w-]))[a-z]{{2}}))(?![\w-])"
)
_HOME = _split(rf"(?:{_any_of(('/home/', '/Users/'))})~(?P<user>[^/\s\"':,;]+)")
_FEWEST_DIGITS = 3
"""Of a long word that may be a key; names in logs have fewer."""


@dataclass
class Redactor:
    """Makes texts safe to show, with one pseudonym for one thing in all of them.

    `secrets` are the host's own, `names` what its machines and users are called (and the pseudonym
    of each). Whatever looks like a key or an identifier gets a number.
    """

    secrets: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """Return a text without secrets, addresses, names of hosts and users, and identifiers."""
        return _replaced(text, self._find)

    def _alias(self, kind: str, value: str) -> str:
        """Return the pseudonym of a thing; kinds are counted each on its own."""
        count = sum(alias.startswith(f"({kind} ") for alias in self._seen.values())
        return self._seen.setdefault(f"{kind} {value.lower()}", f"({kind} {count + 1})")

    def _find(self, view: _View) -> Iterator[Piece]:
        yield from _find_secrets(view, self.secrets)
        yield from self._find_addresses(view)
        yield from self._find_names(view)
        for found in _RUN.finditer(view.text):
            word = found[0].replace(_FOLD, "").strip("/=-")
            if sum(map(str.isdigit, word)) >= _FEWEST_DIGITS:
                yield view.span(*found.span()), self._alias("id", word)

    def _find_addresses(self, view: _View) -> Iterator[Piece]:
        for pattern in (_MAC, _NAMED_BY_MAC, _GUID):
            for found in pattern.finditer(view.text):
                hard = found["mac"].translate(_BARE_MAC)
                yield view.span(*found.span("mac")), self._alias("mac", hard)
        for found in _DOTTED.finditer(view.text):
            address = found[0].replace(_FOLD, "")
            if address not in _HARMLESS:
                yield view.span(*found.span()), self._alias("ip", address)
        for found in _COLONS.finditer(view.text):
            for start, end, address in _addresses_in(found[0]):
                span = view.span(found.start() + start, found.start() + end)
                yield span, self._alias("ip", address)

    def _find_names(self, view: _View) -> Iterator[Piece]:
        for name, alias in self.names.items():
            pattern = _split(rf"(?i)(?<![A-Za-z0-9]){_letters(name)}(?![A-Za-z0-9])")
            for found in pattern.finditer(view.text):
                yield view.span(*found.span()), alias
        for pattern, kind in ((_URL_HOST, "host"), (_AT_HOST, "host"), (_DOMAIN, "host")):
            for found in pattern.finditer(view.text):
                host = found["host"].replace(_FOLD, "")
                bare = host.rpartition(":")[0] or host
                if bare not in _HARMLESS and not bare.startswith("localhost"):
                    yield view.span(*found.span("host")), self._alias(kind, host)
        for found in _HOME.finditer(view.text):
            yield view.span(*found.span("user")), self._alias("user", found["user"])
