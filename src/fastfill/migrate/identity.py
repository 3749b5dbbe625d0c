"""`ModelIdentity`: what makes a model the same one, its name and every setting of its vectors.

An encoder tells its settings by `identity`, texts by name: the prompts that it really puts before
texts, and the like. What its name says in options counts too, in any order.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from fastfill.errors import MigrationError
from fastfill.gallery import State
from fastfill.migrate.encoding import Encode

RUNTIME_OPTIONS = ("device", "batch", "tokens")  # of an encoder's name: they change no vector
ITEMS, QUERIES = "encode", "encode_query"  # settings of a function that tells none itself
# Names of what may be another one elsewhere, or tomorrow.
CHANGEABLE = re.compile("key|token|secret|password|device|cache", re.IGNORECASE)


@dataclass(frozen=True)
class ModelIdentity:
    """A model by its name without options, what these say, and all its settings, where known.

    >>> ModelIdentity.of("tiny?dim=8&device=cuda", sorted)
    ModelIdentity(name='tiny', typed={'dim': '8'}, settings={'dim': '8'})
    """

    name: str
    typed: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None

    @classmethod
    def of(cls, encoder_name: str, encode: Encode | None) -> ModelIdentity:
        """Of an encoder and the name that it was opened by."""
        name, typed = split_name(encoder_name)
        return cls(name, typed, None if encode is None else {**typed, **settings_of(encode, name)})

    @property
    def tag(self) -> str:
        """The short mark of the model on the rows that it has embedded.

        >>> ModelIdentity.of("my_module:encode", None).tag
        'db0ffe2063a3'
        """
        known = self.typed if self.settings is None else self.settings
        settings = urlencode(sorted(known.items()), quote_via=quote)
        text = f"{self.name}?{settings}" if settings else self.name
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def prompts(self) -> str:
        """What is put before items and queries, in words; empty where the encoder does not tell.

        >>> ModelIdentity("tiny", {}, {"prompt": "item: ", "query_prompt": ""}).prompts
        "puts 'item: ' before items and nothing before queries"
        """
        told = self.settings or {}
        if "prompt" not in told or "query_prompt" not in told:
            return ""
        items, queries = told["prompt"], told["query_prompt"]
        if items or queries:
            return f"puts {_put(items)} before items and {_put(queries)} before queries"
        if told.get("input_type") or told.get("query_input_type"):
            return ""
        return (
            "puts no prompt before items or queries; if the model's card asks for one, give it in "
            "the encoder's name (?prompt=…&query_prompt=…)"
        )

    def differences(self, state: State) -> tuple[str, ...]:
        """What is not as it was when the state's model was chosen; nothing: it is the same model.

        >>> from fastfill.gallery import Columns
        >>> state = State("started", Columns("id", "text", "vector"), "l2", "tiny", "1f", 8,
        ...               settings={"prompt": "a: "})
        >>> ModelIdentity("tiny", {}, {"prompt": "b: "}).differences(state)
        ("prompt was 'a: ' and is 'b: '",)
        """
        name, typed = split_name(state.encoder)
        if name != self.name:
            return (f"the encoder was {name} and is {self.name}",)
        was, now = state.settings, self.settings
        if was is None or now is None:
            # A version before kept no settings beside the name: its migrations go on where the
            # name says the same, since nothing is known that contradicts it.
            was, now = typed, self.typed
        # Nor did versions before look into the function of items, nor does anybody into one that
        # is not the one of the name.
        known = {*was, *now} if ITEMS in was and ITEMS in now else {*was, *now} - {ITEMS}
        changed = (key for key in sorted(known) if was.get(key) != now.get(key))
        return tuple(
            f"{key} {_told(was, key, 'was')} and {_told(now, key, 'is')}" for key in changed
        )

    def only_texts_differ(self, state: State) -> bool:
        """Is it another one by the texts in its code alone, so that its vectors may be the same?

        >>> from fastfill.gallery import Columns
        >>> state = State("started", Columns("id", "text", "vector"), "l2", "m:f", "1f", 8,
        ...               settings={"encode": "no texts"})
        >>> ModelIdentity("m:f", {}, {"encode": "texts 1f"}).only_texts_differ(state)
        True
        """
        was, now = state.settings or {}, self.settings or {}
        if ITEMS not in was or was[ITEMS] == now.get(ITEMS, was[ITEMS]):
            return False
        return not replace(self, settings={**now, ITEMS: was[ITEMS]}).differences(state)

    def check(self, state: State, store_name: str) -> None:
        """Refuse another model than that of the state, by what differs."""
        differences = self.differences(state)
        if differences:
            raise MigrationError(
                f"{store_name} is at the model {state.encoder}, and this is another one "
                f"({'; '.join(differences)}): undo that to go on, or run fastfill start with "
                "this --encoder to change the model."
            )


def _put(prompt: str) -> str:
    return repr(prompt) if prompt else "nothing"


def _told(settings: Mapping[str, str], key: str, verb: str) -> str:
    return f"{verb} {settings[key]!r}" if key in settings else f"{verb} not set"


def split_name(encoder_name: str) -> tuple[str, dict[str, str]]:
    """An encoder's name without its options, and those that may change vectors.

    >>> split_name("https://x.org/embed?version=2#m?dim=8&batch=4")
    ('https://x.org/embed?version=2#m', {'dim': '8'})
    """
    is_address = encoder_name.startswith(("http://", "https://"))
    address, hash_sign, rest = encoder_name.partition("#") if is_address else ("", "", encoder_name)
    if is_address and not hash_sign:  # the address of a service may have a query of its own
        return encoder_name, {}
    name, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    kept = {key: value for key, value in options if key not in RUNTIME_OPTIONS}
    return f"{address}{hash_sign}{name}", kept


def settings_of(encode: Encode, name: str) -> dict[str, str]:
    """What an encoder tells of itself; else the texts in it, and what embeds its queries.

    Only the function of that name is looked into: for another one its owner vouches.

    >>> settings_of(len, "builtins:len"), settings_of(len, "builtins:max")
    ({'encode': 'no texts'}, {})
    """
    told: Mapping[str, Any] | None = getattr(encode, "identity", None)
    if told is not None:
        return {str(key): str(value) for key, value in told.items()}
    settings = {}
    module, _, function = name.partition(":")
    named: Any = getattr(sys.modules.get(module), function, None)
    if named is not None and any(named is one for one in (encode, _wrapped(encode))):
        settings[ITEMS] = _digest(texts_of(named)) or "no texts"
    for_queries = getattr(encode, QUERIES, None)
    if for_queries is not None:
        settings[QUERIES] = described(for_queries)
    return settings


def _wrapped(encode: Encode) -> Any:
    return getattr(encode, "__wrapped__", None)


def described(function: Callable[..., Any]) -> str:
    """A function's name and a digest of the texts in it, a prompt above all.

    Its other code may be mended during a migration: what it makes of items `verify` compares.

    >>> described(len)
    'builtins:len'
    """
    bare = _bare(function)
    name = f"{bare.__module__}:{bare.__qualname__}"
    digest = _digest(texts_of(function))
    return f"{name} ({digest})" if digest else name


def texts_of(function: Callable[..., Any]) -> list[str]:
    """The texts in a function's code, those that it looks up, and those that are bound to it.

    >>> texts_of(partial(max, default="a red one"))
    ['default=a red one']
    """
    try:
        parts = _texts_in(inspect.unwrap(_bare(function)))
    except (TypeError, ValueError, OSError):  # no Python, or its source is not there
        parts = []
    if isinstance(function, partial):
        parts += _texts({**dict(enumerate(function.args)), **function.keywords})
    return parts


def _bare(function: Callable[..., Any]) -> Any:
    """The function that is called in the end."""
    bare = function.func if isinstance(function, partial) else function
    return bare if hasattr(bare, "__qualname__") else type(bare).__call__  # an object


def _digest(texts: list[str]) -> str:
    return f"texts {hashlib.sha256(repr(texts).encode()).hexdigest()[:8]}" if texts else ""


def _texts_in(function: Callable[..., Any]) -> list[str]:
    """Texts in the code, but for what people read, and those that it looks up by name."""
    source = textwrap.dedent(inspect.getsource(function))
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda amid other code
        return [source]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    around = inspect.getclosurevars(function).nonlocals
    known = {**getattr(function, "__globals__", {}), **around}
    said = {id(part) for node in ast.walk(tree) for part in _for_people(node)}
    written = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]
    return [*written, *_texts({name: known[name] for name in names & known.keys()})]


def _for_people(node: ast.AST) -> Iterable[ast.AST]:
    """Of a statement what only people read: a docstring, the message of an error."""
    if isinstance(node, ast.Expr):
        return [node.value]
    return ast.walk(node) if isinstance(node, ast.Raise | ast.Assert) else []


def _texts(values: Mapping[Any, Any]) -> list[str]:
    """Texts by name; a service's key, or a device, may be another one for the same model."""
    texts = {str(name): value for name, value in values.items() if isinstance(value, str)}
    return [f"{name}={texts[name]}" for name in sorted(texts) if not CHANGEABLE.search(name)]
