"""Where the code of a kernel is: in this process, with the package, in a precompiled folder, or in the user's folder.

Note [One store of kernels]: a kernel is known by a key, a hash of its text and of all that its code depends on. `find`
looks for it in this process, and then in the tiers of the store, in their order: the package, whose file is opened
once (packaged.py); on machines without a compiler a precompiled folder, and nothing else (precompiled.py); and the
user's folder, a file for each object (object_cache.py). What is found is put in memory and remembered, and nothing is
written; `keep` takes what was compiled because it was nowhere.

An entry is an object, or it says `see` and the key of the object that a text was compiled into with others. One that
is damaged, half written, of another version or not to be trusted counts as absent; so does one that cannot be linked
here. Then the next tier is asked, and at last the compiler.
"""
import hashlib
import re

REFERENCE_PREFIX = b"see "
OBJECT_KEY = re.compile("[0-9a-f]{64}")


class CacheTier:
    """One of the parts of a store, which are asked in turn: where code is kept."""

    def read(self, key, text=None):
        """The entry of `key`, or None; `text` is what the key was made of, for a tier that finds it by another."""

    def function(self, origin):
        """(name of the function, key of its object) of what is written for `origin`; None where that is not known."""

    def write(self, key, entry):
        """Keep an entry, if the tier is for that."""

    def distrust(self, key, error):
        """The object of `key` cannot be put in memory."""


class KernelStore(CacheTier):
    """This process's code of one loader, a compiler or what stands for it, and the tiers where more is found.

    The loader has a `toolchain`, which says what its code is for and by whom it was made. `load(code, symbols)` puts an
    object in memory and gives the library that it became, `address(library, name)` links it and says where a function
    is; where that cannot be done, they raise RuntimeError or OSError. One thread at a time may find or keep: LLVM's, or
    who holds a device's lock. A caller may look into `addresses`.
    """

    def __init__(self, loader, *tiers):
        self.loader, self.tiers = loader, list(tiers)
        self.libraries = {}                       # key of an object, or of a text in it → library in memory
        self.addresses = {}                       # (key, name) → address
        self.launches = {}                        # text of a launch → address or name; None where it was refused

    def exchange(self, tier_class, *tiers):
        """Look in `tiers`, last of all, instead of those of `tier_class`."""
        self.tiers = [*(tier for tier in self.tiers if not isinstance(tier, tier_class)), *tiers]

    def key(self, text):
        """Under which key the object of `text` is kept."""
        return digest(f"{self.loader.toolchain}\0{text}")

    def read(self, key, text=None):
        """The library that the object of `key` became, or None."""
        return self.libraries.get(key)

    def find(self, key, name, text=None, symbols=None):
        """The address of `name` in the object of `key`, which is in memory then; or None."""
        if (key, name) in self.addresses:
            return self.addresses[key, name]
        for tier in (self, *self.tiers):
            whole, entry = key, tier.read(key, text)
            if refers(entry):
                whole = referred(entry)
                entry = self.read(whole) or tier.read(whole)
            if not entry or refers(entry):
                continue
            try:
                library = self.read(whole) or self.loader.load(entry, symbols)
                address = self.loader.address(library, name)
            except (RuntimeError, OSError) as error:
                tier.distrust(key, error)
            else:
                self._note((whole, key), library, {(key, name): address})
                return address
        return None

    def function(self, origin):
        """(name of the function, key of its object) of what is written for `origin`; None where that is not known."""
        return next(filter(None, (tier.function(origin) for tier in self.tiers)), None)

    def keys(self, texts):
        """{name: key} of {name: text}. To hash a long text takes a tenth of a millisecond, so each is hashed once."""
        keys = {text: self.key(text) for text in {*texts.values()}}
        return {name: keys[text] for name, text in texts.items()}

    def known(self, keys):
        """{name: address} of those of {name: key} that were found or kept in this process."""
        return {name: self.addresses[key, name] for name, key in keys.items() if (key, name) in self.addresses}

    def keep(self, texts, code, symbols=None):
        """Put the object `code` in memory that {name: text} became together, and keep it where it will be found again.
        Nothing is noted before its symbols were looked up: an object may call what is not there."""
        library = self.loader.load(code, symbols)
        named = self.keys(texts)
        addresses = {(key, name): self.loader.address(library, name) for name, key in named.items()}
        keys = list(dict.fromkeys(named.values()))
        whole = digest("".join(keys)) if len(keys) > 1 else keys[0]
        self._note((whole, *keys), library, addresses)
        for tier in self.tiers:
            tier.write(whole, code)
            for key in keys if len(keys) > 1 else ():
                tier.write(key, reference(whole))

    def _note(self, keys, library, addresses):
        self.libraries.update(dict.fromkeys(keys, library))
        self.addresses.update(addresses)


def digest(text):
    """What a text is found by, or what it was written from."""
    return hashlib.sha256(text.encode()).hexdigest()


def reference(key):
    """The entry that only says under which key the object is."""
    return REFERENCE_PREFIX + key.encode()


def refers(entry):
    """Whether an entry is one of those."""
    return isinstance(entry, bytes) and entry.startswith(REFERENCE_PREFIX)


def referred(entry):
    """The key that it says, or None where it is none."""
    found = OBJECT_KEY.fullmatch(entry[len(REFERENCE_PREFIX):].decode("latin-1"))
    return found and found[0]
