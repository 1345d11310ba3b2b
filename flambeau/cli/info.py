"""What `flambeau info` says: the facts that a report of a mistake needs, one a line."""
from . import facts


def report():
    """The facts, in words."""
    known = facts.gather()
    python, processor, memory = known["python"], known["processor"], known["memory"]
    lines = [("flambeau", f"{known['flambeau']['version']}, in {known['flambeau']['folder']}"),
             ("speaks", f"PyTorch {known['flambeau']['speaks']}"),
             ("Python", f"{python['version']} ({python['implementation']}), {python['executable']}")]
    lines += [(name, version or ("not installed (not needed)" if name in facts.NOT_NEEDED else "not installed"))
              for name, version in known["packages"].items()]
    lines += [("system", known["system"]), ("processor", processor["name"]), *_compiled_for(processor),
              ("threads", f"{known['threads']['used']} of {known['threads']['processors']} processors"),
              ("memory", f"{memory['available'] / 2**30:.1f} of {memory['limit'] / 2**30:.1f} GiB can be had"),
              ("LAPACK", known["lapack"] or facts.NO_LAPACK),
              ("core", known["core"]), ("executor", known["executor"]),
              ("cache directory", known["caches"]["kernels"]["folder"] or "none"),
              *((f"CUDA {link}", text) for link, text in known["cuda"]["links"].items()),
              ("devices", ", ".join(["cpu", *(f"{count} {name}" for name, count in known["devices"].items())]))]
    return "\n".join(f"{name:<17}{text}" for name, text in lines)


def _compiled_for(processor):
    if "no_compiler" in processor:
        return [("compiles for", processor["no_compiler"])]
    return [("compiles for", f"{processor['compiles_for']} (cpu = {processor['asked']!r}), {processor['triple']}, "
                             f"LLVM {processor['llvm']}"),
            ("vectors", f"{processor['vector_bytes']} bytes; instructions for "
                        f"{', '.join(processor['instructions']) or 'neither fma nor float16'}"),
            ("features", " ".join(processor["features"]) or "none"), ("packaged kernels", processor["packaged"])]
