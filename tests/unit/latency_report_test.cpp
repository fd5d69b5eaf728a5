// SPDX-License-Identifier: MIT
// gpumap-latency without GStreamer's part: what it makes of frames whose times are known.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include "gst/tools/latency/latency_watch.hpp"
#include "gst/tools/latency/options.hpp"
#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

using gpumap::FrameRecord;
using gpumap::Stamp;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// One whose stages take 1, 2, … times `unit`; without the kernel's stamps, as where the GPU tells no times.
FrameRecord frame_at(std::int64_t begin_ns, std::int64_t unit, std::uint64_t sequence) {
  FrameRecord frame{.sequence = sequence, .bytes = 4096};
  std::int64_t at = begin_ns;
  for (std::size_t i = 0; i < gpumap::stamp_count; ++i) {
    at += static_cast<std::int64_t>(i) * unit;
    frame.at_ns[i] = at;
  }
  frame.at_ns[static_cast<std::size_t>(Stamp::kernel_started)] = 0;
  frame.at_ns[static_cast<std::size_t>(Stamp::kernel_ended)] = 0;
  return frame;
}

std::unique_ptr<Outcome> outcome_of(const std::string& transport, bool paced, int frames, std::int64_t unit,
                                    std::int64_t spread = 1000) {
  auto made = std::make_unique<Outcome>(Case{.frame = parse_frame("4KiB"), .transport = transport}, paced);
  Collector& collector = made->collector;
  collector.begin_round(0, 0);
  std::minstd_rand random(7);
  for (int i = 0; i < frames; ++i) {
    const std::int64_t begin_ns = 1'000'000 * std::int64_t{i + 1};
    const auto more = static_cast<std::int64_t>(random()) % spread;
    FrameRecord frame = frame_at(begin_ns, unit + more, static_cast<std::uint64_t>(i));
    if (paced) frame.due_ns = begin_ns;
    collector.add(frame);
  }
  collector.end_round({}, 0);
  return made;
}

Json report_of(const std::vector<std::unique_ptr<Outcome>>& outcomes, double rate = 0) {
  Options options;
  options.rate = rate;
  Json report{{"program", "gpumap-latency"}, {"format", 1}, {"version", "1.2.3"}, {"commit", ""}, {"stopped", ""}};
  report["machine"] = {{"device", "a <GPU> & \"more\""},
                       {"software", true},
                       {"driver", "driver"},
                       {"backend", "vulkan"},
                       {"window_bytes", 1},
                       {"cpu", "CPU"},
                       {"cores", 2},
                       {"system", "system"},
                       {"date", "today"}};
  report["options"] = describe_options(options, {"--pipeline", "a ! <script>alert('x')</script> ! b"});
  report["cases"] = Json::array();
  report["paced"] = rate > 0;
  for (const auto& outcome : outcomes) report["cases"].push_back(to_json(*outcome, 0));
  return report;
}

/// A matcher would print the whole page.
bool has(const std::string& page, std::string_view text) {
  return page.find(text) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

/// As RFC 4180 says.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

double sum_of_stages(const Json& one) {
  double sum = 0;
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) {
    const Json& stage = one.at("times").at(std::string(to_string(static_cast<gpumap::Stage>(i))));
    sum += stage.at("mean").get<double>() * stage.at("count").get<double>() / one.at("frames").get<double>();
  }
  return sum;
}

TEST(LatencyOptions, KnowSizes) {
  EXPECT_EQ(parse_frame("64").bytes, 64U);
  EXPECT_EQ(parse_frame("64B").bytes, 64U);
  EXPECT_EQ(parse_frame("4KiB").bytes, 4096U);
  EXPECT_EQ(parse_frame("2kB").bytes, 2000U);
  EXPECT_EQ(parse_frame("3MiB").bytes, 3U << 20);
  EXPECT_EQ(parse_frame("1080p").bytes, 3110400U);
  EXPECT_EQ(parse_frame("4K").bytes, 12441600U);
  const FrameKind small = parse_frame("64x48");
  EXPECT_EQ(small.bytes, 64U * 48 * 3 / 2);
  EXPECT_TRUE(small.is_video());
  EXPECT_EQ(caps_of(small, 59.94), "video/x-raw,format=NV12,width=64,height=48,framerate=59940/1000");
  EXPECT_EQ(caps_of(small, 0.0001), "video/x-raw,format=NV12,width=64,height=48,framerate=100/1000000");
  EXPECT_EQ(caps_of(small, 1.0004), "video/x-raw,format=NV12,width=64,height=48,framerate=1000400/1000000");
  EXPECT_EQ(caps_of(parse_frame("64B"), 100), "audio/x-raw,format=S16LE,layout=interleaved,channels=2,rate=1600");
  EXPECT_EQ(caps_of(parse_frame("7B"), 100), "application/octet-stream");
  EXPECT_THAT(as_rgba(parse_frame("64B"), 0), HasSubstr("format=RGBA,width=4,height=4"));
  EXPECT_THAT(as_rgba(parse_frame("64KiB"), 0), HasSubstr("width=128,height=128"));
  EXPECT_EQ(as_rgba(parse_frame("7B"), 0), "");
  for (const char* text : {"", "B", "4 KiB", "4KB", "-1", "0", "63x48", "64x", "0x0", "64x48x2", "99999999999999999999",
                           "5000MiB", "1080P"}) {
    EXPECT_THROW((void)parse_frame(text), UsageError) << text;
  }
}

TEST(LatencyOptions, SayWhichPlaceholderIsMissing) {
  EXPECT_NO_THROW(check_placeholders("a ! {sink}  {src} ! b"));
  const auto said = [](const std::string& line) -> std::string {
    try {
      check_placeholders(line);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(said("a ! {sink}"), AllOf(HasSubstr("--pipeline has no {src}."), Not(HasSubstr("no {sink}")),
                                        HasSubstr("gpumap-latency --pipeline \"videotestsrc")));
  EXPECT_THAT(said("{src} ! a"), HasSubstr("--pipeline has no {sink}."));
  EXPECT_THAT(said("a ! gpumapsink gpumapsrc ! b"), AllOf(HasSubstr("no {sink}"), HasSubstr("no {src}")));
  EXPECT_THAT(said("{sink} {sink} {src}"), HasSubstr("{sink} 2 times"));
}

TEST(LatencyOptions, PutElementsInTheirPlaces) {
  const std::string line =
      expand("a ! {sink} leaky=oldest  {src} ! b", {.frame = {}, .transport = "zero-copy", .spin = true}, {}, "one");
  EXPECT_THAT(line, HasSubstr("channel=one"));
  EXPECT_THAT(line, HasSubstr("transport=zero-copy"));
  EXPECT_THAT(line, HasSubstr("busy-poll=1000 stamps=true leaky=oldest  gpumapsrc"));
  EXPECT_THAT(line, Not(HasSubstr("{")));
}

TEST(LatencyOptions, LetTheSameKernelRunBehindTheRival) {
  Options options;
  const auto rival = [&](const char* kernel) {
    return own_line({.frame = parse_frame("1080p"), .transport = "cudaupload", .kernel = kernel}, options, 10);
  };
  // Asked for by its caps: without, cudaupload may pass frames on as they are.
  const char* upload = "cudaupload name=latency-sink ! video/x-raw(memory:CUDAMemory) ! ";
  EXPECT_THAT(rival("checksum"), AllOf(HasSubstr(std::string(upload) + "gpumapkernel"), HasSubstr("kernel=checksum")));
  EXPECT_THAT(rival("identity"), AllOf(HasSubstr(upload), HasSubstr("kernel=identity"), HasSubstr("capsfilter")));
  EXPECT_THAT(rival("none"), AllOf(HasSubstr(upload), Not(HasSubstr("gpumapkernel"))));
  options.output = "video/x-raw(memory:CUDAMemory),format=RGBA";
  EXPECT_THAT(rival("gst:cudaconvert"), HasSubstr(std::string(upload) + "cudaconvert ! capsfilter caps=\"video/x-raw("
                                                                        "memory:CUDAMemory),format=RGBA\" ! fakesink"));
}

TEST(LatencyOptions, LetAnUploadGoInOneThread) {
  Options options;
  Case upload{.frame = parse_frame("4KiB"), .transport = "upload", .spin = true, .resident = true};
  upload.kernel = "a.cu+checksum";
  const std::string line = own_line(upload, options, 10);
  EXPECT_THAT(line, testing::StartsWith("gpumapupload name=latency-sink device=auto slots=8 busy-poll=1000 stamps=true "
                                        "! gpumapkernel device=auto location=\"a.cu\" mode=resident ! gpumapkernel "
                                        "device=auto kernel=checksum mode=resident ! capsfilter"));
  EXPECT_THAT(line, AllOf(HasSubstr("octet-stream(memory:GPUMap)"), Not(HasSubstr("{")), Not(HasSubstr("gpumapsrc"))));
  EXPECT_EQ(upload.title(), "upload, spin, resident");
  options.output = "host";
  EXPECT_THAT(own_line(upload, options, 10), Not(HasSubstr("memory:")));
  options.output = "gpu";
  upload.kernel = "identity";
  EXPECT_THAT(own_line(upload, options, 10),
              HasSubstr("kernel=identity mode=resident ! capsfilter caps=\"video/x-raw("));
}

TEST(LatencyOptions, MeasureKernelsThatStayInTurns) {
  Options options;
  options.frames = {"64B"};
  options.transports = {"bar", "cudaupload"};
  options.fences = {"spin"};
  options.modes = {"launch", "resident"};
  options.rate = 60;
  fill_in_defaults(options);
  std::vector<std::string> titles;
  for (const Case& one : cases_of(options)) titles.push_back(one.title());
  EXPECT_THAT(titles, ElementsAre("bar, spin", "bar, spin, resident", "cudaupload, spin"));
  options.kernels = {"checksum", "identity"};
  EXPECT_EQ(cases_of(options).size(), 6U);
  EXPECT_EQ(cases_of(options)[3].title(), "bar, spin, resident, identity");
}

TEST(LatencyOptions, LetTheRivalBeAsPunctual) {
  Options options;
  options.frames = {"1080p"};
  options.fences = {"sleep", "spin"};
  options.transports = {"bar", "cudaupload"};
  fill_in_defaults(options);
  const auto titles = [&] {
    std::vector<std::string> made;
    for (const Case& one : cases_of(options)) made.push_back(one.title());
    return made;
  };
  EXPECT_THAT(titles(), ElementsAre("bar", "bar, spin", "cudaupload")) << "nothing in it spins";
  options.rate = 60;
  EXPECT_THAT(titles(), ElementsAre("bar", "bar, spin", "cudaupload", "cudaupload, spin")) << "what feeds it does";
  EXPECT_STREQ(cases_of(options)[2].fence(), "");
  EXPECT_STREQ(cases_of(options)[3].fence(), "spin");
}

TEST(Collector, StagesAddUpToTheWhole) {
  const auto outcome = outcome_of("bar", false, 5000, 3000);
  const Json one = to_json(*outcome, 0);
  EXPECT_NEAR(sum_of_stages(one), one.at("times").at("whole").at("mean").get<double>(), 1e-3);
  for (const char* key : {"typical", "slow"}) {
    double sum = 0;
    for (const Json& time : one.at(key)) sum += time.get<double>();
    const Json& whole = one.at("times").at("whole");
    const Json& near = key == std::string("typical") ? whole.at("p50") : whole.at("p99");
    EXPECT_NEAR(sum, near.get<double>(), 0.03 * sum) << key;
  }
}

TEST(Collector, LeavesWarmUpOutInEveryRound) {
  Collector frames(false);
  for (unsigned round = 0; round < 3; ++round) {
    frames.begin_round(round, 5);
    for (std::uint64_t i = 0; i < 12; ++i) frames.add(frame_at(1000, i < 5 ? 1'000'000 : 10, i));
    frames.end_round({}, 0);
  }
  EXPECT_EQ(frames.frames(), 21U);
  EXPECT_EQ(frames.frames_of_round(), 12U);
  EXPECT_LT(frames.through().percentiles().max, 1000);
}

TEST(Collector, HoldsAMillionFramesInTheSameMemory) {
  Collector frames(false, 1000, 5);
  frames.begin_round(0, 0);
  constexpr int count = 1'000'000;
  for (int i = 0; i < count; ++i) {
    frames.add(frame_at(1000 * std::int64_t{i + 1}, 1 + i % 1000, static_cast<std::uint64_t>(i)));
  }
  frames.end_round({}, 0);
  EXPECT_EQ(frames.frames(), static_cast<std::uint64_t>(count));
  EXPECT_EQ(frames.kept().size(), 1000U);
  EXPECT_EQ(frames.outliers().size(), 5U);
  EXPECT_EQ(frames.outliers().front().time_ns, *through_time(frame_at(1, 1000, 0)));
  // A fair sample: as many early frames as late ones, and a middle that is the middle.
  double mean = 0;
  for (const auto& kept : frames.kept()) mean += static_cast<double>(kept.frame.sequence) / 1000;
  EXPECT_NEAR(mean, count / 2.0, count * 0.05);
}

TEST(Collector, CountsDeadlinesFromWhenFramesWereDue) {
  Collector frames(true);
  frames.begin_round(0, 0);
  // Due every 100; the fourth is held up by 250 and delays the next two.
  const std::int64_t late[] = {10, 10, 10, 250, 150, 50, 10, 10};
  for (std::uint64_t i = 0; i < std::size(late); ++i) {
    FrameRecord frame{.sequence = i};
    frame.due_ns = 1000 + 100 * static_cast<std::int64_t>(i);
    frame.at_ns[static_cast<std::size_t>(Stamp::last_store)] = frame.due_ns + late[i] - 5;
    frame.at_ns[static_cast<std::size_t>(Stamp::visible)] = frame.due_ns + late[i];
    frames.add(frame);
  }
  EXPECT_EQ(frames.missed_deadlines(), 2U);
  EXPECT_EQ(frames.headline().percentiles().max, 250);
  EXPECT_EQ(frames.through().percentiles().max, 5) << "which alone would hide the delay";
}

/// Due at that time, with its result so much later.
FrameRecord due_frame(std::uint64_t sequence, std::int64_t due_ns, std::int64_t late_ns) {
  FrameRecord frame{.sequence = sequence};
  frame.due_ns = due_ns;
  frame.at_ns[static_cast<std::size_t>(Stamp::last_store)] = due_ns + 1;
  frame.at_ns[static_cast<std::size_t>(Stamp::visible)] = due_ns + late_ns;
  return frame;
}

TEST(Collector, CountsDeadlinesOfTheLastFrameAndOfThoseOutOfTurn) {
  for (const std::int64_t asked : {0, 100}) {
    Collector frames(true);
    frames.pace(asked);
    frames.begin_round(0, 1);
    frames.add(due_frame(0, 1000, 5000));  // does not count
    frames.add(due_frame(1, 1100, 99));
    frames.add(due_frame(3, 1300, 101));
    frames.add(due_frame(2, 1200, 777));  // out of turn
    frames.add(due_frame(4, 1400, 100));
    frames.add(due_frame(5, 1500, 300));  // the last one
    frames.end_round({}, 0);
    EXPECT_EQ(frames.missed_deadlines(), 3U) << asked;
    frames.begin_round(1, 0);
    frames.add(due_frame(0, 9000, 101));  // one alone: what is known of the rounds before is all there is
    frames.end_round({}, 4);              // and four that never came
    EXPECT_EQ(frames.missed_deadlines(), 8U) << asked;
  }
}

/// What a queue that leaks leaves of one.
FrameRecord lost_frame(std::uint64_t sequence, std::int64_t due_ns) {
  FrameRecord frame = due_frame(sequence, due_ns, 0);
  frame.at_ns[static_cast<std::size_t>(Stamp::visible)] = 0;
  frame.at_ns[static_cast<std::size_t>(Stamp::received)] = due_ns + 3;
  frame.at_ns[static_cast<std::size_t>(Stamp::released)] = due_ns + 5;
  return frame;
}

TEST(Collector, TakesNoFrameForDoneThatEndedWithoutAResult) {
  for (const bool paced : {true, false}) {
    Outcome outcome(Case{.frame = parse_frame("4KiB"), .transport = "bar"}, paced);
    Collector& frames = outcome.collector;
    if (paced) frames.pace(100);
    frames.begin_round(0, 0);
    // Lost ones come first: their way is shorter.
    for (const std::uint64_t number : {1U, 3U, 0U, 2U, 4U, 5U}) {
      const auto due_ns = 1000 + 100 * static_cast<std::int64_t>(number);
      frames.add(number % 2 == 1 ? lost_frame(number, due_ns) : due_frame(number, due_ns, 60));
    }
    frames.end_round({}, 0);
    EXPECT_EQ(frames.frames(), 6U);
    EXPECT_EQ(frames.without_result(), 3U);
    EXPECT_EQ(frames.missed_deadlines(), paced ? 3U : 0U);
    const Json one = to_json(outcome, 0);
    for (const char* row : {"through", "result", "lateness"}) {
      if (row == std::string("lateness") && !paced) continue;
      EXPECT_EQ(one.at("times").at(row).at("count"), 3U) << row;
      EXPECT_GE(one.at("times").at(row).at("min"), 59) << row;
    }
    EXPECT_EQ(one.at("times").at("whole").at("count"), 6U);
    EXPECT_EQ(one.at("outliers").size(), 3U);
    EXPECT_THAT(counts_of(one), HasSubstr("3 ended without a result"));
    std::vector<std::unique_ptr<Outcome>> outcomes;
    outcomes.push_back(std::make_unique<Outcome>(outcome));
    const auto lines = lines_of(to_csv(outcomes));
    const auto head = fields_of(lines[0]);
    const auto through = std::ranges::find(head, "through_ns") - head.begin();
    EXPECT_THAT(fields_of(lines[1])[static_cast<std::size_t>(through)], IsEmpty()) << "frame 1";
    EXPECT_EQ(fields_of(lines[3])[static_cast<std::size_t>(through)], "59") << "frame 0";
  }
}

TEST(Collector, TellsOfFramesThatTheEndOfARoundCutsOff) {
  Outcome outcome(Case{.frame = parse_frame("4KiB"), .transport = "bar"}, true);
  Collector& frames = outcome.collector;
  frames.pace(100);
  frames.begin_round(0, 1);
  for (std::uint64_t number = 0; number < 3; ++number) {
    frames.add(due_frame(number, 1000 + 100 * static_cast<std::int64_t>(number), 60));
  }
  frames.stop(1450);
  frames.add(lost_frame(3, 1300));  // a result was due at 1400
  frames.add(lost_frame(4, 1400));  // at 1500
  frames.end_round({}, 0, 2);       // 5 and 6
  EXPECT_EQ(frames.frames(), 2U);
  EXPECT_EQ(frames.without_result(), 0U);
  EXPECT_EQ(frames.cut_off(), 4U);
  EXPECT_EQ(frames.missed_deadlines(), 1U);
  EXPECT_THAT(counts_of(to_json(outcome, 0)), HasSubstr("4 cut off at the end of a round, 1 missed deadline,"));

  // Three that never came, of which the first does not count; of the others one was over.
  frames.begin_round(1, 2);
  frames.add(due_frame(0, 2000, 60));
  frames.stop(2350);
  frames.end_round({}, 0, 3);
  EXPECT_EQ(frames.cut_off(), 6U);
  EXPECT_EQ(frames.missed_deadlines(), 2U);
}

TEST(Collector, CountsTimesBelowZeroApart) {
  auto outcome = outcome_of("bar", true, 40, 2000);
  EXPECT_EQ(outcome->collector.negative_times(), 0U);
  EXPECT_EQ(state_of(to_json(*outcome, 0)), "");
  outcome->collector.begin_round(1, 0);
  FrameRecord early = frame_at(90'000'000, 1000, 1);
  early.due_ns = early.at(Stamp::visible) + 70'000'000'000;  // a base time that was added twice
  outcome->collector.add(early);
  outcome->collector.end_round({}, 0);
  const Json one = to_json(*outcome, 0);
  EXPECT_EQ(one.at("negative_times"), 1U);
  EXPECT_EQ(one.at("times").at("lateness").at("negative"), 1U);
  EXPECT_EQ(one.at("times").at("lateness").at("count"), 40U);
  EXPECT_GT(one.at("times").at("lateness").at("min"), 0);
  EXPECT_TRUE(has_failed(one));
  EXPECT_THAT(state_of(one), AllOf(HasSubstr("wrong: below 0, as no time can be: lateness of 1 frame."),
                                   HasSubstr("ahead of the pipeline's clock")));
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(std::move(outcome));
  const Json report = report_of(outcomes, 1000);
  EXPECT_THAT(to_table(report, true), HasSubstr("wrong: below 0"));
  EXPECT_TRUE(has(to_page(report), "wrong: below 0"));
}

TEST(Collector, TakesTheSlowestByWhatCasesAreComparedBy) {
  Outcome outcome(Case{.frame = parse_frame("4KiB"), .transport = "bar"}, true);
  Collector& frames = outcome.collector;
  frames.begin_round(0, 0);
  // The later a frame is, the shorter is its way: sorting by the whole way takes others.
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto unit = static_cast<std::int64_t>(2000 - i);
    FrameRecord frame = frame_at(1'000'000 * static_cast<std::int64_t>(i + 1), unit, i);
    frame.due_ns = frame.at(Stamp::visible) - 100'000 - static_cast<std::int64_t>(i) * 1000;
    frames.add(frame);
  }
  frames.end_round({}, 0);
  const Json one = to_json(outcome, 0);
  double typical = 0;
  double slow = 0;
  for (const Json& time : one.at("typical")) typical += time.get<double>();
  for (const Json& time : one.at("slow")) slow += time.get<double>();
  EXPECT_NEAR(slow / typical, 1005.0 / 1500, 0.01);
}

TEST(Collector, TellsWhatHappenedBesideSlowFrames) {
  Collector frames(false, 100, 2);
  frames.begin_round(4, 0);
  for (std::uint64_t i = 0; i < 50; ++i) {
    if (i == 20 || i == 21) continue;  // dropped
    frames.add(frame_at(1'000'000 * static_cast<std::int64_t>(i + 1), i == 22 || i == 40 ? 5000 : 10, i));
  }
  const Event early{.kind = Event::Kind::context_switch, .since_ns = 1, .at_ns = 2, .text = "early"};
  const Event then{.kind = Event::Kind::context_switch, .since_ns = 40'900'000, .at_ns = 41'005'000, .text = "then"};
  frames.end_round({early, then}, 2);
  for (const auto& outlier : frames.outliers()) {
    ASSERT_EQ(outlier.near.size(), 1U);
    EXPECT_EQ(outlier.near.front().text,
              outlier.kept.frame.sequence == 40 ? "then" : "2 frames dropped before number 22");
  }
}

TEST(Report, SaysTheSameInTableAndPage) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 500, 2000));
  outcomes.push_back(outcome_of("pinned", false, 500, 9000));
  outcomes.push_back(outcome_of("cudaupload", false, 0, 1));
  outcomes.back()->not_here = "this machine has no cudaupload";
  const Json report = report_of(outcomes);
  const std::string table = to_table(report, false);
  for (const std::string& line : lines_of(table)) EXPECT_LE(line.size(), 120U) << line;
  EXPECT_THAT(table, HasSubstr("not here: this machine has no cudaupload"));
  EXPECT_THAT(table, HasSubstr("(software)"));
  const std::string page = to_page(report);
  for (const Json& one : report.at("cases")) {
    const Json& through = one.at("times").at("through");
    if (through.at("count") == 0) continue;
    EXPECT_THAT(table, HasSubstr(short_time(through.at("p99"))));
    EXPECT_TRUE(
        has(page, fmt::format("data-row=\"through\" data-column=\"p99\">{}</td>", short_time(through.at("p99")))));
  }
  EXPECT_TRUE(has(page, "this machine has no cudaupload"));
}

/// A figure with its unit, at which a line is cut into columns.
std::vector<std::string> figures_in(const std::string& line) {
  static const std::regex figure("[0-9.]+ (ns|us|ms|s)(?= |$)");
  std::vector<std::string> figures;
  for (std::sregex_iterator at(line.begin(), line.end(), figure), none; at != none; ++at) figures.push_back(at->str());
  return figures;
}

TEST(Report, KeepsFiguresApartAndNamesTheirUnits) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (const int unit : {900, 40'000, 3'000'000, 200'000'000}) {
    outcomes.push_back(outcome_of(unit == 900         ? "bar"
                                  : unit == 40'000    ? "pinned"
                                  : unit == 3'000'000 ? "zero-copy"
                                                      : "pageable",
                                  false, 333, unit));
  }
  const Json report = report_of(outcomes);
  std::size_t rows = 0;
  std::string brief = to_table(report, true);
  for (const std::string& line : lines_of(brief)) {
    for (const Json& one : report.at("cases")) {
      const Json& times = one.at("times").at("through");
      if (line.rfind(title_of(one) + " ", 0) != 0) continue;
      EXPECT_THAT(figures_in(line), ElementsAre(short_time(times.at("p50")), short_time(times.at("p99")))) << line;
      ++rows;
    }
  }
  EXPECT_EQ(rows, outcomes.size()) << brief;
  EXPECT_THAT(brief, HasSubstr("\n                               P50       P99\n"));
  for (const std::string& line : lines_of(to_table(report, false))) {
    if (line.find(" through   ") == std::string::npos) continue;
    EXPECT_EQ(figures_in(line).size(), 6U) << line;
  }
  // The page: a cell for each figure, so that no two of them are one number when they are read aloud, or copied.
  const std::string page = to_page(report);
  for (const Json& one : report.at("cases")) {
    const Json& times = one.at("times").at("through");
    EXPECT_TRUE(has(page, ">" + short_time(times.at("p50")) + "</td><td>" + short_time(times.at("p99")) + "</td>"))
        << title_of(one);
  }
  EXPECT_TRUE(has(page, "<th>P50</th><th>P99</th>"));
  EXPECT_TRUE(has(page, "<h2>4KiB (software)</h2>"));
  EXPECT_FALSE(has(page.substr(page.find("</style>")), "*")) << "no page's reader knows what asterisks say";
}

/// What a case is compared by, as each frame has it.
std::vector<std::int64_t> times_in(const Outcome& outcome) {
  std::vector<std::int64_t> times;
  for (const auto& kept : outcome.collector.kept()) times.push_back(*outcome.collector.headline_time(kept.frame));
  std::ranges::sort(times);
  return times;
}

TEST(Report, HistogramCountsEachFrameOnce) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  // From below what is told apart to the ns, up to seconds.
  for (const std::int64_t unit : {1, 777, 54'321, 98'765'432}) {
    outcomes.push_back(outcome_of("bar", false, 4321, unit, 19 * unit));
  }
  for (const auto& outcome : outcomes) {
    const std::vector<std::int64_t> times = times_in(*outcome);
    const std::vector<Bin> bins = bins_of(to_json(*outcome, 0));
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < bins.size(); ++i) {
      const auto inside = std::ranges::count_if(
          times, [&](std::int64_t time) { return bins[i].from_ns <= time && time < bins[i].to_ns; });
      EXPECT_EQ(bins[i].frames, static_cast<std::uint64_t>(inside)) << bins[i].from_ns;
      EXPECT_GT(bins[i].frames, 0U);
      EXPECT_LE(bins[i].to_ns - bins[i].from_ns, std::max<std::int64_t>(bins[i].from_ns / 8, 1));
      EXPECT_GE(bins[i].from_ns, i > 0 ? bins[i - 1].to_ns : 0);
      all += bins[i].frames;
    }
    EXPECT_EQ(all, times.size());
  }
  // A bar for each in the page, which says how many they are.
  const Json report = report_of(outcomes);
  const std::string page = to_page(report);
  const std::size_t begin = page.find("<svg class=\"histograms\"");
  const std::string drawn = page.substr(begin, page.find("</svg>", begin) - begin);
  std::size_t bars = 0;
  for (std::size_t at = 0; (at = drawn.find("<rect", at)) != std::string::npos; ++at) ++bars;
  std::size_t bins = 0;
  for (const Json& one : report.at("cases")) {
    for (const Bin& bin : bins_of(one)) {
      EXPECT_TRUE(has(drawn, fmt::format("bar, sleep: {} frame{} from {} to {}<", bin.frames,
                                         bin.frames == 1 ? "" : "s", short_time(static_cast<double>(bin.from_ns)),
                                         short_time(static_cast<double>(bin.to_ns)))));
      ++bins;
    }
  }
  EXPECT_EQ(bars, bins);
  EXPECT_GT(bins, 20U);
}

TEST(Hgrm, ReadsBack) {
  const auto outcome = outcome_of("bar", false, 7001, 40'000, 3'000'000);
  const std::vector<std::int64_t> times = times_in(*outcome);
  const Json one = to_json(*outcome, 0);
  EXPECT_EQ(hgrm_name(one), "4KiB-bar-sleep");
  const auto lines = lines_of(to_hgrm(one, "through"));
  ASSERT_GT(lines.size(), 20U);
  EXPECT_EQ(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
  EXPECT_EQ(lines[1], "");
  double last_value = 0;
  double last_share = -1;
  const std::size_t footer = lines.size() - 3;
  for (std::size_t i = 2; i < footer; ++i) {
    std::istringstream in(lines[i]);
    double value = 0;
    double share = 0;
    std::uint64_t count = 0;
    double rest = 0;
    ASSERT_TRUE(in >> value >> share >> count) << lines[i];
    EXPECT_GT(share, last_share);
    EXPECT_GE(value, last_value);
    last_share = share;
    last_value = value;
    // As in the sorted times: so many took no longer, and at least that share of all.
    const auto at = static_cast<double>(times[count - 1]);
    EXPECT_NEAR(value * 1000, at, 0.01 * at) << lines[i];
    EXPECT_GE(static_cast<double>(count) / static_cast<double>(times.size()), share - 1e-9);
    if (i + 1 < footer) {
      ASSERT_TRUE(in >> rest) << lines[i];
      EXPECT_NEAR(rest, 1 / (1 - share), 0.01 + 1e-4 * rest);
      EXPECT_EQ(lines[i].size(), 12U + 1 + 14 + 1 + 10 + 1 + 14) << lines[i];
    } else {
      EXPECT_FALSE(in >> rest) << lines[i];
      EXPECT_EQ(share, 1);
      EXPECT_EQ(count, times.size());
      EXPECT_NEAR(value * 1000, static_cast<double>(times.back()), 0.5);
    }
  }
  // The first halving goes in fives: 0, 0.1 … 0.5, the next one 0.55 and so on.
  std::vector<std::string> shares;
  for (std::size_t i = 2; i < 9; ++i) shares.push_back(lines[i].substr(13, 14));
  EXPECT_THAT(shares, ElementsAre("0.000000000000", "0.100000000000", "0.200000000000", "0.300000000000",
                                  "0.400000000000", "0.500000000000", "0.550000000000"));
  double mean = 0;
  double squares = 0;
  for (const std::int64_t time : times) mean += static_cast<double>(time) / static_cast<double>(times.size());
  for (const std::int64_t time : times) squares += std::pow(static_cast<double>(time) - mean, 2);
  const double deviation = std::sqrt(squares / static_cast<double>(times.size()));
  std::array<double, 3> said{};
  std::array<unsigned, 3> numbers{};
  ASSERT_EQ(std::sscanf(lines[footer].c_str(), "#[Mean    = %lf, StdDeviation   = %lf]", &said[0], &said[1]), 2);
  ASSERT_EQ(std::sscanf(lines[footer + 1].c_str(), "#[Max     = %lf, Total count    = %u]", &said[2], &numbers[0]), 2);
  ASSERT_EQ(std::sscanf(lines[footer + 2].c_str(), "#[Buckets = %u, SubBuckets     = %u]", &numbers[1], &numbers[2]),
            2);
  EXPECT_NEAR(said[0] * 1000, mean, 1);
  EXPECT_NEAR(said[1] * 1000, deviation, 0.02 * deviation);
  EXPECT_NEAR(said[2] * 1000, static_cast<double>(times.back()), 1);
  EXPECT_EQ(numbers[0], times.size());
  EXPECT_GE(numbers[2], 128U);
  // One frame: its time, and the end.
  const auto single = lines_of(to_hgrm(to_json(*outcome_of("bar", false, 1, 3), 0), "through"));
  EXPECT_EQ(single.size(), 2U + 2 + 3);
}

TEST(Report, TellsWhatIsNotWhole) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 50, 1000));
  outcomes.push_back(outcome_of("pinned", false, 50, 2000));
  outcomes[0]->rounds_asked = outcomes[1]->rounds_asked = outcomes[1]->rounds = 5;
  outcomes[0]->rounds = 2;
  const Json report = report_of(outcomes);
  EXPECT_EQ(state_of(report.at("cases")[0]), "not whole: 2 of 5 rounds ran to their end");
  EXPECT_EQ(state_of(report.at("cases")[1]), "");
  EXPECT_FALSE(has_failed(report.at("cases")[0])) << "what there is counts";
  const std::string table = to_table(report, true);
  const auto p99 = [&](int number) {
    return short_time(report.at("cases")[number].at("times").at("through").at("p99"));
  };
  EXPECT_THAT(table,
              AllOf(HasSubstr(p99(0) + "!"), Not(HasSubstr(p99(1) + "!")), HasSubstr("4KiB, bar, sleep: not whole")));
  const std::string page = to_page(report);
  const auto best = page.find("class=\"best\"");
  EXPECT_EQ(page.find("class=\"best\"", best + 1), std::string::npos);
  EXPECT_EQ(page.substr(best, page.find('<', best) - best),
            "class=\"best\">" + short_time(report.at("cases")[1].at("times").at("through").at("p50")))
      << "the faster one is not whole";
}

TEST(Report, LeavesOutStagesThatNoFrameHad) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 50, 2000));
  const Json report = report_of(outcomes);
  EXPECT_EQ(report["cases"][0]["times"]["kernel"]["count"], 0);
  EXPECT_FALSE(report["cases"][0]["typical"].contains("kernel"));
  EXPECT_FALSE(has(to_page(report), "data-row=\"kernel\""));
  EXPECT_THAT(to_table(report, false), Not(HasSubstr(" kernel   ")));
}

TEST(Report, SaysHowFarTheGpusTimesAreToBeTrusted) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 50, 2000));
  EXPECT_THAT(counts_of(to_json(*outcomes[0], 0)), Not(HasSubstr("GPU")));
  outcomes[0]->gpu_error_ns = 1234;
  outcomes[0]->without_gpu_times = 3;
  EXPECT_THAT(counts_of(to_json(*outcomes[0], 0)), HasSubstr("GPU times within 1.23 us, 3 without them"));
}

TEST(Report, EscapesWhatIsForeign) {
  EXPECT_EQ(escape("<a b='c' d=\"e\">&\x01\n"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;\n");
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 50, 2000));
  outcomes.back()->line = "</code><script>alert(1)</script>";
  outcomes.back()->error = "<img src=x onerror=alert(1)>";
  const std::string page = to_page(report_of(outcomes));
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "<img"));
  EXPECT_FALSE(has(page, "<GPU>"));
  EXPECT_TRUE(has(page, "a &lt;GPU&gt; &amp; &quot;more&quot;"));
  EXPECT_FALSE(has(page, "://"));
}

TEST(Report, IsTheSamePageFromItsFile) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", true, 500, 2000));
  outcomes.back()->error = "broken \xff bytes";
  const Json report = report_of(outcomes, 1000);
  const std::string text = report.dump(1, ' ', false, Json::error_handler_t::replace);
  const Json again = Json::parse(text);
  EXPECT_EQ(to_page(again), to_page(Json::parse(again.dump(1))));
  EXPECT_TRUE(has(to_page(again), "missed deadline"));
  EXPECT_THROW((void)to_page(Json::parse("{}")), Json::exception);
  EXPECT_THROW((void)to_page(Json::parse("[1,2]")), Json::exception);
}

TEST(Report, IsMadeOfNothingAtAll) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("bar", false, 0, 1));
  outcomes.push_back(outcome_of("pinned", false, 1, 1));
  const Json report = report_of(outcomes);
  EXPECT_FALSE(to_table(report, false).empty());
  EXPECT_FALSE(has(to_page(report), "nan"));
}

TEST(Csv, ReadsBack) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
  EXPECT_THAT(fields_of("x," + csv_field("a,\"b\"") + ",y"), ElementsAre("x", "a,\"b\"", "y"));
  std::vector<std::unique_ptr<Outcome>> outcomes;
  outcomes.push_back(outcome_of("zero-copy", true, 300, 2000));
  const auto lines = lines_of(to_csv(outcomes));
  ASSERT_EQ(lines.size(), 301U);
  const auto names = fields_of(lines[0]);
  const auto column = [&](const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    EXPECT_NE(at, names.end()) << name;
    return static_cast<std::size_t>(at - names.begin());
  };
  for (std::size_t i = 0; i < 300; ++i) {
    const auto fields = fields_of(lines[i + 1]);
    ASSERT_EQ(fields.size(), names.size());
    const FrameRecord& frame = outcomes[0]->collector.kept()[i].frame;
    EXPECT_EQ(fields[column("transport")], "zero-copy");
    EXPECT_EQ(fields[column("sequence")], std::to_string(frame.sequence));
    EXPECT_EQ(fields[column("visible_at_ns")], std::to_string(frame.at(Stamp::visible)));
    EXPECT_THAT(fields[column("kernel_ns")], IsEmpty());
    std::int64_t sum = 0;
    for (std::size_t stage = 0; stage < gpumap::stage_count; ++stage) {
      const auto& field = fields[column(fmt::format("{}_ns", to_string(static_cast<gpumap::Stage>(stage))))];
      if (!field.empty()) sum += std::stoll(field);
    }
    EXPECT_EQ(fields[column("whole_ns")], std::to_string(sum));
  }
}

/// A thread that is taken off its CPU while it and another one like it want the same.
class Busy {
 public:
  explicit Busy(int cpu) : thread_([this, cpu] { run(cpu); }) {
    while (id_ == 0) std::this_thread::yield();
  }
  ~Busy() {
    ends_ = true;
    thread_.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  void spin(bool spins) { spins_ = spins; }
  /// As the kernel counts.
  [[nodiscard]] std::uint64_t switches() const {
    std::ifstream status(fmt::format("/proc/self/task/{}/status", id_.load()));
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("nonvoluntary_ctxt_switches:", 0) == 0) return std::stoull(line.substr(line.find(':') + 1));
    }
    return 0;
  }

 private:
  void run(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    id_ = gettid();
    while (!ends_) {
      if (!spins_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::atomic<pid_t> id_{0};
  std::atomic<bool> spins_{false}, ends_{false};
  std::thread thread_;
};

// All of them: also where a thread had none when it was found, and where it had some by then and was not there
// before.
TEST(Watch, CountsTheFirstSwitchesOfAThread) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  for (const bool found_first : {true, false}) {
    Watch watch;
    watch.look_at_threads();
    std::array<Busy, 2> threads{Busy(cpu), Busy(cpu)};
    const auto look = [&] {
      for (int i = 0; i < 20; ++i) watch.look_at_threads();  // it searches at each tenth
    };
    if (found_first) look();
    for (Busy& one : threads) one.spin(true);
    while (threads[0].switches() < 3 || threads[1].switches() < 3) std::this_thread::yield();
    for (Busy& one : threads) one.spin(false);
    const std::uint64_t counted = threads[0].switches() + threads[1].switches();
    look();
    EXPECT_GE(watch.switches(), counted) << found_first;
    const auto events = watch.take();
    ASSERT_FALSE(events.empty());
    for (const Event& event : events) {
      EXPECT_GT(event.since_ns, 0);
      EXPECT_LE(event.since_ns, event.at_ns);
    }
  }
}

TEST(Figures, AreAsLongAsTheyMeanSomething) {
  EXPECT_EQ(short_time(0), "0 ns");
  EXPECT_EQ(short_time(1234), "1.23 us");
  EXPECT_EQ(short_time(9996), "10 us");
  EXPECT_EQ(short_time(999'400), "999 us");
  EXPECT_EQ(short_time(999'600), "1 ms");
  EXPECT_EQ(short_time(-4'049'000), "-4.05 ms") << "what two processes cost less";
  EXPECT_EQ(short_time(999), "999 ns");
  EXPECT_EQ(short_time(12345), "12.3 us");
  EXPECT_EQ(short_time(3.5e6), "3.5 ms");
  EXPECT_EQ(short_time(2e9), "2 s");
}

}  // namespace
}  // namespace latency
