"""The generated ABI is what the header says, what a C compiler makes of it and what is exported."""

import ctypes
import pathlib
import re
import struct
import subprocess
import sys

import pytest

import concert
from concert import _abi, _library

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client" / "python"
HEADER = ROOT / "client" / "include" / "concert" / "concert.h"
STRUCTS = {name: getattr(_abi, name) for name in _abi.PACK_FORMATS}

sys.path.insert(0, str(PACKAGE))
import generate  # noqa: E402


def test_generated_file_is_what_the_header_says():
    wanted = generate.generate(generate.header_text())
    assert (PACKAGE / "concert" / "_abi.py").read_text() == wanted, "run client/python/generate.py"


@pytest.mark.parametrize("old, new", [
    ("CONCERT_FP8_E4M3 = 4", "CONCERT_FP8_E4M3 = 5"),
    ("  uint32_t d_dtype;", "  uint64_t d_dtype;"),
    ("concert_wait(concert_session* session, concert_ticket ticket, int64_t", "concert_wait("
     "concert_session* session, concert_ticket ticket, int32_t"),
    ("#define CONCERT_WAITS_MAX 4", "#define CONCERT_WAITS_MAX 8"),
])
def test_a_change_of_the_header_is_seen(old, new):
    text = generate.header_text()
    assert old in text
    assert generate.generate(text.replace(old, new)) != generate.generate(text)


def test_what_only_c_needs_is_left_out():
    text = generate.header_text()
    more = text.replace("typedef enum concert_code", "#define CONCERT_GEMM_NEW \\\n  {.alpha = 1}\n"
                        "typedef enum concert_code", 1)
    assert more != text and generate.generate(more) == generate.generate(text)


@pytest.mark.parametrize("declaration", [
    "CONCERT_API int concert_new(long double value);",
    "typedef enum concert_new { CONCERT_A, CONCERT_B } concert_new;",
    "typedef struct concert_new { void (*call)(int); } concert_new;",
    "#define CONCERT_NEW sizeof(int)\n",
    "extern int concert_variable;",
])
def test_what_cannot_be_read_is_an_error(declaration):
    end = "#ifdef __cplusplus\n}"
    text = generate.header_text().replace(end, f"{declaration}\n{end}")
    assert declaration in text
    with pytest.raises(SystemExit):
        generate.generate(text)


def test_every_function_of_the_header_is_declared_and_exported():
    names = set(re.findall(r"\b(concert_\w+)\(", re.sub(r"/\*.*?\*/", "", generate.header_text(),
                                                         flags=re.DOTALL)))
    assert names == set(_abi.FUNCTIONS)
    for name in names:
        assert getattr(_library.library(), name)


def test_sizes_and_offsets_are_the_compilers(tmp_path):
    lines = []
    for name, cls in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name}*)0)->{field}));" for field, _ in cls._fields_]
    for enum in (concert.Code, concert.Dtype, concert.Priority, concert.Memory):
        prefix = {"Priority": "PRIORITY_", "Memory": "MEMORY_"}.get(enum.__name__, "")
        lines += [f'printf("{enum.__name__}.{one.name} %d\\n", (int)CONCERT_{prefix}{one.name});'
                  for one in enum]
    probe = tmp_path / "probe.c"
    probe.write_text("#include <stdio.h>\n#include <concert/concert.h>\nint main(void) {\n" +
                     "\n".join(lines) + "\nreturn 0;\n}\n")
    # g++ brings gcc; cc need not be there.
    subprocess.run(["gcc", "-std=c99", "-Wall", "-Werror", f"-I{HEADER.parents[1]}", str(probe),
                    "-o", str(tmp_path / "probe")], check=True)
    told = subprocess.run([tmp_path / "probe"], check=True, capture_output=True, text=True).stdout

    wanted = []
    for name, cls in STRUCTS.items():
        wanted.append(f"{name} {ctypes.sizeof(cls)}")
        wanted += [f"{name}.{field} {getattr(cls, field).offset} {getattr(cls, field).size}"
                   for field, _ in cls._fields_]
    for enum in (concert.Code, concert.Dtype, concert.Priority, concert.Memory):
        wanted += [f"{enum.__name__}.{one.name} {one.value}" for one in enum]
    assert told.splitlines() == wanted


def test_a_struct_packed_in_one_go_is_the_struct():
    values = list(range(1, 34))
    packed = struct.pack(_abi.PACK_FORMATS["concert_gemm"], *values)
    assert ctypes.sizeof(_abi.concert_gemm) - 8 < len(packed) <= ctypes.sizeof(_abi.concert_gemm)
    gemm = _abi.concert_gemm.from_buffer_copy(packed.ljust(ctypes.sizeof(_abi.concert_gemm)))
    flat = []
    for name, kind in _abi.concert_gemm._fields_:
        value = getattr(gemm, name)
        flat += [value.buffer, value.offset] if kind is _abi.concert_slice else [value]
    assert flat == values


def test_versions_are_the_projects():
    project = re.search(r"project\(concert VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert project and project[1] == concert.__version__
    assert _library.library().concert_version().decode() == concert.__version__


def stub_library(folder, version, leave_out=()):
    """A libconcert of another version: all it has is its names."""
    source = folder / "stub.c"
    source.write_text(f'const char* concert_version(void) {{ return "{version}"; }}\n' + "\n".join(
        f"void {name}(void) {{}}" for name in _abi.FUNCTIONS
        if name not in ("concert_version", *leave_out)))
    path = folder / "libconcert.so.0"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return str(path)


@pytest.mark.parametrize("version", ["0.0.9", "0.2.0", "1.1.0"])
def test_a_library_of_another_version_is_refused_with_both_versions(tmp_path, version):
    path = stub_library(tmp_path, version)
    with pytest.raises(concert.FailedPrecondition) as caught:
        _library.open_library(path)
    assert caught.value.message == (
        f"{path} is libconcert {version}, this Python package is 0.1.0; "
        "install the same version of both, or set CONCERT_LIBRARY to a libconcert 0.1.0")


def test_a_library_that_lacks_a_function_is_refused(tmp_path):
    path = stub_library(tmp_path, "0.1.7", leave_out=["concert_wait_on_stream"])
    with pytest.raises(concert.FailedPrecondition, match="0.1.7 and lacks concert_wait_on_stream"):
        _library.open_library(path)


def test_a_patch_release_is_taken(tmp_path):
    assert _library.open_library(stub_library(tmp_path, "0.1.7"))


def test_no_library_says_what_to_do(tmp_path):
    with pytest.raises(concert.Unavailable, match="cannot open .*install libconcert or set "
                                                  "CONCERT_LIBRARY"):
        _library.open_library(str(tmp_path / "libconcert.so.0"))


def test_another_library_is_refused():
    with pytest.raises(concert.FailedPrecondition, match="is no libconcert"):
        _library.open_library("libc.so.6")


def test_wheel_is_pure_and_complete(tmp_path):
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index",
                    "--no-build-isolation", "-w", str(tmp_path), copy_of_package(tmp_path)],
                   check=True)
    wheel = tmp_path / f"concert-{concert.__version__}-py3-none-any.whl"
    import zipfile
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(PACKAGE)) for path in (PACKAGE / "concert").rglob("*.py")}
    assert "concert/torch/__init__.py" in modules
    assert modules | {"concert/py.typed"} <= names


def copy_of_package(folder):
    """pip leaves build/ and an egg-info beside the sources."""
    import shutil
    return shutil.copytree(PACKAGE, folder / "package",
                           ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
