"""The user's statement, looked at before it is sent: exactly one, which gives rows.

The text is not parsed, only split into strings, quoted names, comments and the rest, which is enough to find a
semicolon that ends a statement. Everything else is the database's to say.
"""
import re

from .source import Query, params_of

# What can stand in a statement, besides single characters: an unfinished string or comment runs to the end.
_PIECES = re.compile(r"""
    (?P<skip> --[^\n]* | /\*.*?(?:\*/|\Z) | \s+ )
  | (?P<text> '(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z)
            | \$(?P<tag>[A-Za-z_]\w*)?\$ .*? (?:\$(?P=tag)?\$|\Z) )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<parameter> \?\d* | [:@$][A-Za-z_]\w* )
  | (?P<end> ; )
  | (?P<other> . )
""", re.VERBOSE | re.DOTALL)

_GIVE_ROWS = ("select", "with", "values", "table", "from")


def checked(text, params=None) -> Query:
    """The Query of `text`, without a semicolon at its end; refuses two statements, none, and what gives no rows."""
    if not isinstance(text, str):
        raise TypeError(f"the query has to be text, not {type(text).__name__}")
    end = first = None
    for piece in _PIECES.finditer(text):
        if piece.lastgroup == "skip":
            continue
        if piece["end"]:
            end = piece.start() if end is None else end
        elif end is not None:
            line = text.count("\n", 0, piece.start()) + 1
            raise ValueError(f"the query holds a second statement, in line {line}: "
                             f"{shortened(text[piece.start():])!r}. Give one statement that gives rows")
        elif first is None and piece[0] != "(":
            first = piece[0]
    if first is None:
        raise ValueError(f"the query {shortened(text)!r} holds no statement")
    if first.lower() not in _GIVE_ROWS:
        raise ValueError(f"the query begins with {first!r}: give a statement that gives rows, such as "
                         "SELECT … FROM …; nothing is written here")
    return Query(text if end is None else text[:end], params_of(params))


def without_parameters(text):
    """The statement with NULL in the place of each parameter (in SQLite's styles), where only its form is asked for."""
    return _PIECES.sub(lambda piece: "NULL" if piece["parameter"] else piece[0], text)


def without_comments(text):
    """The statement with a blank in the place of each comment."""
    return _PIECES.sub(lambda piece: " " if piece["skip"] else piece[0], text)


def shortened(text, length=60):
    text = " ".join(text.split())
    return text if len(text) <= length else text[:length - 1] + "…"
