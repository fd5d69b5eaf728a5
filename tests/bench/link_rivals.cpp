// SPDX-License-Identifier: MIT
// Elements that carry frames between processes, by what they cost:
//   hand-over  from the last store of a frame, in memory that the sink offers, until another process has it; frames for
//              the GPU are in its memory then
//   deaths     what the death of a process costs the others: one producer, a witness that takes frames all the time,
//              and a victim beside it. The killer takes the victim (SIGKILL), stops it (SIGSTOP), or takes the
//              producer; a process that died, or gave up, starts again at once, as under a service manager.
// All pairs of elements meet the same killer and the same frames. Every 64 bytes of a frame say which frame and place
// they are: a frame with another line in it is torn.
//
// Not measured: the stages of a frame across (gpumap-latency), and what a kernel on the GPU does to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gst/app/gstappsink.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../unit/temporary_folder.hpp"
#include "figures.hpp"
#include "gst/elements.hpp"

namespace {

constexpr std::int64_t ms = 1000000;

constexpr const char* media_type = "application/x-frame";

struct Pair {
  const char* name;
  const char* element;  ///< without which the pair is left out
  const char* sink;     ///< {}: the socket
  const char* src;
  bool on_gpu = false;  ///< it takes pictures only, and no other frames
  bool dies = true;     ///< there are figures of deaths; else of the hand-over alone
};
constexpr std::array pairs{
    Pair{"gpumap", "gpumapsink", "gpumapsink leaky=oldest slots=8 socket-path={}", "gpumapsrc socket-path={}"},
    // Its thread does not sleep between two frames.
    Pair{"gpumap, spinning", "gpumapsink", "gpumapsink leaky=oldest slots=8 socket-path={}",
         "gpumapsrc busy-poll=50000 socket-path={}", false, false},
    Pair{"shm", "shmsink", "shmsink wait-for-connection=false sync=false shm-size=1000000 socket-path={}",
         "shmsrc is-live=true socket-path={}"},
    Pair{"unixfd", "unixfdsink", "unixfdsink sync=false socket-path={}", "unixfdsrc socket-path={}"},
    Pair{"cudaipc", "cudaipcsink", "cudaupload ! cudaipcsink sync=false address={}", "cudaipcsrc address={}", true},
};
constexpr unsigned picture_width = 64, row_bytes = 4 * picture_width;
constexpr unsigned most_frames = 100'000;  // of a round of hand-overs
constexpr unsigned hand_over_rounds = 5;   // in each of which the pairs take turns

/// What the processes share. `wanted` is when the next frame is due to have come: a gap begins there.
struct Shared {
  std::atomic<std::uint64_t> made, longest_push_ns;
  struct Taker {
    std::atomic<std::uint64_t> frames, torn, lost, next, gaps_ns, longest_gap_ns;
    std::atomic<std::int64_t> last_ns;
  } witness, victim;
  std::array<std::atomic<std::int64_t>, most_frames> stored_ns, took_ns;  ///< of each frame of a hand-over; 0: not yet
};

struct Options {
  std::string role, folder, json, commit;
  std::vector<std::string> only;
  int memory = -1, pair = 0;
  unsigned kills = 20, fps = 200, bytes = 65536, hang_ms = 5000, frames = 2000;
  std::uint64_t seed = 1;
};

struct Line {
  std::uint64_t frame, place, check[6];
};

Line line_of(std::uint64_t frame, std::uint64_t place) {
  Line line{frame, place, {}};
  std::uint64_t mixed = frame * 0x9E3779B97F4A7C15U + place;
  for (std::uint64_t& word : line.check) word = mixed = (mixed ^ mixed >> 29U) * 0xBF58476D1CE4E5B9U;
  return line;
}

std::string caps_of(const Options& options, const char* memory = "") {
  if (!pairs[options.pair].on_gpu) return media_type;
  return fmt::format("video/x-raw{},format=RGBA,width={},height={},framerate=0/1", memory, picture_width,
                     options.bytes / row_bytes);
}

GstElement* launch(const std::string& line) {
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch(line.c_str(), &error);
  if (error != nullptr) throw std::runtime_error(fmt::format("{}: {}", line, error->message));
  return pipeline;
}

GstElement* part(GstElement* pipeline, const char* name) {
  GstElement* element = gst_bin_get_by_name(GST_BIN(pipeline), name);
  gst_object_unref(element);  // it lives as long as the pipeline
  return element;
}

/// What the sink offers, so that each pair gets the memory that it likes best; null: the system's.
GstAllocator* offered_allocator(GstElement* source, const std::string& media) {
  GstPad* pad = gst_element_get_static_pad(source, "src");
  GstCaps* caps = gst_caps_from_string(media.c_str());
  GstQuery* query = gst_query_new_allocation(caps, FALSE);
  GstAllocator* allocator = nullptr;
  if (gst_pad_peer_query(pad, query) && gst_query_get_n_allocation_params(query) > 0) {
    gst_query_parse_nth_allocation_param(query, 0, &allocator, nullptr);
  }
  gst_query_unref(query);
  gst_caps_unref(caps);
  gst_object_unref(pad);
  return allocator;
}

GstBuffer* make_frame(GstAllocator* allocator, std::uint64_t frame, std::size_t bytes) {
  GstBuffer* buffer = gst_buffer_new_allocate(allocator, bytes, nullptr);
  GstMapInfo map;
  if (buffer == nullptr || !gst_buffer_map(buffer, &map, GST_MAP_WRITE)) throw std::runtime_error("no frame");
  for (std::uint64_t at = 0; at + sizeof(Line) <= bytes; at += sizeof(Line)) {
    const Line line = line_of(frame, at);
    std::memcpy(map.data + at, &line, sizeof line);
  }
  gst_buffer_unmap(buffer, &map);
  return buffer;
}

/// Until it is killed, or its pipeline ends by itself.
int play(GstElement* pipeline) {
  if (gst_element_set_state(pipeline, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) return 1;
  GstMessage* end = gst_bus_timed_pop_filtered(GST_ELEMENT_BUS(pipeline), GST_CLOCK_TIME_NONE,
                                               static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
  if (GST_MESSAGE_TYPE(end) == GST_MESSAGE_ERROR) {
    GError* error = nullptr;
    gst_message_parse_error(end, &error, nullptr);
    fmt::print(stderr, "link-rivals: a pipeline ends: {}\n", error->message);
    g_error_free(error);
  }
  gst_message_unref(end);
  return 1;
}

/// In the streaming thread, so that no other one has to wake for a frame.
class Producer {
 public:
  Producer(const Options& options, Shared& shared) : options_(options), shared_(shared) {}
  int run() {
    // shmsink makes another path where the socket of a dead one is left; gpumapsink takes that away.
    const std::string socket = options_.folder + "/s";
    const Pair& pair = pairs[options_.pair];
    if (!std::string_view(pair.name).starts_with("gpumap")) std::filesystem::remove(socket);
    GstElement* pipeline = launch(fmt::format("appsrc name=in format=time caps={} ! {}", caps_of(options_),
                                              fmt::format(fmt::runtime(pair.sink), socket)));
    GstAppSrcCallbacks callbacks{};
    callbacks.need_data = [](GstAppSrc* source, guint, gpointer self) { static_cast<Producer*>(self)->make(source); };
    gst_app_src_set_callbacks(GST_APP_SRC(part(pipeline, "in")), &callbacks, this, nullptr);
    return play(pipeline);
  }

 private:
  void make(GstAppSrc* source) {
    const std::int64_t now = bench::now_ns();
    if (began_ == 0) {
      began_ = next_ = now;
      allocator_ = offered_allocator(GST_ELEMENT(source), caps_of(options_));
    } else {
      const auto took = static_cast<std::uint64_t>(now - before_);
      shared_.longest_push_ns = std::max(shared_.longest_push_ns.load(), took);
      const std::int64_t period = 1000 * ms / options_.fps;
      next_ = std::max(next_ + period, now - period);  // what was held up is not made up for
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<std::int64_t>(next_ - now, 0)));
    }
    before_ = bench::now_ns();
    const std::uint64_t frame = shared_.made++;
    GstBuffer* buffer = make_frame(allocator_, frame, options_.bytes);
    GST_BUFFER_PTS(buffer) = static_cast<GstClockTime>(before_ - began_);  // unixfdsink takes no frame without
    if (frame < most_frames) shared_.stored_ns[frame] = bench::now_ns();
    gst_app_src_push_buffer(source, buffer);
  }

  const Options& options_;
  Shared& shared_;
  GstAllocator* allocator_ = nullptr;
  std::int64_t began_ = 0, next_ = 0, before_ = 0;
};

bool is_whole(const GstMapInfo& map, std::uint64_t& frame) {
  if (map.size < sizeof(Line)) return false;
  std::memcpy(&frame, map.data, sizeof frame);
  for (std::uint64_t at = 0; at + sizeof(Line) <= map.size; at += sizeof(Line)) {
    const Line line = line_of(frame, at);
    if (std::memcmp(map.data + at, &line, sizeof line) != 0) return false;
  }
  return true;
}

class Consumer {
 public:
  Consumer(const Options& options, Shared& shared, Shared::Taker& taker)
      : options_(options), shared_(shared), taker_(taker) {}
  int run() {
    // What is looked at of a frame on the GPU comes to the CPU after its time is taken.
    GstElement* pipeline =
        launch(fmt::format("{} ! {} ! appsink name=out sync=false",
                           fmt::format(fmt::runtime(pairs[options_.pair].src), options_.folder + "/s"),
                           caps_of(options_, "(memory:CUDAMemory)")));
    GstAppSinkCallbacks callbacks{};
    callbacks.new_sample = [](GstAppSink* sink, gpointer self) { return static_cast<Consumer*>(self)->take(sink); };
    gst_app_sink_set_callbacks(GST_APP_SINK(part(pipeline, "out")), &callbacks, this, nullptr);
    return play(pipeline);
  }

 private:
  GstFlowReturn take(GstAppSink* sink) {
    const std::int64_t now = bench::now_ns();
    GstSample* sample = gst_app_sink_pull_sample(sink);
    if (sample == nullptr) return GST_FLOW_EOS;
    note(gst_sample_get_buffer(sample), now);
    gst_sample_unref(sample);
    return GST_FLOW_OK;
  }
  void note(GstBuffer* buffer, std::int64_t now) {
    GstMapInfo map;
    std::uint64_t frame = 0;
    if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) throw std::runtime_error("a frame cannot be mapped");
    const bool whole = is_whole(map, frame);
    gst_buffer_unmap(buffer, &map);
    const std::int64_t period = 1000 * ms / options_.fps;
    const std::int64_t gap = now - taker_.last_ns.exchange(now);
    taker_.frames++;
    if (gap > 10 * period) taker_.gaps_ns += static_cast<std::uint64_t>(gap);
    taker_.longest_gap_ns = std::max(taker_.longest_gap_ns.load(), static_cast<std::uint64_t>(gap));
    if (!whole) {
      taker_.torn++;
      return;
    }
    if (frame < most_frames && &taker_ == &shared_.witness) shared_.took_ns[frame] = now - shared_.stored_ns[frame];
    const std::uint64_t expected = taker_.next.exchange(frame + 1);
    if (frame > expected) taker_.lost += frame - expected;
  }

  const Options& options_;
  Shared& shared_;
  Shared::Taker& taker_;
};

/// One of the processes, which is started again as often as it is gone.
class Process : public bench::Child {
 public:
  Process(const Options& options, const std::string& role)
      : Child({"--role", role, "--folder", options.folder, "--memory", std::to_string(options.memory), "--pair",
               std::to_string(options.pair), "--fps", std::to_string(options.fps), "--bytes",
               std::to_string(options.bytes)}) {}

  void start_anew() {
    send(SIGKILL);
    start();
  }
  /// It has given up by itself: start it again, as often as that happens.
  bool revive() {
    if (!has_ended()) return false;
    start();
    return true;
  }
};

struct HandOver {
  std::vector<std::int64_t> ns;
  std::uint64_t lost = 0, torn = 0;
};

/// One pair of elements while nobody dies.
void hand_over(Options options, Shared& shared, HandOver& all) {
  const gpumap::TemporaryFolder folder;
  options.folder = folder.path();
  new (&shared) Shared{};
  // The first frames wait for the witness to start.
  constexpr std::uint64_t unsteady = 20;
  const std::uint64_t wanted = options.frames / hand_over_rounds + unsteady;
  {
    Process producer(options, "producer"), witness(options, "witness");
    const std::int64_t longest = static_cast<std::int64_t>(100 + 2 * wanted / options.fps) * 1000 * ms;
    for (const std::int64_t end = bench::now_ns() + longest; shared.witness.frames < wanted;) {
      if (bench::now_ns() > end) {
        throw std::runtime_error(
            fmt::format("{}: {} of {} frames came", pairs[options.pair].name, shared.witness.frames.load(), wanted));
      }
      // Who finds nothing at the socket gives up, and comes again.
      producer.revive();
      witness.revive();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::uint64_t seen = 0;
  for (std::uint64_t frame = 0; frame < most_frames && seen < wanted; ++frame) {
    const std::int64_t took = shared.took_ns[frame];
    if (took != 0 && seen++ >= unsteady) all.ns.push_back(took);
    if (took == 0 && seen > unsteady) ++all.lost;
  }
  all.torn += shared.witness.torn;
}

nlohmann::json to_json(const Options& options, HandOver& all) {
  nlohmann::json row{{"pair", pairs[options.pair].name}, {"plot", "hand-over"}, {"lost", all.lost}, {"torn", all.torn}};
  row.update(bench::to_json(bench::summarise(all.ns)));
  // How many took less than 1, 2, 4, … us, and no less than half of that.
  std::map<std::uint64_t, std::uint64_t> counts;
  for (const std::int64_t time : all.ns) ++counts[std::bit_ceil(static_cast<std::uint64_t>(time) / 1000 + 1)];
  for (const auto& [below_us, times] : counts) row["below_us"][std::to_string(below_us)] = times;
  return row;
}

/// One pair of elements and one way to die.
nlohmann::json act(Options options, Shared& shared, const std::string& plot) {
  std::mt19937_64 random(options.seed);
  const gpumap::TemporaryFolder folder;
  options.folder = folder.path();
  new (&shared) Shared{};
  unsigned restarts = 0, hangs = 0;
  std::uint64_t first = 0, made = 0;
  std::int64_t began = 0, took = 0;
  const std::int64_t hang_ns = options.hang_ms * ms;
  {
    // The witness goes first: it would count on while the others take their time to be gone.
    Process producer(options, "producer"), victim(options, "victim"), witness(options, "witness");
    const auto live_on = [&](std::int64_t time) {
      for (const std::int64_t end = bench::now_ns() + time; bench::now_ns() < end;) {
        restarts += producer.revive() + witness.revive() + victim.revive();
        const std::int64_t last = shared.witness.last_ns;
        if (last != 0 && bench::now_ns() - last > hang_ns) {
          ++hangs;
          shared.witness.gaps_ns += static_cast<std::uint64_t>(bench::now_ns() - last);
          shared.witness.last_ns = bench::now_ns();
          for (Process* one : {&producer, &witness, &victim}) one->start_anew();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    };
    for (const std::int64_t end = bench::now_ns() + 100'000 * ms; shared.witness.frames < 20; live_on(20 * ms)) {
      if (bench::now_ns() > end) throw std::runtime_error(fmt::format("{}: no frames", pairs[options.pair].name));
    }
    restarts = hangs = 0;
    // What the witness has not seen yet counts, however far behind it is now.
    first = shared.witness.next;
    shared.witness.torn = shared.witness.lost = shared.witness.gaps_ns = shared.witness.longest_gap_ns = 0;
    shared.longest_push_ns = 0;
    shared.witness.frames = 0;
    began = bench::now_ns();
    for (unsigned kill = 0; kill < options.kills; ++kill) {
      // Frames flow again before the next one dies: who takes long to start dies no more often for it.
      const std::uint64_t flowing = shared.witness.frames + 10;
      do {
        live_on(static_cast<std::int64_t>(100 + random() % 400) * ms);
      } while (shared.witness.frames < flowing);
      if (plot == "victim stopped") {
        victim.send(SIGSTOP);
        live_on(300 * ms);
        victim.send(SIGCONT);
        continue;
      }
      (plot == "producer killed" ? producer : victim).start_anew();
    }
    live_on(1000 * ms);
    took = bench::now_ns() - began;
    made = shared.made - first;
  }
  const std::uint64_t seen = shared.witness.frames;
  const auto in_ms = [](std::uint64_t ns) { return static_cast<double>(ns) / ms; };
  const double due = static_cast<double>(took) / 1e9 * options.fps;
  return {{"pair", pairs[options.pair].name},
          {"plot", plot},
          {"kills", options.kills},
          {"frames_due", due},
          {"frames_made", made},
          {"frames_seen", seen},
          {"torn", shared.witness.torn.load()},
          {"lost", shared.witness.lost.load()},
          {"ms_without_frames", in_ms(shared.witness.gaps_ns)},
          {"longest_gap_ms", in_ms(shared.witness.longest_gap_ns)},
          {"longest_push_ms", in_ms(shared.longest_push_ns)},
          {"restarts", restarts},
          {"hangs", hangs}};
}

bool has(const char* element) {
  GstElementFactory* factory = gst_element_factory_find(element);
  if (factory == nullptr) return false;
  gst_object_unref(factory);
  return true;
}

/// Of all pairs that are here and wanted, in turns.
void each_pair(const Options& options, const std::string& plot, const std::function<void(const Options&)>& call) {
  for (int i = 0; i < static_cast<int>(pairs.size()); ++i) {
    if (!options.only.empty() && std::ranges::find(options.only, pairs[i].name) == options.only.end()) continue;
    if (!pairs[i].dies && plot != "hand-over") continue;
    if (!has(pairs[i].element)) continue;
    if (pairs[i].on_gpu && options.bytes % row_bytes != 0) {
      throw std::runtime_error(
          fmt::format("{} takes rows of {} bytes: let --bytes be a multiple of that", pairs[i].name, row_bytes));
    }
    Options chosen = options;
    chosen.pair = i;
    call(chosen);
  }
}

void measure(const Options& options, Shared& shared) {
  bench::check_writable({options.json});
  nlohmann::json report{{"benchmark", "link-rivals"},        {"cpu", bench::cpu_name()}, {"commit", options.commit},
                        {"gstreamer", gst_version_string()}, {"fps", options.fps},       {"bytes", options.bytes}};
  for (const Pair& pair : pairs) {
    const bool wanted = options.only.empty() || std::ranges::find(options.only, pair.name) != options.only.end();
    if (wanted && !has(pair.element)) std::cout << fmt::format("{}: no {} here\n", pair.name, pair.element);
  }
  const auto figures = [](const nlohmann::json& row, std::initializer_list<const char*> names, const char* form) {
    std::string line = fmt::format("{:<17}{:<16}", row["pair"].get<std::string>(), row["plot"].get<std::string>());
    for (const char* name : names) line += fmt::format(fmt::runtime(form), row[name].get<double>());
    std::cout << line << '\n' << std::flush;
  };
  std::cout << fmt::format("{:<33}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "from store to taken, us", "P50", "P99", "P99.9",
                           "longest", "lost");
  std::array<HandOver, pairs.size()> all;
  for (unsigned round = 0; round < hand_over_rounds; ++round) {
    each_pair(options, "hand-over", [&](const Options& chosen) { hand_over(chosen, shared, all[chosen.pair]); });
  }
  each_pair(options, "hand-over", [&](const Options& chosen) {
    figures(report["rows"].emplace_back(to_json(chosen, all[chosen.pair])),
            {"median_us", "p99_us", "p999_us", "max_us", "lost"}, " {:>10.1f}");
  });
  std::cout << fmt::format("\n{:<33}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "frames", "due", "seen",
                           "torn", "lost", "without ms", "longest ms", "push ms", "restarts", "hangs");
  for (const char* plot : {"victim killed", "victim stopped", "producer killed"}) {
    each_pair(options, plot, [&](const Options& chosen) {
      const nlohmann::json row = report["rows"].emplace_back(act(chosen, shared, plot));
      figures(row,
              {"frames_due", "frames_seen", "torn", "lost", "ms_without_frames", "longest_gap_ms", "longest_push_ms",
               "restarts", "hangs"},
              " {:>10.0f}");
    });
  }
  if (!options.json.empty()) bench::write_file(options.json, report.dump(2) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What a frame to another process costs, and the death of one, beside other elements between processes");
  app.add_option("--pairs", options.only,
                 "Which of gpumap, 'gpumap, spinning', shm, unixfd and cudaipc (all that are here)")
      ->expected(1, static_cast<int>(pairs.size()));
  app.add_option("--frames", options.frames, "How many frames' hand-over is timed")
      ->check(CLI::Range(hand_over_rounds, most_frames / 2));
  app.add_option("--kills", options.kills, "How often someone is killed or stopped")->check(CLI::PositiveNumber);
  app.add_option("--fps", options.fps, "Frames a second")->check(CLI::Range(1, 1000));
  app.add_option("--bytes", options.bytes, "Bytes of a frame")->check(CLI::Range(64, 1 << 20));
  app.add_option("--hang-ms", options.hang_ms, "After this time without a frame, all are started anew")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Of the killer");
  app.add_option("--json", options.json, "Write the figures there");
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  for (const auto& [name, text] : {std::pair{"--role", &options.role}, {"--folder", &options.folder}}) {
    app.add_option(name, *text)->group("");  // of the processes that it starts
  }
  app.add_option("--memory", options.memory)->group("");
  app.add_option("--pair", options.pair)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    gst_init(nullptr, nullptr);
    gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumap", "gpumap", gpumap_register_elements,
                               GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap", "gpumap");
    Shared& shared = *static_cast<Shared*>(bench::map_shared(options.memory, sizeof(Shared)));
    if (!options.role.empty()) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (options.role == "producer") return Producer(options, shared).run();
    if (options.role == "witness") return Consumer(options, shared, shared.witness).run();
    if (options.role == "victim") return Consumer(options, shared, shared.victim).run();
    measure(options, shared);
  } catch (const std::exception& error) {
    std::cerr << "link-rivals: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
