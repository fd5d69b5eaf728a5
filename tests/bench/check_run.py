#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_run.py RUN GPUMAP-BENCH: does the whole run come to its tables, are the files that it leaves whole, and can they
be true? What gpumap-bench draws and what it refuses is tried beside that."""
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

RUN, BENCH = sys.argv[1:3]
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


def check_rivals(report):
    """Of gpumap's pair nothing tears or hangs."""
    assert report["cpu"] and report["gstreamer"], report
    assert [row["plot"] for row in report["rows"]] == ["hand-over", "victim killed", "victim stopped", "producer killed"], report
    hand_over, *deaths = report["rows"]
    assert 0 < hand_over["median_us"] <= hand_over["p99_us"] <= hand_over["p999_us"] <= hand_over["max_us"], hand_over
    assert sum(hand_over["below_us"].values()) == 50 and hand_over["torn"] == 0, hand_over
    assert hand_over["p999_us"] < max(map(int, hand_over["below_us"])), hand_over
    for row in deaths:
        assert row["pair"] == "gpumap" and row["torn"] == row["hangs"] == row["restarts"] == 0, row
        assert row["frames_seen"] > 0 and row["frames_seen"] + row["lost"] <= row["frames_made"] + 20, row
        assert row["longest_gap_ms"] > 0 and row["ms_without_frames"] >= 0, row


def check_no_gnuplot(folder):
    """Without gnuplot: the JSON all the same, and a word on how to get it."""
    file = folder / "without.json"
    ran = subprocess.run([BENCH, "bw", "--quick", "--sizes", "64", "--json", file, "--svg", folder / "without.svg"], text=True,
                         capture_output=True, env={**os.environ, "PATH": str(folder)})
    assert ran.returncode == 1 and "apt-get install gnuplot" in ran.stderr, ran
    assert json.loads(file.read_text())["modes"], "no JSON without gnuplot"
    subprocess.run([BENCH, "--from", file, "--svg", folder / "later.svg"], check=True)
    assert "software" in (folder / "later.svg").read_text(), "nothing drawn later"
    older = folder / "older.json"
    older.write_text('{"modes": [{}], "software": true}')
    refused = subprocess.run([BENCH, "--from", older, "--svg", folder / "older.svg"], capture_output=True, text=True)
    assert refused.returncode == 1 and "older.json is not what this" in refused.stderr, refused


def check_what_is_written(folder):
    """What was measured is written, whatever becomes of the rest, and what cannot be is told first."""
    file = folder / "odd.json"
    subprocess.run([BENCH, "bw", "--quick", "--check", "--threads", "1", "--sizes", "66,16777217", "--json", file], check=True)
    assert json.loads(file.read_text())["modes"][0]["rows"], "no rows of an odd size"
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = subprocess.run([BENCH, "stalls", "--quick", "--json", file], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1 and json.loads(file.read_text())["modes"][0]["mode"] == "stalls", ran
    # No figure of CUDA without it, and what was measured before is there.
    ran = subprocess.run([BENCH, "stalls", "frame", "--quick", "--backend", "cuda", "--json", file], capture_output=True,
                         text=True)
    assert ran.returncode == 1 and [mode["mode"] for mode in json.loads(file.read_text())["modes"]] == ["stalls"], ran
    ran = subprocess.run([BENCH, "stalls", "--quick", "--json", "/nowhere/b.json"], capture_output=True, text=True)
    assert ran.returncode == 1 and "nothing was measured" in ran.stderr and not ran.stdout, ran
    ran = subprocess.run([BENCH, "--nothing"], capture_output=True, text=True)
    assert ran.returncode == 2, ran


def tables_of(folder):
    return subprocess.run([RUN, "--table", folder], check=True, capture_output=True, text=True).stdout.splitlines()


def the(lines, begin):
    found = [line for line in lines if line.startswith(begin)]
    assert len(found) == 1, (begin, lines)
    return found[0]


def case(transport, us, mode="launch", kernel="nothing", frame="64x42", **more):
    times = {"count": 9, "p50": us * 1000, "p99": 17100, "p999": 9870, "max": 321000}
    return {"transport": transport, "mode": mode, "kernel": kernel, "frame": frame, "frames": 9,
            "times": dict.fromkeys(("result", "through", "write", "notice"), times), **more}


def row(path, detail, us=7.53, p99=18.5, **more):
    return {"path": path, "detail": detail, "median_us": us, "p99_us": p99, "p999_us": 8.76, "max_us": 321.0,
            "times": 1000, **more}


def check_tables(folder):
    """Of a run as a GPU would leave it, with figures that no default makes."""
    assert "not measured" in the(tables_of(folder), "4 KiB, three elements, resident, copy_seen: P50")
    machine = {"device": "made up", "driver": "1", "cpu": "3", "software": False}
    for file, content in {
        "small": {"machine": machine, "commit": "", "cases": [
            case("bar", 10.94), case("bar", 7.53, "resident"), case("bar", 9.37, "resident", "nothing+nothing"),
            case("upload", 5.25, "resident"), case("cudaupload", 37.65)]},
        "ten-million": {"cases": [case("bar", 7.53, "resident")]},
        "rates": {"cases": [case("bar", 0, "resident", "identity", "64B", frames_per_s=351234.5),
                            case("upload", 0, "launch", "identity", "64B", frames_per_s=64321.0)]},
        "copy": {"cases": [case("bar", 100.0, frame="1080p", cpu_ns_a_frame=550000.0),
                           case("cudaupload", 400.0, frame="1080p", cpu_ns_a_frame=500000.0)]},
        "element": {"cases": [case("cudaupload", 46.0, kernel="convert"), case("cudaupload", 63.0, kernel="gst:cudaconvert")]},
        "bells": {"modes": [
            {"mode": "pingpong", "rows": [{"path": "BAR", "detail": "4-byte doorbell", "median_us": 1.75}]},
            {"mode": "bw", "rows": [{"path": one, "bytes": 64, "detail": "warm", "threads": 1, "median_us": us}
                                    for one, us in (("bar", 0.2), ("bare loop, avx2", 0.19), ("bar, memcpy", 0.3))]}]},
        "library": {"targets": [{"claim": "convert, over a copy", "bound": 1 / 0.7, "value": 0.78}], "modes": [
            {"mode": "stalls", "rows": [row("threads that spin", "7 us of work")]},
            {"mode": "ring", "rows": [row("publish() to receive()", "both spin", 0.279),
                                      row("two threads", "256 slots", 0.279)]},
            {"mode": "kernels", "rows": [row("gpumap", "convert", ratio=0.78), row("a copy", "convert", 9.65)]},
            {"mode": "launch", "rows": [
                row("by a graph", "seen"), row("by a graph", "returned", 3.25), row("beside a full GPU", "beside", p99=2000),
                row("it stays, sm-share=0.125, beside sm-share=0.875", "beside")]}]}}.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    (folder / "loop.txt").write_text(
        "kernel           commands.cu, launched for each frame, busy-poll=1000\n"
        "frames           50,000 in 2.26 s, 100 before them do not count\nrate             22,170 frames/s\n"
        "jitter           9.00 us RMS\nlate             145 frames came more than 50 us after the median\n"
        "kernel           commands.cu, which stays on the GPU, busy-poll=1000\n"
        "frames           1,000,000 in 50 s, 100 before them do not count\nrate             19,999 frames/s\n"
        "jitter           1.90 us RMS\nlate             1 frames came more than 50 us after the median\n")
    for name, took in ("cudaupload", "3.75"), ("gpumapupload", "2.5"), ("gpumapsrc", "2.6"):
        (folder / f"chain-{name}.txt").write_text(f"Execution ended after 0:00:0{took}\n")
    (folder / "packets-alone.txt").write_text("Execution ended after 0:00:01.250000000\n")
    (folder / "packets.txt").write_text("gpumapsink0: 3750 frames: 0 written in place\nExecution ended after 0:00:02.5\n")
    lines = tables_of(folder)
    for begin, figure, verdict in (
            ("1,472-byte buffers a second into `spectrum`", "1200000", "met"),
            ("their source's time alone, of that", "0.50", ""),
            ("| three elements, launched |", "| 10.9 | 17.1 | 9.87 |", ""),
            ("| 1080p | bar |", "| 100 | 100 | 550 |", ""),
            ("| a launch, by a graph |", "| 7.53 (3.25) |", ""),
            ("| convert |", "| 7.53 | a copy: 9.65 | 0.78 |", ""),
            ("ring: publish to receive, P50, ns", "279", "met"),
            ("ring: empty slots a second, of 256", "3584229", "missed"),
            ("4 KiB, three elements, launched, nothing: P50", "10.9 us", "missed"),
            ("4 KiB, `gpumapupload`, resident, nothing: P50", "5.2 us", "met"),
            ("4 KiB, three elements, launched, nothing: over cudaupload", "0.291", "met"),
            ("4 KiB, three elements, resident, nothing: over cudaupload", "0.200", "missed"),
            ("4 KiB, resident: P99.9", "9.9 us", "met"),
            ("7 us of a thread that only spins: P99.9", "8.8 us", ""),
            ("64B frames/s, three elements, resident", "351234", "met"),
            ("64B frames/s, `gpumapupload`, launched", "64321", "missed"),
            ("a second resident element over a bare 4-byte doorbell", "1.05", "missed"),
            ("copy of 64 B", "0.95", "missed"),
            ("a copied 1080p frame, bar, over cudaupload", "0.25", "met"),
            ("its CPU time, bar, over cudaupload", "1.10", "missed"),
            ("`convert` behind cudaupload over cudaconvert", "0.73", ""),
            ("convert, over a copy", "0.78", "met"),
            ("`cudaconvert ! cudadownload` behind gpumapupload over", "1.50", "met"),
            ("`cudaconvert ! cudadownload` behind gpumapsrc over", "1.44", "missed"),
            ("P99 beside a full GPU, sm-share, launched", "not measured", ""),
            ("P99 beside a full GPU, sm-share, resident", "18.5 us", "met"),
            ("loop, launched: frames/s", "22170", "met"),
            ("loop, launched: over 50 us late", "2900.0", "missed"),
            ("loop, resident: frames/s", "19999", "missed"),
            ("loop, resident: jitter RMS", "1.9 us", "met"),
            ("loop, resident: over 50 us late", "1.0", "met")):
        line = the(lines, begin)
        assert figure in line and (verdict in line if verdict else " met" not in line.split(figure)[1]), line


def check_quick_run(folder):
    done = subprocess.run([RUN, "--quick", "--commit", "0123456", "--out", folder], capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    lines = tables_of(folder)
    for begin in ("4 KiB, three elements, launched, copy_seen: P50", "4 KiB, `gpumapupload`, launched, nothing: P50",
                  "64B frames/s, three elements, launched", "64B frames/s, `gpumapupload`, launched",
                  "7 us of a thread that only spins: P99.9", "copy of 4096 B", "loop, launched: jitter RMS",
                  "1,472-byte buffers a second into `spectrum`",
                  "loop, launched beside 8 busy processes: frames/s"):
        assert "not measured" not in the(lines, begin), lines
    for title in ("One frame", "Small frames", "Frames of upstream's own", "Kernels and launches", "Between processes"):
        assert any(line.startswith(title) for line in lines), (title, lines)
    check_rivals(json.loads((folder / "rivals.json").read_text()))
    reports = [json.loads((folder / f"{name}.json").read_text()) for name in ("library", "frame", "bells")]
    modes = [mode for report in reports for mode in report["modes"]]
    assert sorted(mode["mode"] for mode in modes) == sorted(MODES), [mode["mode"] for mode in modes]
    for mode in modes:
        check_mode(mode)
        CHECKS.get(mode["mode"], lambda _: None)(mode)
    for report in reports:
        assert report["software"] and report["device"] and report["driver"] and report["cpu"], report.keys()
        assert report["commit"] == "0123456"
        assert all("met" not in target for target in report["targets"]), "software was judged"


def check_plots(folder):
    """Those of the run, of software, and the picture of the page: an H100's figures, which no run here makes."""
    for file in folder / "frame.json", folder / "bells.json", pathlib.Path(RUN).parent / "results" / "frame-h100.json":
        drawn, report = folder / "drawn.svg", json.loads(file.read_text())
        subprocess.run([BENCH, "--from", file, "--svg", drawn], check=True)
        svg = drawn.read_text()
        assert "<svg" in svg and svg.rstrip().endswith("</svg>"), "the plot is not whole"
        assert ("software" in svg) == report["software"], "the plot does not say whether these are figures of software"
        check_plot(svg, report["modes"])


with tempfile.TemporaryDirectory() as made_up, tempfile.TemporaryDirectory() as here:
    check_tables(pathlib.Path(made_up))
    check_quick_run(pathlib.Path(here))
    check_plots(pathlib.Path(here))
    check_no_gnuplot(pathlib.Path(here))
    check_what_is_written(pathlib.Path(here))
