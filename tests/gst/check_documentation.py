#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_documentation.py GST_FOLDER ELEMENT=FILE...: each element has a section in the form that GStreamer's
documentation is made of, and every pipeline in it runs to its end. The README's first makes the picture beside it."""

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


def pixels_of(picture):
    """A PNG as bytes of RGBA, without its lines' filters and compression."""
    with tempfile.TemporaryDirectory() as folder:
        raw = pathlib.Path(folder, "raw")
        subprocess.run(["gst-launch-1.0", "-q", "filesrc", f"location={picture}", "!", "pngdec", "!", "videoconvert", "!",
                        "video/x-raw,format=RGBA", "!", "filesink", f"location={raw}"], check=True, timeout=60)
        return raw.read_bytes()


def check_readme(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    lead, _, picture = text.partition("```sh\nexport GST_PLUGIN_PATH=$PWD/build/gst\n")[2].partition("\n```\n")
    shown = root / re.search(r"!\[.*?\]\((\S+)\)", picture).group(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(shlex.split(lead.replace("\\\n", " ")), cwd=folder, check=True, timeout=60)
        made, committed = pixels_of(pathlib.Path(folder, shown.name)), pixels_of(shown)
    # Drivers round colours by themselves.
    if len(made) != len(committed) or max(abs(a - b) for a, b in zip(made, committed)) > 2:
        sys.exit(f"README.md: {lead}\nmakes another picture than {shown}: copy it there")
    print("README: its picture")


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
    check_readme(root)


main()
