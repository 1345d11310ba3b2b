"""Rows of SQLite as columns of numbers, without an object of Python's for each cell: a native loop over its C
functions.

The library is the one that Python's own module `sqlite3` is linked to, found through that module: two copies of SQLite
in a process would take each other's file locks away. Where it cannot be found, or nothing can be compiled, `library()`
is None and rows are read through Python.
"""
import ctypes
import functools

import numpy as np

from ...backends.backend import NoCompiler, NotCompiled
from ...backends.cpu import host, machine_code
from ...base.locks import new_lock

ROW, DONE = 100, 101                                  # what a step gives
INTEGER_CELL, FLOAT_CELL, TEXT_CELL, BLOB_CELL, NULL_CELL = 1, 2, 3, 4, 5
READ_ONLY, URI_NAMES, ONE_THREAD = 0x1, 0x40, 0x8000   # how a file is opened
COPY_VALUE = -1                                       # SQLite keeps a copy of what is bound
NUMBER_FORMS = {"float64": 0, "int64": 1, "bool": 1}  # what a cell is written as; truth values are checked afterwards

# For each row: step, and each cell by its own type into its column. A whole number goes into a column of real ones if
# float64 has it; NULL is noted; anything else ends the loop, which tells row and column. `%about`: the row, the column,
# what the last step gave, and a word for each column, not 0 if it holds a NULL.
LOOP_TEXT = """
define void @sqlite_rows(ptr %step, ptr %type, ptr %real, ptr %whole, ptr %statement, i64 %columns, i64 %rows,
                         ptr %forms, ptr %outs, ptr %nulls, ptr %about) {
entry:
  %p.column = getelementptr i64, ptr %about, i64 1
  %p.given = getelementptr i64, ptr %about, i64 2
  %p.any = getelementptr i64, ptr %about, i64 3
  br label %row
row:
  %r = phi i64 [0, %entry], [%r.next, %row.end]
  store i64 %r, ptr %about
  store i64 -1, ptr %p.column
  %enough = icmp eq i64 %r, %rows
  br i1 %enough, label %end, label %take
take:
  %given = call i32 %step(ptr %statement)
  %given.wide = sext i32 %given to i64
  store i64 %given.wide, ptr %p.given
  %more = icmp eq i32 %given, 100
  br i1 %more, label %cell, label %end
cell:
  %c = phi i64 [0, %take], [%c.next, %cell.end]
  %c.narrow = trunc i64 %c to i32
  %p.form = getelementptr i64, ptr %forms, i64 %c
  %form = load i64, ptr %p.form
  %p.out = getelementptr ptr, ptr %outs, i64 %c
  %out = load ptr, ptr %p.out
  %p.cell = getelementptr i64, ptr %out, i64 %r
  %cell.type = call i32 %type(ptr %statement, i32 %c.narrow)
  switch i32 %cell.type, label %wrong [i32 1, label %is.whole i32 2, label %is.real i32 5, label %is.null]
is.whole:
  %w = call i64 %whole(ptr %statement, i32 %c.narrow)
  %as.whole = icmp eq i64 %form, 1
  br i1 %as.whole, label %put.whole, label %convert
put.whole:
  store i64 %w, ptr %p.cell
  br label %cell.end
convert:
  %d = sitofp i64 %w to double
  store double %d, ptr %p.cell
  %shifted = add i64 %w, 9007199254740992
  %small = icmp ule i64 %shifted, 18014398509481984
  br i1 %small, label %cell.end, label %large
large:
  %top = fcmp oge double %d, 0x43E0000000000000
  br i1 %top, label %wrong, label %back
back:
  %again = fptosi double %d to i64
  %same = icmp eq i64 %again, %w
  br i1 %same, label %cell.end, label %wrong
is.real:
  %for.real = icmp eq i64 %form, 0
  br i1 %for.real, label %put.real, label %wrong
put.real:
  %x = call double %real(ptr %statement, i32 %c.narrow)
  store double %x, ptr %p.cell
  br label %cell.end
is.null:
  store i64 0, ptr %p.cell
  %p.null = getelementptr ptr, ptr %nulls, i64 %c
  %null.column = load ptr, ptr %p.null
  %p.null.cell = getelementptr i8, ptr %null.column, i64 %r
  store i8 1, ptr %p.null.cell
  %p.any.c = getelementptr i64, ptr %p.any, i64 %c
  store i64 1, ptr %p.any.c
  br label %cell.end
wrong:
  store i64 %c, ptr %p.column
  br label %end
cell.end:
  %c.next = add i64 %c, 1
  %row.done = icmp eq i64 %c.next, %columns
  br i1 %row.done, label %row.end, label %cell
row.end:
  %r.next = add i64 %r, 1
  br label %row
end:
  ret void
}
"""


# A function of SQL's: a number of 63 bits out of any values, the one of `hash_of_values` in data/sql/sqlite.py. Words
# are mixed one by one: a whole number is a word, a real one its bits; of text (in UTF-8) and bytes each eight are one,
# and so is the length.
HASH_TEXT = """
declare i32 @sqlite3_value_type(ptr)
declare i64 @sqlite3_value_int64(ptr)
declare double @sqlite3_value_double(ptr)
declare ptr @sqlite3_value_text(ptr)
declare ptr @sqlite3_value_blob(ptr)
declare i32 @sqlite3_value_bytes(ptr)
declare void @sqlite3_result_int64(ptr, i64)

define internal i64 @mixed_in(i64 %hash, i64 %word) {
  %next = add i64 %word, 1
  %far = mul i64 %next, -7046029254386353131
  %a = add i64 %hash, %far
  %a.high = lshr i64 %a, 30
  %b = xor i64 %a, %a.high
  %c = mul i64 %b, -4658895280553007687
  %c.high = lshr i64 %c, 27
  %d = xor i64 %c, %c.high
  %e = mul i64 %d, -7723592293110705685
  %e.high = lshr i64 %e, 31
  %f = xor i64 %e, %e.high
  ret i64 %f
}

define void @sqlite_hash(ptr %context, i32 %count, ptr %values) {
entry:
  br label %argument
argument:
  %i = phi i32 [0, %entry], [%i.next, %argument.end]
  %hash = phi i64 [0, %entry], [%hash.next, %argument.end]
  %over = icmp eq i32 %i, %count
  br i1 %over, label %end, label %look
look:
  %i.wide = sext i32 %i to i64
  %p.value = getelementptr ptr, ptr %values, i64 %i.wide
  %value = load ptr, ptr %p.value
  %cell.type = call i32 @sqlite3_value_type(ptr %value)
  switch i32 %cell.type, label %is.null [i32 1, label %is.whole i32 2, label %is.real i32 3, label %is.text
                                         i32 4, label %is.blob]
is.whole:
  %whole = call i64 @sqlite3_value_int64(ptr %value)
  br label %last.word
is.real:
  %real = call double @sqlite3_value_double(ptr %value)
  %bits = bitcast double %real to i64
  br label %last.word
is.null:
  br label %last.word
is.text:
  %text = call ptr @sqlite3_value_text(ptr %value)
  br label %bytes
is.blob:
  %blob = call ptr @sqlite3_value_blob(ptr %value)
  br label %bytes
bytes:
  %content = phi ptr [%text, %is.text], [%blob, %is.blob]
  %length = call i32 @sqlite3_value_bytes(ptr %value)
  %length.wide = sext i32 %length to i64
  br label %word
word:
  %at = phi i64 [0, %bytes], [%at.next, %word.end]
  %so.far = phi i64 [%hash, %bytes], [%more, %word.end]
  %left = sub i64 %length.wide, %at
  %none = icmp sle i64 %left, 0
  br i1 %none, label %last.word, label %byte
byte:
  %k = phi i64 [0, %word], [%k.next, %byte]
  %built = phi i64 [0, %word], [%built.next, %byte]
  %index = add i64 %at, %k
  %p.byte = getelementptr i8, ptr %content, i64 %index
  %one = load i8, ptr %p.byte
  %one.wide = zext i8 %one to i64
  %shift = shl i64 %k, 3
  %high = shl i64 %one.wide, %shift
  %built.next = or i64 %built, %high
  %k.next = add i64 %k, 1
  %full = icmp eq i64 %k.next, 8
  %out = icmp eq i64 %k.next, %left
  %complete = or i1 %full, %out
  br i1 %complete, label %word.end, label %byte
word.end:
  %more = call i64 @mixed_in(i64 %so.far, i64 %built.next)
  %at.next = add i64 %at, 8
  br label %word
last.word:
  %before = phi i64 [%hash, %is.whole], [%hash, %is.real], [%hash, %is.null], [%so.far, %word]
  %given = phi i64 [%whole, %is.whole], [%bits, %is.real], [0, %is.null], [%length.wide, %word]
  %hash.next = call i64 @mixed_in(i64 %before, i64 %given)
  br label %argument.end
argument.end:
  %i.next = add i32 %i, 1
  br label %argument
end:
  %result = lshr i64 %hash, 1
  call void @sqlite3_result_int64(ptr %context, i64 %result)
  ret void
}
"""
CALLED_BY_HASH = ("value_type", "value_int64", "value_double", "value_text", "value_blob", "value_bytes",
                  "result_int64")
HASH_NAME, UTF8_DETERMINISTIC = "flambeau_hash", 0x801


class SQLiteLibrary:
    """SQLite's C functions, the native loop, and the function that hashes."""

    def __init__(self, found, loop, hash_address):
        pointer, number, wide, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_char_p
        self.hash_address = hash_address
        self.loop = ctypes.CFUNCTYPE(None, *[pointer] * 5, wide, wide, *[pointer] * 4)(loop)
        for name, result, *given in [
            ("open_v2", number, text, pointer, number, text), ("close_v2", number, pointer), ("errmsg", text, pointer),
            ("extended_result_codes", number, pointer, number), ("busy_timeout", number, pointer, number),
            ("prepare_v2", number, pointer, text, number, pointer, pointer), ("finalize", number, pointer),
            ("interrupt", None, pointer), ("bind_parameter_count", number, pointer),
            ("bind_parameter_name", text, pointer, number), ("bind_int64", number, pointer, number, wide),
            ("bind_double", number, pointer, number, ctypes.c_double), ("bind_null", number, pointer, number),
            ("bind_text", number, pointer, number, text, number, pointer),
            ("bind_blob", number, pointer, number, text, number, pointer), ("step", number, pointer),
            ("column_type", number, pointer, number), ("column_int64", wide, pointer, number),
            ("column_double", ctypes.c_double, pointer, number), ("column_bytes", number, pointer, number),
            ("column_blob", pointer, pointer, number),
            ("create_function_v2", number, pointer, text, number, number, *[pointer] * 5),
        ]:
            function = found[f"sqlite3_{name}"]           # a function object of our own: no other's types are set
            function.restype, function.argtypes = result, given
            setattr(self, name, function)
        self.called = [ctypes.cast(each, pointer) for each in
                       (self.step, self.column_type, self.column_double, self.column_int64)]


@functools.cache
def library():
    """SQLite's functions, with a loop for this processor; None where one of them is not to be had."""
    try:
        import _sqlite3
        found = ctypes.CDLL(_sqlite3.__file__)
        called = {f"sqlite3_{name}": ctypes.cast(found[f"sqlite3_{name}"], ctypes.c_void_p).value
                  for name in CALLED_BY_HASH}
        return SQLiteLibrary(found, machine_code.function("sqlite_rows", LOOP_TEXT),
                             machine_code.function("sqlite_hash", HASH_TEXT, called))
    except (ImportError, OSError, AttributeError, NoCompiler, NotCompiled):    # or SQLite is hidden in the interpreter
        return None


class SQLiteError(Exception):
    """An error of SQLite's, by its number."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class SQLiteHandle:
    """A connection to a file that reads; used by one thread at a time, but for `interrupt`."""

    def __init__(self, address, busy_milliseconds):
        self.library, self.pointer, self.lock = library(), ctypes.c_void_p(), new_lock()
        self.check(self.library.open_v2(address.encode(), ctypes.byref(self.pointer),
                                        READ_ONLY | URI_NAMES | ONE_THREAD, None))
        self.library.extended_result_codes(self.pointer, 1)
        self.library.busy_timeout(self.pointer, busy_milliseconds)
        self.check(self.library.create_function_v2(self.pointer, HASH_NAME.encode(), -1, UTF8_DETERMINISTIC, None,
                                                   self.library.hash_address, None, None, None))

    def check(self, code):
        if code not in (0, ROW, DONE):
            raise SQLiteError(code, (self.library.errmsg(self.pointer) or b"").decode("utf-8", "replace"))

    def interrupt(self):
        with self.lock:
            if self.pointer:
                self.library.interrupt(self.pointer)

    def execute(self, text):
        """Run a statement to its end, without looking at what it gives."""
        statement = SQLiteStatement(self, text, ())
        try:
            statement.to_end()
        finally:
            statement.close()

    def close(self):
        with self.lock:
            if self.pointer:
                self.library.close_v2(self.pointer)
                self.pointer = ctypes.c_void_p()


class SQLiteStatement:
    """A statement that runs, with its parameters: by position, or by name."""

    def __init__(self, handle, text, params):
        self.handle, self.library, self.pointer = handle, handle.library, ctypes.c_void_p()
        handle.check(self.library.prepare_v2(handle.pointer, text.encode(), -1, ctypes.byref(self.pointer), None))
        try:
            for index in range(1, self.library.bind_parameter_count(self.pointer) + 1):
                self.bind(index, params)
        except BaseException:
            self.close()
            raise

    def bind(self, index, params):
        name = self.library.bind_parameter_name(self.pointer, index)
        value = params[name.decode()[1:]] if isinstance(params, dict) else params[index - 1]
        library, pointer = self.library, self.pointer
        if value is None:
            code = library.bind_null(pointer, index)
        elif isinstance(value, int):
            code = library.bind_int64(pointer, index, value)
        elif isinstance(value, float):
            code = library.bind_double(pointer, index, value)
        elif isinstance(value, str):
            value = value.encode()
            code = library.bind_text(pointer, index, value, len(value), COPY_VALUE)
        else:
            code = library.bind_blob(pointer, index, value, len(value), COPY_VALUE)
        self.handle.check(code)

    def to_end(self):
        while (code := self.library.step(self.pointer)) == ROW:
            pass
        self.handle.check(code)

    def rows(self, forms, rows):
        """The next `rows` rows, or those that are left: (arrays, nulls, how many); float64 and int64 as `forms` say.

        A cell that is something else raises WrongCell. None in `nulls`: that column has none.
        """
        width = len(forms)
        outs = [np.empty(rows, np.int64 if NUMBER_FORMS[form] else np.float64) for form in forms]
        nulls = np.zeros((width, rows), bool)
        about = np.zeros(3 + width, np.int64)
        codes = np.array([NUMBER_FORMS[form] for form in forms], np.int64)
        addresses = np.array([host.address(out) for out in outs], np.int64)
        null_addresses = np.array([host.address(row) for row in nulls], np.int64)
        given = map(host.address, (codes, addresses, null_addresses, about))
        self.library.loop(*self.library.called, self.pointer, width, rows, *given)
        count, column, given = about[:3].tolist()
        if column >= 0:
            raise WrongCell(column, self.cell(column))
        if count < rows:
            self.handle.check(given)
        return [out[:count] for out in outs], [nulls[i, :count] if about[3 + i] else None for i in range(width)], count

    def cell(self, column):
        """The cell of the row that the statement is at, as Python's own module gives it."""
        library, pointer = self.library, self.pointer
        match library.column_type(pointer, column):
            case cell_type if cell_type == INTEGER_CELL: return library.column_int64(pointer, column)
            case cell_type if cell_type == FLOAT_CELL: return library.column_double(pointer, column)
            case cell_type if cell_type == NULL_CELL: return None
            case cell_type:
                found = ctypes.string_at(library.column_blob(pointer, column), library.column_bytes(pointer, column))
                return found.decode("utf-8", "replace") if cell_type == TEXT_CELL else found

    def close(self):
        if self.pointer:
            self.library.finalize(self.pointer)
            self.pointer = ctypes.c_void_p()


class WrongCell(Exception):
    """A cell that is not of its column's form."""

    def __init__(self, column, value):
        super().__init__(f"column {column} holds {value!r}")
        self.column, self.value = column, value
