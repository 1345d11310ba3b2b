"""Statements over ADBC's DB-API connections, whichever database is behind them."""
import contextlib

from .arrow_c import ArrowStream


def batches(con, text, params, options=()):
    """The Arrow batches of a statement, (rows, columns)."""
    with contextlib.closing(con.cursor()) as cursor:
        cursor.adbc_statement.set_options(**dict(options))
        cursor.execute(text, params or None)
        with ArrowStream(cursor.fetch_arrow()) as stream:
            yield from stream
