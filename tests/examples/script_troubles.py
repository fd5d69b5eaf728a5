#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The commands of examples/, and tests/run, on other people's machines: what they say, and what they do not trip over.

Each runs in a checkout of its own, with the real scripts and Meson, and a project that builds in a second: programs
that write down how they were called. On the command line: the folder of the sources."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCES = pathlib.Path(sys.argv[1]).resolve()
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpumap-scripts-"))
CHECKOUT = FOLDER / "gpumäp in two words"
PATIENCE = 100  # seconds, for a busy machine
COMMANDS = ["examples/quickstart"] + [f"examples/{path.parent.name}/run" for path in SOURCES.glob("examples/*/run")]

PROJECT = {
    "meson.build": """project('gpumap',
  version: '12.34.56',
)
cp = find_program('cp')
subdir('gst')
subdir('lib/tools')
subdir('examples')
subdir('tests/gst')
""",
    "meson_options.txt": "option('toolkit_path', type: 'string')\noption('tests', type: 'boolean', value: true)\n",
    "gst/meson.build": "custom_target('plugin', input: 'plugin', output: 'libgstgpumap.so', "
                       "command: [cp, '@INPUT@', '@OUTPUT@'], build_by_default: true)\n",
    "gst/plugin": "",
    "lib/tools/meson.build": "custom_target('info', input: 'info', output: 'gpumap-info', "
                             "command: [cp, '@INPUT@', '@OUTPUT@'], build_by_default: true)\n",
    "lib/tools/info": "#!/bin/sh\necho this machine\n",
    "examples/meson.build": "custom_target('quickstart', input: 'program', output: 'gpumap-quickstart', "
                            "command: [cp, '@INPUT@', '@OUTPUT@'], build_by_default: true)\n",
    "examples/program": """#!/bin/sh
env >"$2/environment.txt"
echo "of the first checkout: $*"
if [ -n "$WAITS" ]; then touch "$WAITS"; exec sleep 100; fi
printf '\\000\\000\\200?\\000\\000\\000@\\000\\000@@' >"$2/iq-power.f32"
""",
    "tests/gst/meson.build": """custom_target('jitter', input: 'jitter.c', output: 'jitter.so', build_by_default: true,
  command: ['cc', '-shared', '-o', '@OUTPUT@', '@INPUT@'])
test('preloaded', find_program('preloaded'), suite: 'gst')
test('waits', find_program('waits'), suite: 'ordinary', timeout: 0)
""",
    "tests/gst/jitter.c": "int jitter;\n",
    "tests/gst/preloaded": "#!/bin/sh\n[ -z \"$GST_PLUGIN_PATH_1_0\" ] && grep -q jitter.so /proc/self/maps\n",
    "tests/gst/waits": "#!/bin/sh\ntouch \"$WAITS\"\nexec sleep 100\n",
}


def environment(**more):
    """Nothing is installed, and all is set that must not matter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMAP_", "GST_", "MESON"))}
    return kept | {
        "GPUMAP_NO_INSTALL": "1", "CDPATH": f"{CHECKOUT}:/", "TMPDIR": "/proc/none", "HOME": "/proc/none",
        "PKG_CONFIG_LIBDIR": "/none", "GST_PLUGIN_PATH_1_0": "/none", "GST_REGISTRY_1_0": "/none/registry",
    } | more


def start(*command, checkout=CHECKOUT, **more):
    return subprocess.Popen(command, cwd=checkout, env=environment(**more), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True)


def run(*command, status=0, **more):
    """What was said."""
    process = start(*command, **more)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, (command, process.returncode, said)
    return said


def interrupt(*command):
    """What a command said that got Ctrl-C once its program ran, and its status."""
    runs = FOLDER / "runs"
    runs.unlink(missing_ok=True)
    process = start(*command, WAITS=str(runs))
    began = time.monotonic()
    while not runs.exists():
        assert process.poll() is None and time.monotonic() - began < PATIENCE, (command, process.communicate())
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    return said, process.returncode


def make_checkout():
    for command in COMMANDS + ["examples/install-deps", "examples/prepare", "tests/run"]:
        (CHECKOUT / command).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / command, CHECKOUT / command)
    for name, text in PROJECT.items():
        path = CHECKOUT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)


def arguments_come_before_the_build():
    wrong = {
        "examples/quickstart": (["--framse", "3"], ["--frames", "many"], ["--frames", "0"], ["--frames"], ["3"]),
        "examples/adsb/run": (["--genrated"], ["nowhere.bin"], ["a", "b"]),
        "examples/fm/run": (["a", "b", "c"], ["--help-me"]),
        "examples/focus/run": (["film.mp4"],),
        "examples/gains/run": (["gains.bin"],),
        "examples/network/run": (["--gnerated"], ["nowhere.avi"]),
        "examples/plugin/run": (["-x"],),
        "examples/tensor/run": (["--gnerated"], ["nowhere.png"]),
        "examples/waterfall/run": (["a", "b", "c"], ["--help-me"]),
        "tests/run": (["nonsense"], ["--all", "gpu"], ["gpu", "--all"]),
    }
    for command, lists in wrong.items():
        for arguments in lists:
            said = run(command, *arguments, status=2)
            assert arguments[0] in said, (command, arguments, said)
    for command in COMMANDS + ["tests/run"]:
        for called in [command], ["sh", command]:
            said = run(*called, "--help")
            assert command in said and "set -" not in said and "SPDX" not in said, (called, said)
    for command in COMMANDS:
        assert run(command, "--version") == "gpumap 12.34.56\n"
    assert not list(CHECKOUT.glob("build*")) and not (CHECKOUT / "quickstart-out").exists()


def quickstart_runs_anywhere():
    link = FOLDER / "link"
    link.symlink_to(CHECKOUT / "examples/quickstart")
    said = run(str(link), "--frames", "7", checkout=FOLDER)
    assert "--frames 7" in said, said
    # How long it takes comes before the build, and the build's progress is passed on as ninja says it.
    progress = [line for line in said.splitlines() if re.fullmatch(r" +\[\d+/\d+\] .*\(\d+ s\)", line)]
    last = re.search(r"\[(\d+)/(\d+)\]", progress[-1])
    assert last[1] == last[2] and said.index("some 5 minutes") < said.index(progress[0]), said
    seen = (CHECKOUT / "quickstart-out/environment.txt").read_text()
    assert f"GST_PLUGIN_PATH={CHECKOUT}/build/gst" in seen
    for absent in "GST_PLUGIN_PATH_1_0=", "GST_REGISTRY_1_0=", "CDPATH=", "TMPDIR=":
        assert absent not in seen, absent
    if shutil.which("apt-get"):
        assert "PKG_CONFIG_LIBDIR=" not in seen and "PKG_CONFIG=/usr/bin/pkg-config" in seen
    if shutil.which("ccache"):
        assert "CCACHE_DISABLE=1" in seen
    # The last line is for another shell.
    paste = said.splitlines()[-1].partition("export ")[2]
    said = subprocess.run(["bash", "-c", f'export {paste}; printf %s "$GST_PLUGIN_PATH"'], capture_output=True,
                          text=True, check=True).stdout
    assert said == f"{CHECKOUT}/build/gst"
    # On a terminal ninja shows it in one line.
    shutil.rmtree(CHECKOUT / "build")
    said = run("script", "-qec", "examples/quickstart", "/dev/null")
    assert said.index("some 5 minutes") < re.search(r"\[\d+/\d+\]", said).start(), said
    # Called again as sh, with its cache where it can be.
    said = run("sh", "examples/quickstart", HOME=str(FOLDER))
    assert "minutes" not in said, said
    assert "CCACHE_DISABLE" not in (CHECKOUT / "quickstart-out/environment.txt").read_text()


def an_interrupted_run_leaves_the_summary():
    summary = CHECKOUT / "quickstart-out/summary.txt"
    before = summary.read_text()
    _, status = interrupt("examples/quickstart", "--frames", "8")
    assert status != 0 and summary.read_text() == before


def a_copied_checkout_builds_its_own_sources():
    copy = FOLDER / "a copy"
    shutil.copytree(CHECKOUT, copy)
    program = copy / "examples/program"
    program.write_text(program.read_text().replace("first", "second"))
    said = run("examples/quickstart", checkout=copy)
    assert "in another place" in said and "of the second checkout" in said, said
    said = run("examples/quickstart", checkout=copy)
    assert "place" not in said and "of the second checkout" in said, said


def another_meson_is_no_end():
    # As the folder of another Meson says it, which also has data that this one cannot read.
    for folder, command in ("build", ["examples/quickstart"]), ("build-test", ["tests/run", "jitter"]):
        info = CHECKOUT / folder / "meson-info/meson-info.json"
        said = json.loads(info.read_text())
        said["meson_version"]["full"] = "0.63.1"
        info.write_text(json.dumps(said))
        (CHECKOUT / folder / "meson-private/coredata.dat").write_bytes(b"of another Meson")
        assert "by another Meson" in run(*command)


def tests_run_tells_how_it_ended():
    said = run("tests/run", "jitter")
    assert said.endswith("\n1 passed, 0 failed, 0 skipped\n"), said
    said, status = interrupt("tests/run")
    assert status == 130 and "interrupted; until then 0 passed" in said.splitlines()[-1], (status, said)


def lint_does_not_pass_unseen():
    if not shutil.which("git"):  # a checkout that something else brought
        return
    for path in ["tests/find_waits.py"]:
        shutil.copy(SOURCES / path, CHECKOUT / path)
    said = run("tests/run", "quick-lint", status=1)  # shellcheck misses scripts that are not copied
    assert "skipped arrows: git has no checkout here" in said and "4 skipped" in said, said
    (CHECKOUT / ".git").mkdir()
    said = run("tests/run", "quick-lint", status=1)
    for name in "arrows", "waits", "words":
        assert f"FAILED  {name}" in said, said


def listed(*arrays):
    """The packages of install-deps' arrays."""
    words = " ".join(f'"${{{array}[@]}}"' for array in arrays)
    said = subprocess.run(["bash", "-c", f'source "$0"; printf "%s\\n" {words}', SOURCES / "examples/install-deps"],
                          capture_output=True, text=True, check=True).stdout
    return set(said.split())


def the_image_is_made_of_what_commands_take():
    """The Dockerfile's files are there, and its packages are those that install-deps lists, as are those that building
    the Debian packages takes."""
    text = (SOURCES / "examples/container/Dockerfile").read_text().replace("\\\n", " ")
    stages = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.M)[1:]
    stages = {name: (base, lines) for base, name, lines in zip(stages[::3], stages[1::3], stages[2::3])}
    assert list(stages) == ["packages", "nvrtc", "runtime", "nvidia", "gpumap"], list(stages)
    control = (SOURCES / "debian/control").read_text()
    made = set(re.findall(r"^Package: (\S+)$", control, re.M))
    installed = {}
    for name, (base, lines) in stages.items():
        assert base == "debian:$DEBIAN" or base in stages, base
        for source, arguments in re.findall(r"^COPY (?:--from=(\S+) )?(.*)$", lines, re.M):
            assert source in stages if source else all((SOURCES / file).exists() for file in arguments.split()[:-1])
        for option in re.findall(r"examples/install-deps(.*?)(?:$| &&)", lines, re.M):
            run("bash", "-c", f'source "$0"; install_deps {option}', str(SOURCES / "examples/install-deps"))
        words = set(" ".join(re.findall(r"apt-get install (.*?) &&", lines)).split())
        installed[name] = {word for word in words if word[0] not in "/-"}
        assert {re.sub(r"/packages/(.*)_\*\.deb", r"\1", word) for word in words if word[0] == "/"} <= made, words
    assert installed["runtime"] == listed("run_packages"), installed["runtime"]
    assert not installed["packages"] | installed["nvrtc"] | installed["gpumap"], installed
    json.loads((SOURCES / "examples/container/nvidia_icd.json").read_text())["ICD"]["library_path"].index("nvidia")
    needed = set(re.findall(r"^ ([\w.+-]+)", control.split("\n\n")[0].partition("Build-Depends:")[2], re.M))
    assert needed - {"debhelper-compat"} <= listed("build_packages", "package_packages"), needed


try:
    make_checkout()
    for part in (arguments_come_before_the_build, quickstart_runs_anywhere, an_interrupted_run_leaves_the_summary,
                 a_copied_checkout_builds_its_own_sources, tests_run_tells_how_it_ended, another_meson_is_no_end,
                 lint_does_not_pass_unseen, the_image_is_made_of_what_commands_take):
        part()
        print(f"ok: {part.__name__}", flush=True)
finally:
    shutil.rmtree(FOLDER)
