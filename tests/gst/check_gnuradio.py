#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_gnuradio.py PAGE flowgraphs|peers: each pipeline of GNURADIO.md, as it stands there, with the page's flowgraph
on the other side, or with a peer of our own that speaks the same bytes. A tone arrives at its frequency within 1 Hz,
random samples bit for bit.

Flowgraphs need GNU Radio for /usr/bin/python3, which is Debian's; without it the test is skipped.
"""

import array
import cmath
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

RATE, TONE, ROW = 48000, 1234.5, 65536  # as the page has them
PAYLOAD = 1472
ENDING = ("TCP", "FIFO", "SigMF")  # where the receiver ends with the sender
LIMIT = 100  # s
DATA, RECEIVED = pathlib.Path("data.cf32"), pathlib.Path("received.cf32")


def sockets(port):
    """Bytes that wait in each IPv4 socket of this machine at that port."""
    for table in ("tcp", "udp"):
        for line in pathlib.Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, _, queues = line.split()[:5]
            if int(local.split(":")[1], 16) == port:
                yield int(queues.split(":")[1], 16)


def eventually(what, done, side=None):
    limit = time.monotonic() + LIMIT
    while not done():
        if side and side.process.poll() is not None:
            sys.exit(f"{what}: {side.process.args} has ended")
        if time.monotonic() > limit:
            sys.exit(f"{what}: not within {LIMIT} s")
        time.sleep(0.005)


# Peers in place of flowgraphs, in a process of their own.
def send_tcp(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(DATA.read_bytes())


def receive_tcp(port):
    with socket.create_server(("127.0.0.1", port)) as server, server.accept()[0] as connection:
        while part := connection.recv(65536):
            with RECEIVED.open("ab") as file:
                file.write(part)


def send_udp(port):
    data = DATA.read_bytes()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for at in range(0, len(data) // PAYLOAD * PAYLOAD, PAYLOAD):
            # No more than fits any receiver's buffer.
            eventually("a receiver that reads", lambda: sum(sockets(port)) < 65536)
            udp.sendto(data[at:at + PAYLOAD], ("127.0.0.1", port))


def receive_udp(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("0.0.0.0", port))
        while True:
            part = udp.recv(65536)
            assert len(part) == PAYLOAD, len(part)
            with RECEIVED.open("ab") as file:
                file.write(part)


def send_fifo(_):
    pathlib.Path("samples").write_bytes(DATA.read_bytes())


def receive_fifo(_):
    RECEIVED.write_bytes(pathlib.Path("samples").read_bytes())


def send_sigmf(_):
    """As sigmf_sink_minimal does."""
    pathlib.Path("flowgraph.sigmf-data").write_bytes(DATA.read_bytes())
    pathlib.Path("flowgraph.sigmf-meta").write_text("""{
  "global": {"core:datatype": "cf32_le", "core:sample_rate": 48000.0, "core:version": "1.0.0"},
  "captures": [{"core:sample_start": 0, "core:frequency": 100000000.0}],
  "annotations": []
}""", encoding="ascii")


def receive_sigmf(_):
    RECEIVED.write_bytes(pathlib.Path("samples.sigmf-data").read_bytes())


class Side:
    """A process group: a pipeline, a flowgraph or a peer. It is gone behind the block."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self):
        if code := self.process.wait(LIMIT):
            sys.exit(f"{self.process.args}: {code}")


class Way:
    """A section of the page. Index 0 of its pipelines and blocks is to gpumap, 1 from it."""

    def __init__(self, page, name, with_gnuradio):
        section = re.search(rf"\n## {name}\n(.*?)(?=\n## |\Z)", page, re.S).group(1)
        self.name, self.with_gnuradio = name, with_gnuradio
        self.pipelines = [code for code in re.findall(r"```sh\n(.*?)```", section, re.S) if "gst-launch" in code]
        self.blocks = re.findall(r"`((?:sink|source) = .*?)`", section)
        self.flowgraphs = re.findall(r"```python\n(.*?)```", page, re.S)[:2]
        assert 1 <= len(self.pipelines) == len(self.blocks) <= 2, name
        assert set(re.findall(r"\brate *= *(\d+)", page)) == {str(RATE)}, "both sides have one rate"

    def sides(self, direction, edit_pipeline, edit_flowgraph):
        """The commands of who receives and who sends, and the port between them, which is a free one here; 0: none."""
        pipeline, block, port = edit_pipeline(self.pipelines[direction]), self.blocks[direction], 0
        if number := re.search(r" port=(\d+)|127\.0\.0\.1:(\d+)", pipeline):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if self.name == "UDP" else socket.SOCK_STREAM) as free:
                free.bind(("", 0))
                port = free.getsockname()[1]
            number = number.group(1) or number.group(2)
            assert number in block, block
            pipeline, block = pipeline.replace(number, str(port)), block.replace(number, str(port))
        flowgraph, count = re.subn(rf"^{block.split()[0]} = .*", lambda _: block,
                                   edit_flowgraph(self.flowgraphs[direction]), flags=re.M)
        assert count == 1, block
        pathlib.Path("flowgraph.py").write_text(flowgraph, encoding="utf-8")
        peer = [sys.executable, __file__, f"{('send', 'receive')[direction]}_{self.name.lower()}", str(port)]
        sides = [["bash", "-c", pipeline], ["/usr/bin/python3", "flowgraph.py"] if self.with_gnuradio else peer]
        return *(sides if direction == 0 else sides[::-1]), port

    def run(self, direction, edit_pipeline, edit_flowgraph, enough):
        """What arrived, where nobody tells its end once that is `enough` bytes."""
        receive, send, port = self.sides(direction, edit_pipeline, edit_flowgraph)
        result = pathlib.Path("spectrum.f32") if direction == 0 else RECEIVED
        if self.name == "SigMF":
            with Side(*send) as sender:
                sender.end()
        with Side(*receive) as receiver:
            if self.name in ("TCP", "UDP"):
                eventually(f"{self.name}: a receiver", lambda: list(sockets(port)), receiver)
            if self.name != "SigMF":
                with Side(*send) as sender:
                    sender.end()
            if self.name not in ENDING:
                eventually(f"{self.name}: {enough} bytes", lambda: result.exists() and result.stat().st_size >= enough,
                           receiver)
            if self.name == "UDP" and direction == 0:
                os.killpg(receiver.process.pid, signal.SIGINT)  # which is an end, by -e
                receiver.end()
            elif self.name in ENDING:
                receiver.end()
        return result.read_bytes()


def check_tone(way):
    samples = ROW + 4099
    tone = (0.5 * cmath.exp(2j * cmath.pi * TONE * i / RATE) for i in range(samples))
    DATA.write_bytes(array.array("f", (part for one in tone for part in (one.real, one.imag))).tobytes())
    spectrum = array.array("f", way.run(0, str, lambda code: code.replace(
        "connect(source, ", f"connect(source, blocks.head(item, {samples}), "), 4 * ROW))
    peak = max(range(ROW), key=spectrum[:ROW].__getitem__)
    found = (peak - ROW / 2) * RATE / ROW
    assert abs(found - TONE) < 1, f"{way.name}: a tone of {TONE} Hz at {found} Hz"


def check_samples_to(way, samples):
    DATA.write_bytes(array.array("f", (random.uniform(-2, 2) for _ in range(2 * samples))).tobytes())

    def edit(pipeline):
        bytes_instead, replaced = re.subn(r'kernel=spectrum .*? ! application/x-spectrum ! filesink',
                                          "kernel=identity ! filesink buffer-mode=unbuffered", pipeline)
        assert replaced == 1, pipeline
        return bytes_instead
    got = way.run(0, edit, lambda code: re.sub(
        r"^source = .*", f'source = blocks.file_source(item, "{DATA}")', code, flags=re.M), 8 * samples)
    assert got == DATA.read_bytes(), f"{way.name}: to gpumap other samples, {len(got)} bytes"


def check_samples_from(way, samples):
    numbers = array.array("h", (random.randrange(-32768, 32768) for _ in range(2 * samples)))
    pathlib.Path("recording.sigmf-data").write_bytes(numbers.tobytes())
    pathlib.Path("recording.sigmf-meta").write_text(
        f'{{"global": {{"core:datatype": "ci16_le", "core:sample_rate": {RATE}}}}}', encoding="ascii")
    got = way.run(1, str, str, 8 * samples)
    expected = array.array("f", (number / 32768 for number in numbers)).tobytes()
    assert got == expected, f"{way.name}: from gpumap other samples, {len(got)} bytes"


def main():
    page, with_gnuradio = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2] == "flowgraphs"
    if with_gnuradio:
        if subprocess.run(["/usr/bin/python3", "-c", "import gnuradio.network"], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            print("no GNU Radio for /usr/bin/python3: sudo apt-get install --no-install-recommends gnuradio")
            sys.exit(77)
        os.environ["PATH"] = "/usr/bin:" + os.environ["PATH"]  # ZeroMQ for Python is there too
    seed = random.randrange(1 << 32)
    random.seed(seed)
    print("seed", seed)
    for name in ["TCP", "FIFO", "UDP", "SigMF"] + ["ZeroMQ"] * with_gnuradio:
        way = Way(page, name, with_gnuradio)
        samples = 44 * PAYLOAD // 8 if name == "UDP" else 50003  # 44 datagrams fit any receiver's buffer
        checks = [check_tone, lambda way: check_samples_to(way, samples), lambda way: check_samples_from(way, samples)]
        for check in checks[:1 + len(way.pipelines)]:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                if name == "FIFO":
                    os.mkfifo("samples")
                check(way)
        print(name, "works both ways" if len(way.pipelines) == 2 else "works")


if sys.argv[1] in globals():
    globals()[sys.argv[1]](int(sys.argv[2]))
else:
    main()
