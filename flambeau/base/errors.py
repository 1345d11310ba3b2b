"""Sites (which line of the user's made this) and the one place where messages are written.

A site is cheap: the caller's code object and instruction offset, nothing formatted. Only an error or a report
turns it into `train.py:42`, and only it looks up what the tensors are called in that frame.
"""
import os
import sys
import warnings

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PACKAGE_FOLDERS = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
COMPILER_FOLDER = PACKAGE + "compiler" + os.sep
_getframe = sys._getframe
_ours: dict = {}                      # id of a code object of Flambeau's own → the object, which is kept alive
_user = None                          # the user's code object that was found last


class Ended(Exception):
    """Raised by a hook on what autograd keeps, to end the call that it came in the middle of.

    The call then leaves behind what it would have written: PyTorch's hooks come after the operation.
    """


def here():
    """The innermost line of the user's: (code, offset), or None where none called, in an exit handler or a bare thread.

    The frames from the caller on are looked at one by one, since functions of a compiled core have none.
    """
    global _user
    frame = _getframe(0).f_back
    while frame is not None:
        code = frame.f_code
        if id(code) not in _ours:                 # hashing a code object itself walks all of its contents
            if code is _user or not code.co_filename.startswith(PACKAGE):
                _user = code
                return (code, frame.f_lasti)
            _ours[id(code)] = code
        frame = frame.f_back
    return None


def user_frame():
    """The innermost frame of the user's, or None."""
    frame = _getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def is_packaged(filename):
    """Whether a file of code is an installed package's, and not the program's own."""
    return any(folder in filename for folder in PACKAGE_FOLDERS)


def file_and_line(site):
    """(file, line number) of a site; ("", 0) without one."""
    if site is None:
        return "", 0
    code, offset = site
    for start, end, number in code.co_lines():
        if number is not None and start <= offset < end:
            return code.co_filename, number
    return code.co_filename, code.co_firstlineno


def line_of(site):
    """`file.py:42` for a site, and `an unknown line` without one."""
    if site is None:
        return "an unknown line"
    file, number = file_and_line(site)
    return f"{os.path.basename(file)}:{number}"


def name_of(tensor, frame=None, same=None):
    """What `tensor` is called in the user's frame, as `x` or `self.weight`; None if it has no name there.

    `same(value)` says whether an object of the frame is the one that is looked for, where identity does not.
    """
    frame = frame or user_frame()
    if frame is None:
        return None
    same = same or (lambda value: value is tensor)
    for scope in (frame.f_locals, frame.f_globals):
        for name, value in dict(scope).items():            # see Note [A copy to go through] in weakbag.py
            if same(value) and name.isidentifier() and not name.startswith("__"):    # pytest has names like @py_assert1
                return name
    for name, value in dict(frame.f_locals).items():       # one level into self and other plain objects
        try:
            inside = vars(value)
        except TypeError:
            continue
        if value.__class__.__module__ in ("builtins", "sys") or isinstance(value, type(sys)):
            continue
        for group in (inside, inside.get("_parameters"), inside.get("_buffers")):
            if isinstance(group, dict):
                for attribute, inner in dict(group).items():
                    if same(inner):
                        return f"{name}.{attribute}"
    return None


def called():
    """The function of ours that the user called, by name; found among the frames, so only for errors."""
    names = []
    frame = _getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if not frame.f_code.co_filename.startswith(COMPILER_FOLDER):      # which calls for what it follows
            op = frame.f_locals.get("op")
            known = getattr(op, "called", None) or getattr(op, "__name__", None)
            names.append((frame.f_code.co_name, known))
        frame = frame.f_back
    operation = next((op for _, op in reversed(names) if op), None)
    outermost = next((name for name, _ in reversed(names) if name not in ("form", "__call__")), "the function")
    return (operation or outermost).strip("_")


def argument_error(words):
    """A TypeError about an argument, with the name of the function in front, as PyTorch has it."""
    return TypeError(f"{called()}(): {words}")


told = 0                      # how often a warning was given, or `watch` told of something: neither is on a tape


def warn(message, category=UserWarning):
    """Warn with `message`, at the innermost line of the user's."""
    global told
    told += 1
    frame, level = _getframe(0), 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def need(condition, message, error_class=RuntimeError):
    """Refuse with `kind(message)` unless `condition` holds. Dispatch adds the call, the names and the lines."""
    if not condition:
        error = error_class(message)
        error.refusal = True
        try:
            raise error
        finally:
            del error                 # a frame that holds its own error would keep the tensors in it alive


class LinAlgError(RuntimeError):
    """A matrix on which the asked-for factorisation or solution does not exist."""
