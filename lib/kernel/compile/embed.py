#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write text files into a C++ header, one constant for each: embed.py HEADER FILE..."""

import pathlib
import sys

header, *files = map(pathlib.Path, sys.argv[1:])
parts = [
    "// Made by embed.py: do not edit.",
    "#pragma once",
    "",
    "#include <string_view>",
    "",
    "namespace gpumap::embedded {",
]
for file in files:
    name = file.name.replace(".", "_")
    parts.append(f'inline constexpr std::string_view {name} = R"EMBEDDED({file.read_text(encoding="utf-8")})EMBEDDED";')
parts.append("}  // namespace gpumap::embedded")
header.write_text("\n".join(parts) + "\n", encoding="utf-8")
