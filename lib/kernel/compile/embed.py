#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write text files into a C++ header, one constant for each: embed.py HEADER [--builtin NAME=STEM]... FILE...

Each NAME becomes a row of builtin_texts, in this order: its sources are the files STEM.cu and STEM.comp.
"""

import pathlib
import sys

header, *arguments = sys.argv[1:]
builtins = []
while arguments[:1] == ["--builtin"]:
    builtins.append(arguments[1].split("="))
    arguments = arguments[2:]
parts = [
    "// Made by embed.py: do not edit.",
    "#pragma once",
    "",
    "#include <string_view>",
    "",
    "namespace gpumap::embedded {",
]
for file in map(pathlib.Path, arguments):
    name = file.name.replace(".", "_")
    parts.append(f'inline constexpr std::string_view {name} = R"EMBEDDED({file.read_text(encoding="utf-8")})EMBEDDED";')
if builtins:
    parts.append("struct BuiltinText {\n  std::string_view name, cuda, glsl;\n};")
    rows = ", ".join(f'{{"{name}", {stem}_cu, {stem}_comp}}' for name, stem in builtins)
    parts.append(f"inline constexpr BuiltinText builtin_texts[] = {{{rows}}};")
parts.append("}  // namespace gpumap::embedded")
pathlib.Path(header).write_text("\n".join(parts) + "\n", encoding="utf-8")
