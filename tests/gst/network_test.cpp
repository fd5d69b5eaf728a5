// SPDX-License-Identifier: MIT
// Frames that come over the network, by GStreamer's own elements on the loopback: the same pixels as without network
// and gpumap, and which of them are written in place.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>

#include "test_frames.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::size_t frames = 12;
constexpr const char* udp_out = "udpsink name=away host=127.0.0.1 port=PORT sync=false";

bool is_there(const std::vector<const char*>& elements) {
  for (const char* name : elements) {
    GstElementFactory* factory = gst_element_factory_find(name);
    if (factory == nullptr) return false;
    gst_object_unref(factory);
  }
  return true;
}

/// One that nobody has at the moment.
std::string free_port() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(socket);
  return std::to_string(ntohs(address.sin_port));
}

struct Way {
  std::string name;
  std::vector<const char*> elements;          ///< beside the core's
  std::string caps;                           ///< of the raw frames
  std::string encode, send, receive, decode;  ///< with PORT and SOCKET
  bool in_place;                              ///< or one copy a frame
  std::size_t kept;                           ///< frames that the decoder may keep until the stream ends

  /// Bytes that differ from one time to the next without gpumap, too: the end of a JPEG is lost in RTP, and the decoder
  /// makes up the last 4x4 samples of the last plane.
  std::size_t unsure = 0;

  friend void PrintTo(const Way& way, std::ostream* stream) { *stream << way.encode << way.send; }
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.replace(at, what.size(), with);
  return text;
}

/// Bytes that have passed a pad, in buffers or in lists of them. Outlives the pipeline.
class Bytes {
 public:
  void on(GstElement* element, const char* pad_name) {
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    const auto types = static_cast<unsigned>(GST_PAD_PROBE_TYPE_BUFFER) | GST_PAD_PROBE_TYPE_BUFFER_LIST;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  [[nodiscard]] std::size_t count() const { return bytes_; }

 private:
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer self) {
    const bool one = (info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0;
    static_cast<Bytes*>(self)->bytes_ += one ? gst_buffer_get_size(GST_PAD_PROBE_INFO_BUFFER(info))
                                             : gst_buffer_list_calculate_size(GST_PAD_PROBE_INFO_BUFFER_LIST(info));
    return GST_PAD_PROBE_OK;
  }

  std::atomic<std::size_t> bytes_{0};
};

class Network : public testing::TestWithParam<Way> {};

/// What arrives through `middle`, one frame after the other: datagrams are lost where a socket's buffer is full.
void transmit(const Way& way, const std::string& middle, const std::function<void(Pipeline&)>& look,
              std::vector<Data>& got) {
  const std::string port = free_port(), path = "/tmp/gpumap-network-" + std::to_string(::getpid());
  const auto address = [&](const std::string& text) { return replaced(replaced(text, "PORT", port), "SOCKET", path); };
  const Caps caps = new_caps(way.caps);
  const std::size_t bytes = frame_bytes(caps.get());
  Bytes sent, came;
  Pipeline sender("appsrc name=in format=time caps=" + way.caps + " ! " + way.encode + address(way.send));
  Pipeline receiver(on_new_channel(address(way.receive) + way.decode + middle +
                                   " ! capsfilter caps=video/x-raw ! appsink name=out sync=false"));
  sent.on(sender.element("away"), "sink");
  came.on(receiver.element("from"), "src");
  // Who serves comes first: the sender where it makes the socket, the receiver where that has the port.
  const bool sender_serves = way.send.find("SOCKET") != std::string::npos;
  for (Pipeline* next : {sender_serves ? &sender : &receiver, sender_serves ? &receiver : &sender}) {
    ASSERT_NE(next->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    g_usleep(300'000);
  }
  for (std::size_t i = 0; i < frames; ++i) {
    Buffer frame = new_buffer(random_data(bytes, 77 + i), i * 40 * GST_MSECOND);
    GST_BUFFER_DURATION(frame.get()) = 40 * GST_MSECOND;
    ASSERT_TRUE(push(sender.appsrc(), std::move(frame)));
    if (i < way.kept) continue;
    const Sample sample = pull(receiver.appsink());
    ASSERT_TRUE(sample) << "frame " << i << ": " << receiver.wait(100ms);
    got.push_back(pixels_of(sample.get()));
  }
  // Once what was sent is there, and has been taken from the socket. UDP tells of no end: the receiver ends by itself.
  const bool is_udp = way.send == udp_out;
  gst_app_src_end_of_stream(sender.appsrc());
  EXPECT_EQ(sender.wait(), "eos");
  (void)eventually([&] { return came.count() >= sent.count(); }, 20s);
  if (!is_udp) g_usleep(600'000);  // others may begin with what was not counted, and then hold as much back
  sender.stop();
  if (is_udp) gst_element_send_event(receiver.get(), gst_event_new_eos());
  while (const Sample sample = pull(receiver.appsink())) got.push_back(pixels_of(sample.get()));
  EXPECT_EQ(receiver.wait(), "eos");
  look(receiver);
  (void)std::remove(path.c_str());
}

TEST_P(Network, BringsTheSamePixels) {
  const Way& way = GetParam();
  if (!is_there(way.elements)) GTEST_SKIP() << "without " << way.elements.back();
  std::vector<Data> expected, got;
  ASSERT_NO_FATAL_FAILURE(transmit(
      way, "queue", [](Pipeline&) {}, expected));
  const auto look = [&way](Pipeline& receiver) {
    EXPECT_EQ(stat(receiver.element("sink"), "zero-copy-frames"), way.in_place ? frames : 0);
    EXPECT_EQ(stat(receiver.element("sink"), "copied-frames"), way.in_place ? 0 : frames);
  };
  ASSERT_NO_FATAL_FAILURE(transmit(way, "gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL", look, got));
  ASSERT_EQ(expected.size(), frames);
  ASSERT_EQ(got.size(), frames);
  for (std::size_t i = 0; i < frames; ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    std::size_t others = 0;
    for (std::size_t at = 0; at < got[i].size(); ++at) others += got[i][at] != expected[i][at] ? 1 : 0;
    EXPECT_LE(others, way.unsure) << "frame " << i;
  }
}

std::string udp_in(const std::string& caps) {
  return "udpsrc name=from address=127.0.0.1 port=PORT caps=application/x-rtp,media=video,clock-rate=90000," + caps +
         " ! ";
}

const std::string h264 = "x264enc tune=zerolatency threads=1 key-int-max=4 ! ";

INSTANTIATE_TEST_SUITE_P(
    By, Network,
    testing::Values(
        Way{.name = "RtpRaw",
            .elements = {"udpsrc", "rtpvrawdepay"},
            .caps = "video/x-raw,format=RGB,width=161,height=121,framerate=25/1",
            .encode = "rtpvrawpay ! ",
            .send = udp_out,
            .receive = udp_in("encoding-name=RAW,sampling=RGB,depth=(string)8,width=(string)161,height=(string)121"),
            .decode = "rtpvrawdepay ! ",
            .in_place = true,
            .kept = 0},
        Way{.name = "RtpJpeg",
            .elements = {"udpsrc", "jpegenc", "rtpjpegdepay", "jpegdec"},
            .caps = "video/x-raw,format=I420,width=168,height=120,framerate=25/1",
            .encode = "jpegenc ! rtpjpegpay ! ",
            .send = udp_out,
            .receive = udp_in("encoding-name=JPEG,payload=26"),
            .decode = "rtpjpegdepay ! jpegdec ! ",
            .in_place = true,
            .kept = 0,
            .unsure = 16},
        Way{.name = "RtpH264",
            .elements = {"udpsrc", "rtph264depay", "x264enc", "avdec_h264"},
            .caps = "video/x-raw,format=I420,width=162,height=122,framerate=25/1",
            .encode = h264 + "rtph264pay config-interval=-1 ! ",
            .send = udp_out,
            .receive = udp_in("encoding-name=H264"),
            .decode = "rtph264depay ! h264parse ! avdec_h264 max-threads=1 ! ",
            .in_place = false,
            .kept = 1},
        Way{.name = "Srt",
            .elements = {"mpegtsmux", "tsdemux", "h264parse", "x264enc", "avdec_h264", "srtsrc"},
            .caps = "video/x-raw,format=I420,width=162,height=122,framerate=25/1",
            .encode = h264 + "mpegtsmux ! ",
            .send = "srtsink name=away uri=srt://127.0.0.1:PORT latency=20 wait-for-connection=true sync=false",
            .receive = "srtsrc name=from uri=srt://127.0.0.1:PORT?mode=listener latency=20 ! ",
            .decode = "tsdemux ! h264parse ! avdec_h264 max-threads=1 ! ",
            .in_place = false,
            .kept = 8},
        Way{.name = "UnixFd",
            .elements = {"unixfdsink", "unixfdsrc"},
            .caps = "video/x-raw,format=RGB,width=161,height=121,framerate=25/1",
            // It sends memory that has a descriptor, which appsrc's has not.
            .encode = "videoconvert ! video/x-raw,format=BGRx ! ",
            .send = "unixfdsink name=away socket-path=SOCKET sync=false",
            .receive = "unixfdsrc name=from socket-path=SOCKET ! ",
            .decode = "",
            .in_place = false,
            .kept = 0}),
    [](const testing::TestParamInfo<Way>& test) { return test.param.name; });

}  // namespace
}  // namespace gpumap::gst::test
