"""The safetensors library itself, where it is installed, on Flambeau as `torch`: its reader in Rust, its functions."""
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("safetensors")


def run(program, folder):
    """What a program whose `torch` is Flambeau prints."""
    head = "import flambeau\nflambeau.install_as_torch()\nimport torch\n"
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(program)], capture_output=True, text=True,
                          cwd=folder, env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))})
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_file_opened(tmp_path):
    """Every dtype, whole and in slices; tensors that are recorded as others are, though the file lies behind them."""
    assert run("""
        from safetensors import safe_open
        from safetensors.torch import save_file, load_file
        names = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 uint64 complex64 "
                 "float8_e4m3fn float8_e5m2 float8_e8m0fnu").split()
        tensors = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in names}
        tensors |= {"empty": torch.empty(0, 3), "point": torch.tensor(3.5)}
        save_file(tensors, "all", {"by": "hand"})
        for backend in ("mmap", "pread"):
            with safe_open("all", framework="pt", backend=backend) as file:
                print(file.metadata(), sorted(file.keys()) == sorted(tensors))
                found = {name: file.get_tensor(name) for name in file.keys()}
                print(all(found[name].dtype is t.dtype and torch.equal(found[name], t) for name, t in tensors.items()))
                print(file.get_slice("float32")[:, 1:].tolist())
                if backend == "mmap":
                    print(any(t._storage.exported for t in found.values()))
        print(load_file("all")["uint64"].tolist())
    """, tmp_path) == ["{'by': 'hand'} True", "True", "[[1.0, 2.0], [4.0, 5.0]]", "False",
                       "{'by': 'hand'} True", "True", "[[1.0, 2.0], [4.0, 5.0]]", "[[0, 1, 2], [3, 4, 5]]"]


def test_its_functions(tmp_path):
    """Models, shared tensors, what is refused; saving asks no tensor for its address."""
    assert run("""
        import safetensors.torch as st
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        net[1].weight = net[0].weight
        st.save_model(net, "net")
        print(st.load_model(net, "net"), sorted(st.load_file("net")))
        print(any(p._storage.exported and p._storage.still_exported() for p in net.parameters()))
        whole = torch.arange(6.0)
        print(sorted(map(sorted, st._find_shared_tensors({"a": whole, "b": whole[2:], "c": torch.ones(2)}))))
        print(st._is_complete(whole), st._is_complete(whole[2:]), st.storage_size(whole[2:]))
        print(st.storage_ptr(whole) == st.storage_ptr(whole[2:]), st.storage_ptr(torch.ones(2, device="meta")))
        print(st.load(st.save({"a": whole}))["a"].tolist())
        try:
            st.save_file({"a": whole, "b": whole[1:]}, "x")
        except RuntimeError as error:
            print("share memory" in str(error))
    """, tmp_path) == ["(set(), []) ['0.bias', '0.weight', '1.bias']", "False", "[['a', 'b'], ['c']]",
                       "True False 24", "True 0", "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]", "True"]
