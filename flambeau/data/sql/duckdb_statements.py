"""What DuckDB is asked: its dialect, and the statements that give the rows of tables and of files."""
import json
import re

from .ranges import range_condition
from .source import Dialect
from .tables import TABLE_NAME

INTEGER_TYPES = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
OF_OTHER_ROWS = '"SUBQUERY"', '"WINDOW"', "file_index", "rowid"     # what makes a row depend on which files are read
ROW_NUMBER = "flambeau_row"                # the column of row numbers that is added to a query


class DuckDBDialect(Dialect):
    name = "DuckDB"
    rows_in_block = 8192                  # a fifteenth of a row group
    blocks_in_group = 4
    groups_mixed = 128

    def cast(self, expression, wanted):
        if wanted.form == "text":
            return f"{expression}::VARCHAR"       # of an ENUM, a UUID
        return expression                         # decimals, dates and times are exact in Arrow, and turned here

    def hash(self, key, salt):
        return f"hash({int(salt)}, {', '.join(key)})"

    def fetch(self, query, wanted, key, ranges, sorts=True, placeholders=None, with_key=False, data=None):
        """A branch for each range, so that each reads its own row groups; `q` is put in their places, not kept.

        Not `sorts`: the rows of a branch come as they lie; `with_key`, which tells whether they lie in order. `data`
        is a statement that gives the rows which the query calls so, where those are not all of them.
        """
        placeholders = iter(lambda: "?", None) if placeholders is None else iter(placeholders)
        names = [f"q.{self.quote(name)}" for name in key]
        order = f" ORDER BY {', '.join(names)}" if sorts else ""
        more = "".join(f", {name} AS flambeau_key_{i}" for i, name in enumerate(names)) if with_key else ""
        branches = [f"(SELECT {self.columns(wanted)}{more}{f', {n} AS flambeau_range' if with_key else ''} FROM q "
                    f"WHERE {range_condition(names, placeholders)}{order})" for n in range(ranges)]
        data = "" if data is None else f"{TABLE_NAME} AS NOT MATERIALIZED ({data}), "
        return f"WITH {data}q AS NOT MATERIALIZED (\n{query.text}\n) " + " UNION ALL ".join(branches)

    def fetch_numbered(self, query, wanted, ranges):
        """The rows whose numbers lie in these ranges, in their order: one scan, which looks at no key."""
        within = " OR ".join(f"q.{ROW_NUMBER} BETWEEN {low} AND {high}" for [low], [high] in ranges)
        return f"SELECT {self.columns(wanted)} FROM (\n{with_numbers(query).text}\n) AS q WHERE {within}"

    def hash_counts(self, query, order, bits):
        begins = f"{self.hash_of(order)} >> {64 - bits}" if bits else "0"
        return f"SELECT {begins}, count(*) FROM (\n{query.text}\n) AS q GROUP BY ALL"

    def hashed(self, query, wanted, order, which, sorts, stretch=None):
        """Rows and their hashes; of a `stretch` of row numbers, where that is given. See RowSession.hashed."""
        within, hashed = [], self.hash_of(order)
        if stretch is not None:
            query, [[low], [high]] = with_numbers(query), stretch
            within.append(f"q.{ROW_NUMBER} BETWEEN {low} AND {high}")
        if isinstance(which, tuple):
            within.append(f"{hashed} BETWEEN {which[0]}::UBIGINT AND {which[1]}::UBIGINT")
        elif which is not None:
            within.append(f"{hashed} IN ({', '.join(f'{number}::UBIGINT' for number in which)})")
        text = f"SELECT {self.columns(wanted)}, {hashed} AS flambeau_hash FROM (\n{query.text}\n) AS q"
        text += f" WHERE {' AND '.join(within)}" if within else ""
        return text + (self.order(order) if sorts else "")

    def hash_of(self, order):
        return self.hash([f"q.{self.quote(name)}" for name in order.key], order.salt)


class FilesDialect(DuckDBDialect):
    """Of a Parquet file a row group is decoded whole, whatever part of it is asked for."""
    rows_in_block = 30720                 # a quarter of DuckDB's own row groups
    blocks_in_group = 1
    neighbours_in_group = 4
    groups_mixed = 512


def gives_rows_of_a_table(tree):
    """Whether a query, as DuckDB's parser has it, gives some rows of one table, each for itself: then one column more
    makes no others of them."""
    node = {} if tree.get("error") else tree["statements"][0]["node"]
    return (node.get("type") == "SELECT_NODE" and node["from_table"]["type"] == "BASE_TABLE"
            and node["aggregate_handling"] == "STANDARD_HANDLING" and not node["cte_map"]["map"]
            and not any(node[part] for part in ("modifiers", "group_expressions", "having", "qualify", "sample")))


def gives_rows_of_files(tree, key):
    """Whether a query gives some rows of the files, each for itself and whatever the others are, with their own `key`:
    then no file matters to it but those that hold the keys asked for."""
    if tree.get("error") or not gives_rows_of_a_table(tree):
        return False
    node, said = tree["statements"][0]["node"], json.dumps(tree)
    table = node["from_table"]
    if table["table_name"].lower() != TABLE_NAME or table["column_name_alias"] or any(w in said for w in OF_OTHER_ROWS):
        return False
    own = [own for part in node["select_list"] for given, own in [name_of_part(part, key)]
           if given.lower() == key.lower()]
    return own == [key]


def name_of_part(part, key):
    """(what a part of a SELECT's list is called, which column of the table it is, None if it is computed); a star is
    taken for the key."""
    if part["class"] == "STAR":
        return key, None if any(part.get(more) for more in ("columns", "replace_list", "rename_list")) else key
    if part["class"] == "COLUMN_REF":
        return part["alias"] or part["column_names"][-1], part["column_names"][-1]
    return part["alias"], None


def with_numbers(query):
    """The query with one column more, the number that DuckDB has for each row; None if it does not begin plainly."""
    select = re.match(r"\s*select\b", query.text, re.IGNORECASE)
    return select and query._replace(text=f"SELECT rowid AS {ROW_NUMBER},{query.text[select.end():]}")


def kind_of_type(declared):
    """(kind, bits) of DuckDB's type."""
    word = declared.upper()
    if word in INTEGER_TYPES:
        return "int", INTEGER_TYPES[word]
    if word.removeprefix("U") in INTEGER_TYPES:
        return "uint", INTEGER_TYPES[word.removeprefix("U")]
    if word.startswith(("DECIMAL", "NUMERIC")) or word in ("HUGEINT", "UHUGEINT"):
        return ("decimal", 64) if "[" not in word else ("other", 64)
    if word.startswith("ENUM(") and not word.endswith("]"):
        return "text", 64
    return {"BOOLEAN": ("bool", 8), "FLOAT": ("float", 32), "DOUBLE": ("float", 64), "VARCHAR": ("text", 64),
            "UUID": ("text", 64), "DATE": ("date", 32), "TIMESTAMP": ("timestamp", 64), '"NULL"': ("unknown", 64),
            "NULL": ("unknown", 64), "TIMESTAMP_S": ("timestamp", 64), "TIMESTAMP_MS": ("timestamp", 64),
            "TIMESTAMP_NS": ("timestamp", 64), "TIMESTAMP WITH TIME ZONE": ("timestamp", 64)}.get(word, ("other", 64))
