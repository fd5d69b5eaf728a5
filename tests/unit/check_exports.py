#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_exports.py LIBRARY INCLUDE_FOLDER PLUGIN: the library exports every function and every polymorphic class
that its headers declare, and nothing else, and the functions of gpumap.h with the versions that they have always had;
the plugin exports what GStreamer looks up.

The headers are read by Clang, which tells the mangled name of each declaration; whatever built the library follows the
same ABI. Without a Clang here it skips, with 77. A private member of an exported class counts as declared: the class
is exported as a whole.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

C_HEADER = "gpumap.h"
# Of the functions of gpumap.h those that came with a later version than GPUMAP_1, by their name.
LATER_VERSIONS: dict[str, str] = {}

PLUGIN_EXPORTS = {"gst_plugin_gpumap_get_desc", "gst_plugin_gpumap_register"}


def exported_by(library):
    """The defined dynamic symbols, as {mangled name: demangled name}."""
    mangled = [name for name, _ in versions_of(library)]
    names = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    return dict(zip(mangled, names.splitlines()))


def versions_of(library):
    """The defined dynamic symbols and their versions; "": it has none. Versions themselves are symbols, too: left out."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", library]
    for line in subprocess.check_output(command, text=True).splitlines():
        name, kind = line.split()[:2]
        if kind != "A":
            yield name.partition("@")[0], name.rpartition("@")[2] if "@" in name else ""


def parse(clang, include):
    """The declarations whose names have gpumap in them, of all headers in one file."""
    headers = sorted(path.name for path in pathlib.Path(include, "gpumap").glob("*.hpp")) + [C_HEADER]
    if not headers:
        sys.exit(f"no header in {include}/gpumap")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "all.cpp")
        source.write_text("".join(f"#include <gpumap/{name}>\n" for name in headers))
        dump = ["-Xclang", "-ast-dump=json", "-Xclang", "-ast-dump-filter=gpumap"]
        text = subprocess.check_output([clang, "-std=c++20", f"-I{include}", "-fsyntax-only", *dump, source], text=True)
    # One JSON value after the other, for each time that the namespace is opened.
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        node, at = decoder.raw_decode(text, at)
        yield node
        while at < len(text) and text[at].isspace():
            at += 1


FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXDestructorDecl", "CXXConversionDecl"}


def defined_here(node):
    """Whether a program that includes the header has the function without the library, or nobody has it."""
    inside = any(child.get("kind") == "CompoundStmt" for child in node.get("inner", []))
    without = ("inline", "constexpr", "explicitlyDeleted", "explicitlyDefaulted", "pure", "isImplicit")
    return inside or any(node.get(key) for key in without)


def declarations(node, functions, classes, constants):
    """The mangled names of functions that the library has to define, of classes with virtual functions, and of constants,
    which the library has too where they are used by address: without optimization."""
    kind = node.get("kind")
    if kind in FUNCTIONS:
        if not defined_here(node) and "mangledName" in node:
            functions.add(node["mangledName"])
        return
    if kind == "VarDecl" and node.get("constexpr") and "mangledName" in node:
        constants.add(node["mangledName"])
        return
    if kind in ("FunctionTemplateDecl", "ClassTemplateDecl", "ClassTemplateSpecializationDecl"):
        return
    if kind == "CXXRecordDecl" and node.get("completeDefinition"):
        if node.get("definitionData", {}).get("isPolymorphic"):
            name = node["name"]
            classes.add(f"N6gpumap{len(name)}{name}E")
    for child in node.get("inner", []):
        declarations(child, functions, classes, constants)


def variants(mangled):
    """Constructors and destructors have two or three symbols (C1 and C2; D1, D2 and D0), of which Clang tells one."""
    found = {mangled}
    for one, others in (("C1E", ("C2E",)), ("D1E", ("D2E", "D0E"))):
        at = mangled.find(one)
        if at >= 0:
            found.update(mangled[:at] + other + mangled[at + len(one):] for other in others)
    return found


def main():
    library, include, plugin = sys.argv[1:]
    clang = shutil.which("clang++")
    if not clang:
        print("no clang++ here: nobody reads the headers")
        sys.exit(77)
    functions, classes, constants = set(), set(), set()
    for node in parse(clang, include):
        declarations(node, functions, classes, constants)
    # A reader that finds nothing would be content with a library that exports nothing.
    for name in ("_ZN6gpumap14take_inventoryEv", "_ZN6gpumap4RingD1Ev"):
        if name not in functions:
            sys.exit(f"{name} was not found in the headers: does this Clang print its declarations in another way?")
    if not {"N6gpumap5ErrorE", "N6gpumap6DeviceE"} <= classes:
        sys.exit(f"not all classes with virtual functions were found in the headers: {sorted(classes)}")
    exported = exported_by(library)
    type_information = {f"_ZTI{name}" for name in classes} | {f"_ZTS{name}" for name in classes}
    missing = sorted((functions | type_information) - exported.keys())
    allowed = constants | type_information | {f"_ZTV{name}" for name in classes}
    for name in functions:
        allowed |= variants(name)
    foreign = sorted(exported.keys() - allowed)
    for name in missing:
        print(f"declared in a public header and not exported: {name}")
    for name in foreign:
        print(f"exported and in no public header: {exported[name]}")
    in_c = {name for name in functions if name.startswith("gpumap_")}
    if "gpumap_device_open" not in in_c:
        sys.exit(f"{C_HEADER} was read, and its functions were not found")
    unversioned = {
        name: version
        for name, version in versions_of(library)
        if version != (LATER_VERSIONS.get(name, "GPUMAP_1") if name in in_c else "GPUMAP_CXX")
    }
    for name, version in unversioned.items():
        print(f"has version {version or 'none'}, which lib/libgpumap.map should not give it: {name}")
    wrong = exported_by(plugin).keys() ^ PLUGIN_EXPORTS
    for name in sorted(wrong):
        print(f"{plugin}: {name} is {'missing' if name in PLUGIN_EXPORTS else 'exported and no business of a plugin'}")
    print(f"{len(in_c)} functions in C, {len(functions) - len(in_c)} functions and {len(classes)} classes declared, {len(exported)} symbols exported")
    sys.exit(bool(missing or foreign or wrong or unversioned))


main()
