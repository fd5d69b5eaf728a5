#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run gpumap-adaptive-optics into what it has to withstand. On the command line: the program, the folder examples/."""
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
KERNEL = pathlib.Path(sys.argv[2]).resolve() / "adaptive-optics" / "commands.comp"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpumap-adaptive-optics-"))
PATIENCE = 100  # seconds, for a busy machine


def command(*arguments, kernel=KERNEL):
    return [PROGRAM, "--size", "small", "--out", FOLDER, "--kernel", kernel, *arguments]


def run(*arguments, status=0, kernel=KERNEL):
    """What was said."""
    done = subprocess.run(command(*arguments, kernel=kernel), capture_output=True, text=True, timeout=PATIENCE,
                          check=False)
    assert done.returncode == status, (arguments, done)
    return done.stdout if status == 0 else done.stderr


def children_of(process):
    """Process ids, of those that have not ended."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def runs(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(what):
    """What `what` gives, once it gives something."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(what)


class Terminal:
    """A run whose messages go to a terminal, where it tells how many frames there are."""

    def __init__(self, *arguments):
        (FOLDER / "latency-launch.txt").unlink(missing_ok=True)
        self.end, other = pty.openpty()
        os.set_blocking(self.end, False)
        self.process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=other, text=True)
        os.close(other)
        self.said = ""

    def frames(self):
        try:
            self.said += os.read(self.end, 65536).decode()
        except BlockingIOError:
            pass
        assert self.process.poll() is None, self.said
        return max((int(number.replace(",", "")) for number in re.findall(r"([\d,]+) frames", self.said)), default=0)


def options_that_are_wrong():
    for arguments, why in ((("--frames", "10"), "--frames"), (("--frames", "many"), "--frames"),
                           (("--size", "middling"), "middling not in"), (("--load", "many"), "--load"),
                           (("--out", "/nowhere"), "/nowhere"), (("--nothing",), "--nothing")):
        done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)
        said = [line for line in done.stderr.splitlines() if line and not line.startswith("Run with --help")]
        assert done.returncode not in (0, 1) and len(said) == 1 and why in said[0], (arguments, done)


def commands_that_are_wrong():
    """Kernels that are off by a little: the reference sees it."""
    text = KERNEL.read_text(encoding="utf-8")
    for number, (right, wrong, what) in enumerate((
            ("uint64_t(row), parts[0])", "uint64_t(row), parts[0] * 1.0001)", "frame 0: "),
            ("sum += load_f32x4(numbers", "if (i + 16u < columns / 4u) sum += load_f32x4(numbers", "frame 0: "),
            ("- 32768)", "- 32768 + int(i & 1u))", "frame 0: "),
            # From some frame on: also of a long run each is checked.
            ("pixel >> 16)", "(frame.sequence == 321ul ? 0u : pixel) >> 16)", "frame 321: "))):
        assert text.count(right) == 1, right
        kernel = FOLDER / f"wrong-{number}.comp"
        kernel.write_text(text.replace(right, wrong), encoding="utf-8")
        said = run("--frames", "500", kernel=kernel, status=1)
        assert what in said and "float32 may be off by" in said, said


def kernels_that_fail():
    kernel = FOLDER / "broken.comp"
    kernel.write_text(KERNEL.read_text(encoding="utf-8").replace("void measure()", "void measure("), encoding="utf-8")
    assert "broken.comp" in run(kernel=kernel, status=1)
    # A table of another shape: fewer commands come than the mirror has actuators.
    kernel.write_text(KERNEL.read_text(encoding="utf-8").replace("4*params.actuators", "4*params.actuators-4"),
                      encoding="utf-8")
    assert "352 bytes of commands came, not 356" in run(kernel=kernel, status=1)


def an_end_by_the_user():
    for number in (signal.SIGINT, signal.SIGTERM):
        terminal = Terminal("--frames", "100000000", "--load", "2")
        until(lambda: terminal.frames() > 300)
        busy = children_of(terminal.process.pid)
        assert len(busy) == 2, busy
        terminal.process.send_signal(number)
        said = terminal.process.communicate(timeout=PATIENCE)[0]
        assert terminal.process.returncode == 0, said
        frames = re.search(r"^Ended by the user after ([\d,]+) frames\.$", said, re.M)
        assert frames and int(frames[1].replace(",", "")) > 300, said
        assert re.search(r"^latency +P50 [\d.]+ us, P99 ", said, re.M) and "beside 2 busy processes" in said, said
        assert (FOLDER / "latency-launch.txt").stat().st_size > 0
        until(lambda: not any(runs(child) for child in busy))


def an_end_by_force():
    terminal = Terminal("--frames", "100000000", "--load", "3")
    until(lambda: terminal.frames() > 0)
    busy = children_of(terminal.process.pid)
    assert len(busy) == 3, busy
    terminal.process.kill()
    terminal.process.communicate(timeout=PATIENCE)

    until(lambda: not any(runs(child) for child in busy))


for trouble in (options_that_are_wrong, commands_that_are_wrong, kernels_that_fail, an_end_by_the_user, an_end_by_force):
    trouble()
    print(trouble.__name__, "ok", flush=True)
for file in FOLDER.iterdir():
    file.unlink()
FOLDER.rmdir()
