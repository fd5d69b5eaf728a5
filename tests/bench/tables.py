#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tables.py FOLDER: the tables of README.md from what tests/bench/run left there, and the targets: what, the limit, the
figure, and whether it is met. What is not there is "not measured"."""
import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(sys.argv[1])
TARGETS = []


def load(name):
    try:
        return json.loads((FOLDER / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}


def target(what, limit, figure, met=None, note=""):
    verdict = "" if met is None else "met" if met else "missed"
    TARGETS.append((what, limit, figure or "not measured", verdict, note))


def at_most(what, limit, value, form="{:.1f}", note="", unit=""):
    shown = None if value is None else form.format(value) + unit
    target(what, f"<= {limit}{unit}", shown, None if value is None else value <= limit, note)


def at_least(what, limit, value, form="{:.0f}"):
    target(what, f">= {limit:,}", None if value is None else form.format(value), None if value is None else value >= limit)


def ratio(one, other):
    return one / other if one and other else None


def table(title, columns, rows):
    if not rows:
        return
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def us(value, digits=3):
    """As README writes times: three digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.{max(0, digits - len(str(int(value))))}f}"


# ---- gpumap-latency's reports

def case(report, transport, frame=None, mode="launch", kernel=None):
    for one in report.get("cases", []):
        if (one["transport"] == transport and one["mode"] == mode and one["frames"] > 0
                and frame in (None, one["frame"]) and kernel in (None, one["kernel"])):
            return one
    return {}


def time_of(one, row="result", percentile="p50"):
    time = one.get("times", {}).get(row, {})
    return time[percentile] / 1000 if time.get("count") else None


WAYS = {"bar": "three elements", "upload": "`gpumapupload`"}


def small_frames():
    small, many = load("small"), load("ten-million")
    columns = ["us", *(f"{kernel}: {name}" for kernel in ("nothing", "copy_seen") for name in ("P50", "P99", "P99.9"))]
    rows = []
    for way, mode in [(way, mode) for way in WAYS for mode in ("launch", "resident")] + [("cudaupload", "launch")]:
        cells = [us(time_of(case(small, way, None, mode, kernel), "result", percentile))
                 for kernel in ("nothing", "copy_seen") for percentile in ("p50", "p99", "p999")]
        if any(cells):
            rows.append([f"{WAYS.get(way, way)}, {'resident' if mode == 'resident' else 'launched'}", *cells])
    table("Small frames: last store to result seen, 4,032 bytes, one in flight", columns, rows)
    limits = {("bar", "launch"): (10, 0.35), ("bar", "resident"): (4.5, 0.15),
              ("upload", "launch"): (9, 0.30), ("upload", "resident"): (5.5, 0.15)}
    for (way, mode), (limit, of_rival) in limits.items():
        for kernel in ("nothing", "copy_seen"):
            ours = time_of(case(small, way, None, mode, kernel))
            rival = time_of(case(small, "cudaupload", None, "launch", kernel))
            what = f"4 KiB, {WAYS[way]}, {'resident' if mode == 'resident' else 'launched'}, {kernel}"
            at_most(f"{what}: P50", limit, ours, unit=" us")
            at_most(f"{what}: over cudaupload", of_rival, ratio(ours, rival), "{:.3f}",
                    f"cudaupload: {rival:.1f} us" if rival else "")
    one = case(many, "bar", None, "resident")
    at_most("4 KiB, resident: P99.9", 10, time_of(one, "result", "p999"), unit=" us",
            note=f"of {one['frames']:,} frames: P50 {time_of(one):.1f}, P99 {time_of(one, 'result', 'p99'):.1f}, "
                 f"max {time_of(one, 'result', 'max'):.0f}" if one else "")
    two = time_of(case(small, "bar", None, "resident", "nothing+nothing"))
    first = time_of(case(small, "bar", None, "resident", "nothing"))
    more = two - first if first and two else None
    bell = measured("pingpong", "bells")[1].get(("BAR", "4-byte doorbell"), {}).get("median_us")
    at_most("a second resident element over a bare 4-byte doorbell", 1.05, ratio(more, bell),
            "{:.2f}", f"{more:.2f} us more, {bell:.2f} us bare" if more and bell else "")


def rates():
    report = load("rates")
    for way in WAYS:
        for mode, limit in (("launch", 150_000), ("resident", 350_000)):
            for frame in ("64B", "4KiB"):
                rate = case(report, way, frame, mode).get("frames_per_s")
                what = f"{frame} frames/s, {WAYS[way]}, {'resident' if mode == 'resident' else 'launched'}"
                if frame == "64B":
                    at_least(what, limit, rate)
                elif rate:
                    target(what, "", f"{rate:.0f}")


def copied():
    report = load("copy")
    rows = []
    for one in report.get("cases", []):
        if one["frames"]:
            rows.append([one["frame"], one["transport"], us(time_of(one, "write")), us(time_of(one, "through")),
                         us(one["cpu_ns_a_frame"] / 1000)])
    table("Frames of upstream's own memory, us: until taken (`write`), until the result (`through`), CPU time of a frame",
          ["size", "way", "write", "through", "CPU"], rows)
    rival = case(report, "cudaupload", "1080p")
    for way in ("bar", "pinned"):
        ours = case(report, way, "1080p")
        at_most(f"a copied 1080p frame, {way}, over cudaupload", 0.5, ratio(time_of(ours, "through"),
                                                                          time_of(rival, "through")), "{:.2f}")
        cpu = ratio(ours.get("cpu_ns_a_frame"), rival.get("cpu_ns_a_frame"))
        at_most(f"its CPU time, {way}, over cudaupload", 1, cpu, "{:.2f}",
                f"{ours['cpu_ns_a_frame'] / 1000:.0f} us" if cpu else "")
    video = load("video")
    for way in WAYS:
        rate = ratio(case(video, way).get("frames_per_s"), case(video, "cudaupload").get("frames_per_s"))
        if rate:
            at_least(f"1080p frames/s of videotestsrc, {WAYS[way]}, over cudaupload", 3, rate, "{:.2f}")
    one, other = (time_of(case(load("element"), "cudaupload", None, "launch", kernel), "notice")
                  for kernel in ("convert", "gst:cudaconvert"))
    if one and other:
        target("`convert` behind cudaupload over cudaconvert", "", f"{one / other:.2f}", note=f"{one:.1f}, {other:.1f} us")


# ---- gpumap-bench's and the others'

def measured(name, report="library"):
    """A mode's report; its rows by path and detail."""
    for one in load(report).get("modes", []):
        if one["mode"] == name:
            return one, {(row["path"], row["detail"]): row for row in one["rows"]}
    return {}, {}


def one_frame():
    rows = measured("frame", "frame")[0].get("rows", [])
    sizes = sorted({row["bytes"] for row in rows})
    made = {}
    for row in rows:
        made.setdefault((row["detail"], f"{row['path']}, {row['threads']}"), {})[row["bytes"]] = us(row["median_us"])
    table("One frame: median us", ["way", *(f"{size:,}" for size in sizes)],
          [[f"{path} ({detail})", *(cells.get(size, "") for size in sizes)] for (detail, path), cells in made.items()])


def stores():
    rows = measured("bw", "bells")[0].get("rows", [])
    for size in sorted({one["bytes"] for one in rows}):
        warm = {one["path"]: one["median_us"] for one in rows
                if one["bytes"] == size and one["detail"] == "warm" and one["threads"] == 1}
        bare = [time for path, time in warm.items() if path.startswith("bare loop") or path == "bar, memcpy"]
        best = ratio(min(bare) if bare else None, warm.get("bar"))
        target(f"copy of {size} B, best bare loop or memcpy over it", ">= 0.97", f"{best:.2f}" if best else None,
               best >= 0.97 if best else None)


def kernels():
    timed = measured("kernels")[0].get("rows", [])
    rows = [[ours["detail"], us(ours["median_us"]), f"{other['path']}: {us(other['median_us'])}", f"{ours['ratio']:.2f}"]
            for ours, other in zip(timed[::2], timed[1::2])]
    launches = measured("launch")[1]
    rows += [[f"a launch, {path}", f"{us(row['median_us'])} ({us(launches[path, 'returned']['median_us'])})", "", ""]
             for (path, detail), row in launches.items() if detail == "seen"]
    table("Kernels and launches, us (in brackets until the call returns)", ["what", "gpumap", "beside it", "ratio"], rows)
    for one in load("library").get("targets", []):
        at_most(one["claim"], round(one["bound"], 2), one["value"], "{:.2f}")
    seen = {path: row for (path, detail), row in launches.items() if detail == "beside"}
    full = seen.get("beside a full GPU")
    for name, key in (("launched", "sm-share=0.125, beside sm-share=0.875"),
                      ("resident", "it stays, sm-share=0.125, beside sm-share=0.875")):
        ours = seen.get(key)
        at_most(f"P99 beside a full GPU, sm-share, {name}", 20, ours["p99_us"] if ours else None, unit=" us")
        at_most("  over what it is without a share", 0.02, ours["p99_us"] / full["p99_us"] if ours and full else None,
                "{:.4f}")


def links():
    (link, timed), rows = measured("link"), []
    if link:
        one, two = (1 / timed[path, "rate"]["median_us"] for path in ("one process", "two processes"))
        more = link["cost"][-1]["more_publish_ns_each"]
        rows = [["64-byte frames, million a second; within one process", f"{two:.2f}; {one:.2f}"],
                ["`publish()` with one consumer, ns; each further one",
                 f"{timed['consumers: 1', 'publish']['median_us'] * 1000:.0f}; {more:.0f}"],
                ["1080p over bare stores, time; consumer sleeps, spins", "; ".join(
                    f"{timed[path, 'copy']['ratio']:.2f}" for path in ("consumer sleeps", "consumer spins"))]]
    table("Between processes", ["what", "figure"], rows)
    if rows:
        at_least("64-byte frames a second between processes", 1_000_000, two * 1e6)
        at_most("each further consumer, ns", 100, more, "{:.0f}")
    # link-rivals' own table is what README shows of it.
    text = FOLDER / "rivals.txt"
    print("\n" + text.read_text() if text.exists() else "")
    floor = measured("stalls")[1].get(("threads that spin", "7 us of work"))
    if floor:
        target("7 us of a thread that only spins: P99.9", "", f"{floor['p999_us']:.1f} us",
               note=f"of {floor['times']:,}: P99 {floor['p99_us']:.1f}, max {floor['max_us']:.0f}")
    ring = measured("ring")[1]
    hand_over = ring.get(("publish() to receive()", "both spin"), {}).get("median_us")
    at_most("ring: publish to receive, P50, ns", 300, hand_over and hand_over * 1000, "{:.0f}")
    frame = ring.get(("two threads", "256 slots"), {}).get("median_us")
    at_least("ring: empty slots a second, of 256", 4_000_000, frame and 1e6 / frame)


def loop():
    number = r"([\d,']+)"
    for folder, name in (("loop", ""), ("loop-loaded", " beside 8 busy processes")):
        for part in re.split(r"^kernel  +", output(folder), flags=re.M)[1:] or [""]:
            stays = "stays" in part.split("\n")[0]
            found = {key: re.search(pattern, part, flags=re.M) for key, pattern in {
                "frames": rf"^frames +{number}", "rate": rf"rate +{number} frames",
                "jitter": r"jitter +([\d.]+) us", "late": rf"late +{number} frames"}.items()}
            value = {key: float(match.group(1).replace(",", "").replace("'", "")) if match else None
                     for key, match in found.items()}
            what = f"loop, {'resident' if stays else 'launched'}{name}"
            at_least(f"{what}: frames/s", 20_000, value["rate"])
            at_most(f"{what}: jitter RMS", 2, value["jitter"], unit=" us")
            late = value["late"] / value["frames"] * 1e6 if value["frames"] and value["late"] is not None else None
            at_most(f"{what}: over 50 us late, in 10^6", 1, late,
                    note=f"{value['late']:.0f} of {value['frames']:.0f}" if late is not None else "")


def output(name):
    file = FOLDER / f"{name}.txt"
    return file.read_text() if file.exists() else ""


def seconds(name):
    took = re.search(r"Execution ended after (\d+):(\d+):([\d.]+)", output(name))
    return took and int(took[1]) * 3600 + int(took[2]) * 60 + float(took[3])


def chains():
    for name in ("gpumapsrc", "gpumapupload"):
        at_least(f"`cudaconvert ! cudadownload` behind {name} over behind cudaupload, 1080p, frames a second", 1.5,
                 ratio(seconds("chain-cudaupload"), seconds(f"chain-{name}")), form="{:.2f}")


def packets():
    frames = re.search(r": (\d+) frames: ", output("packets"))  # of 800 buffers each, the last one of the rest
    rate = ratio(frames and int(frames[1]) * 800, seconds("packets"))
    share = ratio(seconds("packets-alone"), seconds("packets"))
    at_least("1,472-byte buffers a second into `spectrum`", 1_000_000, rate)
    target("their source's time alone, of that", "", share and f"{share:.2f}")


def main():
    machine, commit = load("small").get("machine", {}), load("small").get("commit", "")
    if machine.get("software"):
        print("software: these are no figures of a GPU")
    for part in (one_frame, small_frames, rates, copied, stores, kernels, chains, links, packets, loop):
        part()
    if machine:
        print(f"{machine['device']}, {machine['driver']}, {machine['cpu']}, {commit or 'no commit named'}")
    widths = [max(len(one[i]) for one in TARGETS) for i in range(4)]
    for one in TARGETS:
        print(("  ".join(text.ljust(width) for text, width in zip(one, widths)) + "  " + one[4]).rstrip())


if __name__ == "__main__":
    main()
