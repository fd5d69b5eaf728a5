#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run gpumap-bench briefly, as given on the command line, and read what it wrote: is it whole, and can it be true?"""
import collections
import html
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODES = {"stalls", "ring", "link", "bw", "frame", "launch", "pingpong", "kernels", "spans"}
PATHS = {
    "bw": {"bar", "host-to-host memcpy", "CPU reads of the BAR"},
    "frame": {"bar", "copy to pinned + DMA", "stream to pinned + DMA", "copy to zero-copy", "pageable", "pinned, DMA",
              "zero-copy"},
}


def check_row(mode, row):
    figures = [row[name] for name in ("min_us", "median_us", "p90_us", "p99_us", "p999_us", "max_us")]
    assert figures == sorted(figures), (mode, row)
    # All figures of a row are of the same thing, one copy: by nearest rank the last percentiles of few times are one.
    assert row["times"] > 0, (mode, row)
    if row["times"] < 1000:
        assert row["p999_us"] == row["max_us"], (mode, row)
    if row["times"] < 100:
        assert row["p99_us"] == row["max_us"], (mode, row)
    assert row["min_us"] >= 0 and row["p99_us"] > 0 and row.get("cpu_us", 0) >= 0, (mode, row)
    assert row["threads"] >= 1 and row["path"], (mode, row)
    for key in ("ratio", "gb_per_s"):
        assert key not in row or 0 < row[key] < math.inf, (mode, row)
    if "gb_per_s" in row:
        assert row["gb_per_s"] < 2000, (mode, row)


def check_mode(mode):
    name = mode["mode"]
    assert mode["software"] and mode["what"] and mode["not_measured"], name
    if not mode["rows"]:
        # A resident kernel needs a core of its own here, and a busy machine may have none to give.
        assert name == "pingpong" and len(mode["not_measured"]) > 2, name
        return
    for row in mode["rows"]:
        check_row(name, row)
    paths = {row["path"] for row in mode["rows"]}
    assert PATHS.get(name, set()) <= paths, f"{name}: {sorted(PATHS[name] - paths)} missing"
    groups = [(row["path"], row["detail"], row["bytes"], row["threads"]) for row in mode["rows"]]
    assert len(groups) == len(set(groups)), f"{name}: a row twice"


def check_link(mode):
    """That no frame is missing or wrong it sees to by itself: then it fails. Here: nobody is woken twice."""
    paths = {}
    for row in mode["rows"]:
        paths.setdefault(row["detail"], set()).add(row["path"])
    consumers = {f"consumers: {number}" for number in (1, 2, 4)}
    assert paths == {"rate": {"one process", "two processes"}, "acquire": consumers, "both": consumers,
                     "publish": consumers, "copy": {"bare stores", "consumer sleeps", "consumer spins"}}, paths
    assert all(row["bytes"] == 3110400 and row["gb_per_s"] > 0 for row in mode["rows"] if row["detail"] == "copy"), mode
    assert [row["consumers"] for row in mode["cost"]] == [1, 2, 4] and mode["store_kernel"], mode["cost"]
    for row in mode["cost"] + mode["wakes"]:
        # One for each sleeper at most; how many sleep is the scheduler's.
        assert row["wakes_a_frame"] <= row["consumers"], row
    assert all(row["wakes_a_frame"] > 0 for row in mode["wakes"]), mode["wakes"]


def check_launch(mode):
    rows = {(row["path"], row["detail"]): row for row in mode["rows"]}
    ways = {path for path, detail in rows if detail == "seen"}
    assert ways == {"in Vulkan", "in Vulkan, GPU times"}, ways
    for way in ways:
        assert 0 < rows[way, "returned"]["min_us"] <= rows[way, "seen"]["min_us"], rows


def check_kernels(mode):
    beginnings = ["convert, 1080p NV12 to RGBA", "convert, 1080p NV12 to planar", "convert, 1080p NV12 to 224x224",
                  "spectrum, ", "FFT, 64 x 1024", "FFT, 1 x", "three functions"]
    assert len(mode["rows"]) == 2 * len(beginnings), mode["rows"]
    for beginning, ours, beside in zip(beginnings, mode["rows"][::2], mode["rows"][1::2]):
        assert ours["detail"] == beside["detail"] and ours["detail"].startswith(beginning), ours
        assert not ours["rival"] and beside["rival"] and ours["against"] == beside["path"], (ours, beside)
        assert abs(ours["ratio"] - ours["median_us"] / beside["median_us"]) < 1e-6 * ours["ratio"], (ours, beside)


def check_ring(mode):
    paths = [(row["path"], row["detail"]) for row in mode["rows"]]
    assert {detail for path, detail in paths if path == "two threads"} == {"2 slots", "8 slots", "256 slots"}, paths
    assert {detail for path, detail in paths if path == "publish() to receive()"} == {"both spin", "consumer sleeps"}, paths


def check_spans(mode):
    assert [row["path"] for row in mode["rows"]] == ["a launch", "begin and end a span", "read a span"], mode["rows"]


def check_stalls(mode):
    stops = mode["stops"][0]
    rates = [one["times_a_second"] for one in stops["stops"]]
    assert stops["threads"] == 2 and rates == sorted(rates, reverse=True), stops
    assert mode["rows"][0]["min_us"] >= 7 and mode["rows"][0]["max_us"] < stops["longest_us"] * 20 + 20, mode


def texts_of(svg):
    """Of a plot: (words, box as left, right, top, bottom), as wide as letters are on average, at least."""
    texts = []
    for group in re.finditer(r'<g transform="translate\(([\d.]+),([\d.]+)\)([^>]*)>\s*<text[^>]*>(.*?)</text>', svg, re.S):
        x, y, style, words = float(group[1]), float(group[2]), group[3], re.sub("<[^>]*>", "", group[4])
        if "rotate" in style:
            continue
        size = float(re.search(r'font-size="([\d.]+)"', style)[1])
        wide = 0.48 * size * len(words)
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[re.search(r'text-anchor="(\w+)"', style)[1]]
        texts.append((words, (left, left + wide, y - 0.7 * size, y)))
    return texts


def check_plot(svg, modes):
    """Each series has its name in a legend, a path has one colour, and no word is cut or lies upon another one."""
    width = float(re.search(r'width="(\d+)"', svg)[1])
    texts = texts_of(svg)
    for words, (left, right, _, _) in texts:
        assert 0 <= left and right <= width, (words, left, right)
    for number, (words, box) in enumerate(texts):
        for others, other in texts[:number]:
            assert not (box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]), (words, others)
    said = collections.Counter(html.unescape(words) for words, _ in texts)
    panels = collections.Counter()  # series of frame, by panel, from the rows
    for mode in modes:
        if mode["mode"] == "frame":
            panels.update({(row["detail"], row["path"]) for row in mode["rows"]})
            for detail in {row["detail"] for row in mode["rows"]}:
                assert any(words.startswith(f"frame: one frame, {detail}") for words in said), detail
    named = collections.Counter(path for _, path in panels)
    for path, times in named.items():
        assert said[path] >= times, (path, times, said[path])
    colours = {}
    for series in re.finditer(r'<text>([^<]*)</text>\s*</g>\s*</g>\s*<g[^>]*stroke="currentColor"[^>]*>\s*'
                              r"<path stroke='(rgb[^']*)'", svg):
        path = html.unescape(series[1]).split(", ")[0]
        assert colours.setdefault(path, series[2]) == series[2], (path, colours[path], series[2])
    assert len(set(colours.values())) == len(colours) > 2 or len(colours) > 12, colours


CHECKS = {"link": check_link, "launch": check_launch, "kernels": check_kernels, "ring": check_ring,
          "spans": check_spans, "stalls": check_stalls}


def check_no_gnuplot(bench, folder):
    """Without gnuplot: the JSON all the same, and a word on how to get it."""
    file = folder / "without.json"
    ran = subprocess.run([bench, "bw", "--quick", "--sizes", "64", "--json", file, "--svg", folder / "without.svg"], text=True,
                         capture_output=True, env={**os.environ, "PATH": str(folder)})
    assert ran.returncode == 1 and "apt-get install gnuplot" in ran.stderr, ran
    assert json.loads(file.read_text())["modes"], "no JSON without gnuplot"
    subprocess.run([bench, "--from", file, "--svg", folder / "later.svg"], check=True)
    assert "software" in (folder / "later.svg").read_text(), "nothing drawn later"
    older = folder / "older.json"
    older.write_text('{"modes": [{}], "software": true}')
    refused = subprocess.run([bench, "--from", older, "--svg", folder / "older.svg"], capture_output=True, text=True)
    assert refused.returncode == 1 and "older.json is not what this" in refused.stderr, refused


def check_what_is_written(bench, folder):
    """What was measured is written, whatever becomes of the rest, and what cannot be is told first."""
    file = folder / "odd.json"
    subprocess.run([bench, "bw", "--quick", "--threads", "1", "--sizes", "66,16777217", "--json", file], check=True)
    assert json.loads(file.read_text())["modes"][0]["rows"], "no rows of an odd size"
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = subprocess.run([bench, "stalls", "--quick", "--json", file], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1 and json.loads(file.read_text())["modes"][0]["mode"] == "stalls", ran
    # No figure of CUDA without it, and what was measured before is there.
    ran = subprocess.run([bench, "stalls", "frame", "--quick", "--backend", "cuda", "--json", file], capture_output=True,
                         text=True)
    assert ran.returncode == 1 and [mode["mode"] for mode in json.loads(file.read_text())["modes"]] == ["stalls"], ran
    ran = subprocess.run([bench, "stalls", "--quick", "--json", "/nowhere/b.json"], capture_output=True, text=True)
    assert ran.returncode == 1 and "nothing was measured" in ran.stderr and not ran.stdout, ran
    ran = subprocess.run([bench, "--nothing"], capture_output=True, text=True)
    assert ran.returncode == 2, ran


def main():
    bench = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        json_file, svg_file = folder / "figures.json", folder / "figures.svg"
        subprocess.run([bench, "--quick", "--check", "--commit", "0123456", "--json", json_file, "--svg", svg_file],
                       check=True)
        report = json.loads(json_file.read_text())
        svg = svg_file.read_text()
        # The picture of the page: an H100's figures, which no run here makes.
        h100, drawn = pathlib.Path(__file__).parent / "results" / "frame-h100.json", folder / "h100.svg"
        subprocess.run([bench, "--from", h100, "--svg", drawn], check=True)
        check_plot(drawn.read_text(), json.loads(h100.read_text())["modes"])
        check_no_gnuplot(bench, folder)
        check_what_is_written(bench, folder)
    assert {mode["mode"] for mode in report["modes"]} == MODES, [mode["mode"] for mode in report["modes"]]
    for mode in report["modes"]:
        check_mode(mode)
        CHECKS.get(mode["mode"], lambda _: None)(mode)
    assert report["software"] and report["device"] and report["driver"] and report["cpu"], report.keys()
    assert report["commit"] == "0123456"
    assert all("met" not in target for target in report["targets"]), "software was judged"
    assert "<svg" in svg and svg.rstrip().endswith("</svg>"), "the plot is not whole"
    assert "software" in svg, "the plot does not say that these are figures of software"
    check_plot(svg, report["modes"])


if __name__ == "__main__":
    main()
