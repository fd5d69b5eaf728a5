#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""latency_table.py FOLDER: one table of what run-latency left there: what, the target, the figure, and whether it is
met. What is not there is "not measured"."""
import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(sys.argv[1])
ROWS = []


def load(name):
    try:
        return json.loads((FOLDER / name).read_text())
    except (OSError, ValueError):
        return {}


def row(what, target, figure, met=None, note=""):
    verdict = "" if met is None else "met" if met else "missed"
    ROWS.append((what, target, figure or "not measured", verdict, note))


def at_most(what, limit, value, form="{:.1f}", note="", unit=""):
    shown = None if value is None else form.format(value) + unit
    row(what, f"<= {limit}{unit}", shown, None if value is None else value <= limit, note)


def at_least(what, limit, value, form="{:.0f}", note=""):
    row(what, f">= {limit:,}", None if value is None else form.format(value), None if value is None else value >= limit,
        note)


def path_of(report, path, kernel="identity"):
    for result in report.get("results") or []:
        if result["path"] == path and result["kernel"] == kernel:
            return result
    return {}


def through_elements():
    light, many = load("first-light.json"), load("ten-million.json")
    if light.get("software"):
        print("software: these are no figures of a GPU")
    for kernel in ("nothing", "identity"):
        launched = path_of(light, "pipeline", kernel).get("median_us")
        stays = path_of(light, "pipeline, resident", kernel).get("median_us")
        at_most(f"4 KiB, three elements, launched, {kernel}: P50", 10, launched, unit=" us")
        at_most(f"4 KiB, three elements, resident, {kernel}: P50", 4.5, stays, unit=" us")
        rival = path_of(light, "rival", kernel).get("median_us")
        for name, target, ours in (("launched", 0.35, launched), ("resident", 0.15, stays)):
            ratio = ours / rival if ours and rival else None
            at_most(f"  {name} over cudaupload, {kernel}", target, ratio, "{:.3f}",
                    f"cudaupload: {rival:.1f} us" if rival else light.get("rival", ""))
    result = path_of(many, "pipeline, resident")
    at_most("4 KiB, resident: P99.9", 10, result.get("p999_us"), unit=" us",
            note=f"of {many.get('frames', 0):,} frames: P50 {result['median_us']:.1f}, P99 {result['p99_us']:.1f}, "
                 f"max {result['max_us']:.0f}" if result else "")
    floor = load("stall.json")
    if floor:
        row(f"  {floor['frame_us']:.0f} us of a thread that only spins: P99.9", "", f"{floor['frame']['p999_us']:.1f} us",
            note=f"of {floor['frames']:,}: P99 {floor['frame']['p99_us']:.1f}, max {floor['frame']['max_us']:.0f}")
    for rate in light.get("rates") or []:
        stays = rate["mode"] == "resident"
        what = (f"{rate['bytes']} B frames/s, {'resident' if stays else 'launched'}, "
                f"{'overlapping' if rate['overlapping'] else 'a round trip each'}")
        if rate["bytes"] == 64 and rate["overlapping"]:
            at_least(what, 350_000 if stays else 150_000, rate["frames_per_s"])
        else:
            row(what, "", f"{rate['frames_per_s']:.0f}")
    return light


def doorbell(light):
    bell = None
    for mode in load("bench.json").get("modes", []):
        if mode["mode"] != "pingpong":
            continue
        for one in mode.get("rows", []):
            if one["path"] == "BAR" and one["bytes"] == 4:
                bell = one["median_us"]
    one, two = (path_of(light, path, "nothing").get("median_us")
                for path in ("pipeline, resident", "pipeline, two resident"))
    more = two - one if one and two else None
    at_most("a second resident element over a bare 4-byte doorbell", 1.05, more / bell if more and bell else None,
            "{:.2f}", f"{more:.2f} us more, {bell:.2f} us bare" if more and bell else "")


def copies():
    for mode in load("bench.json").get("modes", []):
        if mode["mode"] != "bw":
            continue
        for size in sorted({one["bytes"] for one in mode.get("rows", [])}):
            warm = {one["path"]: one["median_us"] for one in mode["rows"]
                    if one["bytes"] == size and one["detail"] == "warm" and one["threads"] == 1}
            bare = [time for path, time in warm.items() if path.startswith("bare loop") or path == "bar, memcpy"]
            ratio = min(bare) / warm["bar"] if bare and "bar" in warm else None
            row(f"copy of {size} B, best bare loop or memcpy over it", ">= 0.97", f"{ratio:.2f}" if ratio else None,
                ratio >= 0.97 if ratio else None)


def cpu_time():
    rows = [one for mode in load("sink.json").get("modes", []) for one in mode["rows"]
            if one["detail"] == "1920x1080 element" and "cpu_us" in one]
    cpu = {one["path"]: one["cpu_us"] for one in rows}
    for path, time in sorted(cpu.items()):
        if path == "cudaupload":
            continue
        rival = cpu.get("cudaupload")
        at_most(f"CPU time of a copied 1080p frame, {path}, over cudaupload", 1, time / rival if rival else None,
                "{:.2f}", f"{time:.0f} us" + (f" and {rival:.0f}" if rival else ""))


def beside():
    seen = {one["case"]: one.get("seen") for one in load("launch.json").get("beside", [])}
    full = seen.get("beside a full GPU")
    for name, case in (("launched", "sm-share=0.125, beside sm-share=0.875"),
                       ("resident", "it stays, sm-share=0.125, beside sm-share=0.875")):
        ours = seen.get(case)
        at_most(f"P99 beside a full GPU, sm-share, {name}", 20, ours["p99_us"] if ours else None, unit=" us")
        at_most("  over what it is without a share", 0.02, ours["p99_us"] / full["p99_us"] if ours and full else None,
                "{:.4f}")


def loop():
    number = r"([\d,']+)"
    for folder, name in (("loop.txt", ""), ("loop-loaded.txt", " beside 8 busy processes")):
        try:
            text = (FOLDER / folder).read_text()
        except OSError:
            text = ""
        parts = re.split(r"^kernel  +", text, flags=re.M)[1:] or [""]
        for part in parts:
            stays = "stays" in part.split("\n")[0]
            found = {key: re.search(pattern, part) for key, pattern in {
                "frames": rf"^frames +{number}", "rate": rf"rate +{number} frames",
                "jitter": r"jitter +([\d.]+) us", "late": rf"late +{number} frames"}.items()}
            found["frames"] = re.search(rf"^frames +{number}", part, flags=re.M)
            value = {key: float(match.group(1).replace(",", "").replace("'", "")) if match else None
                     for key, match in found.items()}
            what = f"loop, {'resident' if stays else 'launched'}{name}"
            at_least(f"{what}: frames/s", 20_000, value["rate"])
            at_most(f"{what}: jitter RMS", 2, value["jitter"], unit=" us")
            late = value["late"] / value["frames"] * 1e6 if value["frames"] and value["late"] is not None else None
            at_most(f"{what}: over 50 us late, in 10^6", 1, late,
                    note=f"{value['late']:.0f} of {value['frames']:.0f}" if late is not None else "")


def main():
    light = through_elements()
    doorbell(light)
    copies()
    cpu_time()
    beside()
    loop()
    if light:
        print(f"{light['device']}, driver {light['vulkan_driver']}, CUDA {light['cuda_driver']}, {light['cpu']}, "
              f"GStreamer {light['gstreamer']}, {light['commit'] or 'no commit named'}")
    widths = [max(len(one[i]) for one in ROWS) for i in range(4)]
    for one in ROWS:
        print("  ".join(text.ljust(width) for text, width in zip(one, widths)) + "  " + one[4])


if __name__ == "__main__":
    main()
