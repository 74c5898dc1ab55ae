#!/usr/bin/env python3
"""Makes concert/_abi.py from concert.h, so that the package cannot drift from the C ABI.

  generate.py [HEADER]           writes concert/_abi.py
  generate.py --check [HEADER]   exit status 1 if it is not what the header says

The header's subset of C is small: enums with values, plain structs, opaque handles, functions and
constants. What is none of these is an error here, never skipped.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent / "include" / "concert" / "concert.h"
OUTPUT = HERE / "concert" / "_abi.py"

# C type: ctypes' name for it, letter of the module struct.
SCALARS = {
    "int": ("c_int", "i"),
    "char": ("c_char", "s"),
    "float": ("c_float", "f"),
    "double": ("c_double", "d"),
    "uint8_t": ("c_uint8", "B"),
    "uint16_t": ("c_uint16", "H"),
    "int32_t": ("c_int32", "i"),
    "uint32_t": ("c_uint32", "I"),
    "int64_t": ("c_int64", "q"),
    "uint64_t": ("c_uint64", "Q"),
}
INITIALISER = re.compile(r"(\(\w+\))?\s*\{")  # of a struct, which is of use to C only
CONSTANT = re.compile(r"\(?(UINT64_MAX|\d+u?(?: << \d+)?)\)?")


def header_text(path: pathlib.Path = HEADER) -> str:
    """concert.h with the headers that it consists of."""
    def part(match: re.Match[str]) -> str:
        return (path.parent / match[1]).read_text(encoding="utf-8")
    return re.sub(r'^#include "concert/(\w+\.h)"$', part, path.read_text(encoding="utf-8"),
                  flags=re.MULTILINE)


class Header:
    """What a header declares, in its order."""

    def __init__(self, text: str) -> None:
        self.enums: dict[str, list[tuple[str, int]]] = {}
        # Type, field, stars, elements.
        self.structs: dict[str, list[tuple[str, str, int, int]]] = {}
        self.opaque: set[str] = set()
        self.constants: dict[str, int] = {}
        self.functions: dict[str, tuple[tuple[str, int], list[tuple[str, int]]]] = {}
        for declaration in self._declarations(text):
            self._read(declaration)

    def _declarations(self, text: str) -> list[str]:
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
        for name, value in re.findall(r"^#define (\w+)[ \t]+(\S.*)$", text, re.MULTILINE):
            if match := CONSTANT.fullmatch(value.strip()):
                number = match[1].replace("u", "").replace("UINT64_MAX", str(2**64 - 1))
                self.constants[name] = eval(number)  # pylint: disable=eval-used; digits and <<
            elif name != "CONCERT_API" and not INITIALISER.match(value):
                sys.exit(f"{name} is defined as {value}, which is no number")
        text = re.sub(r'^#.*$|extern "C" \{|^\}\s*$', "", text, flags=re.MULTILINE)
        parts = re.findall(r"\s*((?:[^;{]|\{[^}]*\})*);", text)
        return [" ".join(part.split()) for part in parts]

    def _read(self, text: str) -> None:
        if match := re.fullmatch(r"typedef struct (\w+) (\w+)", text):
            self.opaque.add(match[2])
        elif match := re.fullmatch(r"typedef enum \w+ \{(.*)\} (\w+)", text):
            values = [re.fullmatch(r"(\w+) = (-?\d+)", one.strip()) for one in match[1].split(",")]
            if None in values:
                sys.exit(f"{match[2]}: give every enumerator its number")
            self.enums[match[2]] = [(one[1], int(one[2])) for one in values if one]
        elif match := re.fullmatch(r"typedef struct \w+ \{(.*)\} (\w+)", text):
            lines = [line.strip() for line in match[1].split(";") if line.strip()]
            self.structs[match[2]] = [field for line in lines for field in self._fields(line)]
        elif match := re.fullmatch(r"CONCERT_API (.*?)(\w+)\((.*)\)", text):
            arguments = [] if match[3] == "void" else match[3].split(",")
            self.functions[match[2]] = (
                self._type(match[1]),
                [self._type(re.sub(r"\w+$", "", one.strip())) for one in arguments])
        else:
            sys.exit(f"cannot read this declaration: {text}")

    def _type(self, text: str) -> tuple[str, int]:
        """A type's name and how many stars it has."""
        words = text.replace("*", " * ").split()
        names = [word for word in words if word not in ("const", "*")]
        known = (*SCALARS, "void", *self.opaque, *self.structs)
        if len(names) != 1 or names[0] not in known:
            sys.exit(f"cannot read this type: {text}")
        return names[0], words.count("*")

    def _fields(self, line: str) -> list[tuple[str, str, int, int]]:
        first, *others = line.split(",")
        match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\d+)\])?", first)
        if not match or (others and "*" in first):
            sys.exit(f"cannot read this field: {line}")
        name, stars = self._type(match[1])
        fields = [(name, match[2], stars, int(match[3] or 0))]
        return fields + [(name, other.strip(), stars, 0) for other in others]


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.removeprefix("concert_").split("_"))


def member_name(enum: str, name: str) -> str:
    return name.removeprefix(enum.upper() + "_").removeprefix("CONCERT_")


def ctype(header: Header, name: str, stars: int) -> str:
    if stars == 0:
        return "None" if name == "void" else SCALARS[name][0] if name in SCALARS else name
    if name == "char" and stars == 1:
        return "c_char_p"
    # A handle is an address that only the library follows.
    if name == "void" or name in header.opaque:
        return "c_void_p" if stars == 1 else "POINTER(c_void_p)"
    return f"POINTER({ctype(header, name, stars - 1)})"


def pack_format(header: Header, struct: str) -> str:
    letters = ""
    for name, _, stars, elements in header.structs[struct]:
        if stars:
            letters += "P"
        elif name in SCALARS:
            letters += f"{elements or ''}{SCALARS[name][1]}"
        else:
            letters += pack_format(header, name)
    return letters


def write_struct(header: Header, name: str) -> list[str]:
    lines = [f"class {name}(Structure):", "    _fields_ = ["]
    for kind, field, stars, elements in header.structs[name]:
        times = f" * {elements}" if elements else ""
        lines.append(f'        ("{field}", {ctype(header, kind, stars)}{times}),')
    return lines + ["    ]", "", ""]


def generate(text: str) -> str:
    header = Header(text)
    lines: list[str] = []
    lines += [f"{name.removeprefix('CONCERT_')} = {value}"
              for name, value in header.constants.items()]
    lines += ["", ""]
    for enum, values in header.enums.items():
        lines += [f"class {class_name(enum)}(IntEnum):"]
        lines += [f"    {member_name(enum, name)} = {value}" for name, value in values] + ["", ""]
    for struct in header.structs:
        lines += write_struct(header, struct)
    lines += ["# For the module struct: a struct's fields in one line, without its final padding.",
              "PACK_FORMATS = {"]
    lines += [f'    "{name}": "@{pack_format(header, name)}",' for name in header.structs]
    lines += ["}", ""]
    lines += ["# Result and arguments of every function.",
              "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"]
    for function, (result, arguments) in header.functions.items():
        lines.append(f'    "{function}": ({ctype(header, *result)}, [')
        lines += [f"        {ctype(header, *argument)}," for argument in arguments] + ["    ]),"]
    body = "\n".join(lines + ["}", ""])
    names = ["POINTER", "Structure", "c_char_p", "c_void_p", *(one for one, _ in SCALARS.values())]
    imports = "".join(f"    {one},\n" for one in names if re.search(rf"\b{one}\b", body))
    return (f'"""The C ABI of concert.h. Generated by generate.py: do not edit."""\n\n'
            f"from ctypes import (\n{imports})\nfrom enum import IntEnum\n"
            f"from typing import Any\n\n{body}")


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    paths = [one for one in arguments if one != "--check"]
    wanted = generate(header_text(pathlib.Path(paths[0]) if paths else HEADER))
    if not check:
        OUTPUT.write_text(wanted, encoding="utf-8")
    elif OUTPUT.read_text(encoding="utf-8") != wanted:
        print("concert/_abi.py is not what concert.h says: run client/python/generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
