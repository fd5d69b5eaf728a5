#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_documentation.py GST_FOLDER ELEMENT=FILE...: each element has a section in the form that GStreamer's
documentation is made of, and every pipeline in it runs to its end."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


def section_of(element, text):
    """The comment block of an element, without the stars."""
    found = re.search(r"/\*\*\n \* SECTION:element-" + re.escape(element) + r"\n(.*?)\n \*/", text, re.S)
    if not found:
        sys.exit(f"{element}: no block SECTION:element-{element}")
    return "\n".join(line[3:] for line in found.group(1).split("\n"))


def pipelines_in(section):
    """The words of each command between |[ and ]|, as a shell would take them."""
    for block in re.findall(r"\|\[\n(.*?)\n\]\|", section, re.S):
        words = shlex.split(block.replace("\\\n", " "))
        if words[0] != "gst-launch-1.0":
            sys.exit(f"not a pipeline: {block}")
        yield words


def main():
    root = pathlib.Path(sys.argv[1]).parent
    for argument in sys.argv[2:]:
        element, file = argument.split("=")
        section = section_of(element, pathlib.Path(sys.argv[1], file).read_text(encoding="utf-8"))
        for line in (f"@title: {element}", "@short_description: ", "Since: "):
            if not re.search("^" + re.escape(line), section, re.M):
                sys.exit(f"{element}: no line \"{line}\"")
        commands = list(pipelines_in(section))
        if not any(element in words for words in commands):
            sys.exit(f"{element}: no pipeline with it")
        for words in commands:
            with tempfile.TemporaryDirectory() as folder:
                # What is written lies in a folder of its own, what is read in the repository.
                pathlib.Path(folder, "examples").symlink_to(root / "examples")
                run = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
                made = [word.split("=")[1] for word in words if re.match(r"location=\w+\.\w+$", word)]
                empty = [name for name in made if not pathlib.Path(folder, name).stat().st_size]
            if run.returncode != 0 or empty:
                sys.exit(f"{shlex.join(words)}\n{run.stdout}{run.stderr}\nexit {run.returncode}, empty: {empty}")
        print(f"{element}: {len(commands)} pipelines")


main()
