// SPDX-License-Identifier: MIT
// gpumap-latency --processes 2 without its pipelines: lines that are split, figures that are compared, what two
// processes count in and say to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gst/tools/latency/far_producer.hpp"
#include "gst/tools/latency/options.hpp"
#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

using gpumap::FrameRecord;
using gpumap::Stamp;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string error_of(const Options& options) {
  try {
    static_cast<void>(cases_of(options));
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(ProcessesOption, IsOneTwoOrBoth) {
  Options options;
  fill_in_defaults(options);
  EXPECT_EQ(options.transports.size(), 6U) << "four of gpumap, upload and the rival";
  for (const Case& one : cases_of(options)) EXPECT_EQ(one.processes, 1U);

  options = {};
  options.processes = {"1", "2"};
  options.fences = {"sleep", "spin"};
  options.frames = {"64B"};
  fill_in_defaults(options);
  const auto cases = cases_of(options);
  ASSERT_EQ(cases.size(), 4U) << "bar alone can be shared";
  EXPECT_EQ(cases[0].title(), "bar");
  EXPECT_EQ(cases[1].title(), "bar, 2 processes") << "side by side";
  EXPECT_EQ(cases[3].title(), "bar, spin, 2 processes");

  options.processes = {"0"};
  EXPECT_THAT(error_of(options), HasSubstr("--processes 0: it is 1"));
  options.processes = {"1", "2"};
  options.transports = {"bar", "zero-copy"};
  EXPECT_THAT(error_of(options), HasSubstr("--transports zero-copy: only the memory of bar"));
  options.transports = {"bar"};
  options.pipeline = "{src} ! b a ! {sink}";
  EXPECT_THAT(error_of(options), HasSubstr("has to have {sink} before {src}"));
  options.processes = {"1"};
  EXPECT_EQ(error_of(options), "");
  options.rate = 60;
  EXPECT_THAT(error_of(options), HasSubstr("paced by its source"));
  options.rate = 0;
  options.in_flight = 1;
  EXPECT_THAT(error_of(options), HasSubstr("--in-flight"));
}

TEST(ProcessesOption, SplitsALine) {
  const SplitLine parts = split("a ! {sink} leaky=oldest  {src} is-live=true ! b");
  EXPECT_EQ(parts.producer, "a ! {sink} leaky=oldest  ");
  EXPECT_EQ(parts.consumer, "{src} is-live=true ! b");
  const Case far{.frame = {}, .transport = "bar", .spin = true, .processes = 2};
  EXPECT_THAT(expand(parts.producer, far, {}, "/a \"b\"\\c/link"),
              AllOf(HasSubstr("socket-path=\"/a \\\"b\\\"\\\\c/link\" wait-for-connection=true"),
                    HasSubstr("stamps=true leaky=oldest"), Not(HasSubstr("channel"))));
  EXPECT_THAT(expand(parts.consumer, far, {}, "/x"),
              StartsWith("gpumapsrc name=latency-src socket-path=\"/x\" busy-poll=1000 is-live=true"));
}

Json case_of(const std::string& frame, unsigned processes, bool spin, std::int64_t handover_ns) {
  Outcome outcome(Case{.frame = parse_frame(frame), .transport = "bar", .spin = spin, .processes = processes}, false);
  outcome.collector.begin_round(0, 0);
  for (std::uint64_t i = 0; i < 50; ++i) {
    FrameRecord record{.sequence = i, .bytes = 1000};
    const std::int64_t begin = 1'000'000 * static_cast<std::int64_t>(i + 1);
    record.at_ns = {begin, begin + 10, begin + 20, begin + 30, 0, 0, 0, 0, 0, begin + handover_ns + 900};
    record.at_ns[static_cast<std::size_t>(Stamp::received)] = begin + 30 + handover_ns / 2;
    record.at_ns[static_cast<std::size_t>(Stamp::launched)] = handover_ns % 2 == 0 ? begin + 30 + handover_ns : 0;
    outcome.collector.add(record);
  }
  outcome.collector.end_round({}, 0);
  return to_json(outcome, 0);
}

Json report_of(Json cases) {
  Options options;
  options.processes = {"1", "2"};
  Json report{{"program", "gpumap-latency"}, {"format", 1}, {"version", "1"}, {"commit", ""}, {"stopped", ""}};
  report["machine"] = {{"device", "a"}, {"software", true}, {"driver", "b"}, {"backend", "vulkan"}, {"window_bytes", 1},
                       {"cpu", "c"},    {"cores", 2},       {"system", "d"}, {"date", "e"}};
  report["options"] = describe_options(options, {"--processes", "1,2"});
  report["across"] = compare_processes(cases);
  report["cases"] = std::move(cases);
  report["paced"] = false;
  return report;
}

TEST(ProcessesReport, ComparesWhatIsTheSameButForTheProcesses) {
  Json cases = Json::array({case_of("64B", 1, false, 40), case_of("64B", 2, false, 102), case_of("64B", 1, true, 30),
                            case_of("64B", 2, true, 26), case_of("4KiB", 2, true, 50)});
  const Json report = report_of(std::move(cases));
  const Json& across = report.at("across");
  ASSERT_EQ(across.size(), 2U) << "4KiB was measured in two alone";
  EXPECT_EQ(across[0].at("one_p50"), 40);
  EXPECT_EQ(across[0].at("two_p50"), 102);
  EXPECT_EQ(across[0].at("more_p50"), 62);
  EXPECT_EQ(across[1].at("fence"), "spin");
  EXPECT_EQ(across[1].at("more_p50"), -4);
  const std::string table = to_table(report, true);
  EXPECT_THAT(table, AllOf(HasSubstr("in one process and in two, in turns"), HasSubstr("2 processes: gpumapsink and"),
                           HasSubstr("64B, bar, sleep ")));
  EXPECT_THAT(table, HasSubstr("40 ns     40 ns    102 ns    102 ns        62 ns"));
  const std::string page = to_page(report);
  EXPECT_NE(page.find("id=\"across\""), std::string::npos);
  EXPECT_NE(page.find("<td>102 ns</td><td>102 ns</td><td>62 ns</td>"), std::string::npos);
}

TEST(ProcessesReport, ComparesNothingThatFailed) {
  Json cases = Json::array({case_of("64B", 1, false, 40), case_of("64B", 2, false, 102)});
  cases[1]["error"] = "the producer's process 7 was killed by signal 9";
  EXPECT_TRUE(compare_processes(cases).empty());
  const Json report = report_of(cases);
  EXPECT_THAT(to_table(report, true), AllOf(HasSubstr("was killed by signal 9"), Not(HasSubstr("more at P50"))));
  EXPECT_EQ(to_page(report).find("id=\"across\""), std::string::npos);
  cases[1]["error"] = "";
  cases[0]["negative_times"] = 1;
  EXPECT_TRUE(compare_processes(cases).empty());
  cases[0]["negative_times"] = 0;
  EXPECT_EQ(compare_processes(cases).size(), 1U);
}

TEST(ProcessesReport, EndsTheHandoverWhereNoKernelIs) {
  EXPECT_EQ(case_of("64B", 1, false, 41).at("times").at("handover").at("p50"), 20) << "received";
}

TEST(ProcessesReport, OfAnEarlierVersionIsReadStill) {
  Json report = report_of(Json::array({case_of("64B", 1, false, 40)}));
  report.erase("across");
  report["options"].erase("processes");
  Json& one = report["cases"][0];
  for (const char* key : {"processes", "producer_pids", "consumer_pid", "sent"}) one.erase(key);
  one["times"].erase("handover");
  EXPECT_THAT(to_table(report, false), AllOf(Not(HasSubstr("handover")), Not(HasSubstr("processes"))));
  EXPECT_EQ(to_page(report).find("handover"), std::string::npos);
}

TEST(Gate, CountsForAnotherThread) {
  for (const bool spin : {false, true}) {
    Gate gate(spin);
    constexpr std::uint64_t count = 20'000;
    std::thread other([&] {
      for (std::uint64_t i = 0; i < count; ++i) gate.arrived();
    });
    for (std::uint64_t i = 1; i <= count; ++i) gate.wait_for(i);
    EXPECT_EQ(gate.count(), count);
    other.join();
    std::thread stopper([&] { gate.stop(); });
    gate.wait_for(count + 1);
    EXPECT_TRUE(gate.stopped());
    stopper.join();
  }
}

TEST(Gate, WaitsUntilATimeOrTheEnd) {
  for (const bool spin : {false, true}) {
    Gate gate(spin);
    const std::int64_t due = gpumap::monotonic_ns() + 20'000'000;
    gate.arrived();  // which is nothing that it waits for here
    gate.wait_until(due);
    EXPECT_GE(gpumap::monotonic_ns(), due);
    gate.wait_until(due);
    std::atomic<bool> waits{false};
    std::thread waiter([&] {
      waits = true;
      gate.wait_until(gpumap::monotonic_ns() + std::int64_t{3600} * 1'000'000'000);
      EXPECT_TRUE(gate.stopped());
    });
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));  // so that it mostly sleeps by then
    gate.stop();
    waiter.join();
  }
}

TEST(Gate, CountsInAnotherProcess) {
  constexpr std::uint64_t count = 2'000;
  const SharedArrivals shared;
  SharedArrivals back;
  const pid_t child = fork();
  if (child == 0) {
    const SharedArrivals mapped(dup(shared.fd()));
    Gate there(false, &*mapped);
    Gate here(false, &*back);
    for (std::uint64_t i = 1; i <= count; ++i) {
      there.arrived();
      here.wait_for(i);
    }
    _exit(0);
  }
  ASSERT_GT(child, 0);
  Gate there(false, &*shared);
  Gate here(false, &*back);
  for (std::uint64_t i = 1; i <= count; ++i) {
    there.wait_for(i);
    here.arrived();
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(there.count(), count);
}

/// For what is sure to come, however slowly it is made.
constexpr milliseconds patience{60'000};

struct TwoLines {
  TwoLines() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    near = std::make_unique<Lines>(ends[0]);
    far = std::make_unique<Lines>(ends[1]);
  }
  std::unique_ptr<Lines> near, far;
};

TEST(Lines, CrossWhole) {
  TwoLines ends;
  ProducerReport report{.sink = {1, 2, 3, 4, "bar"}, .cpu_ns = 5, .switches = 6, .events = {}};
  std::minstd_rand random(3);
  for (int i = 0; i < 5'000; ++i) {
    report.events.push_back({.kind = Event::Kind::latency,
                             .since_ns = static_cast<std::int64_t>(random()) << 32U,
                             .at_ns = static_cast<std::int64_t>(random()),
                             .text = std::string(random() % 100, 'x') + "\n\xff"});
  }
  std::thread sender([&] {
    ends.far->send({{"live", true}});
    ends.far->send({{"report", report}});
    ends.far->finish();
  });
  EXPECT_EQ(ends.near->receive(patience).value().at("live"), true);
  ProducerReport got;
  // Larger than the socket: it comes in pieces.
  while (const auto line = ends.near->receive(patience)) got = line->at("report").get<ProducerReport>();
  sender.join();
  EXPECT_TRUE(ends.near->ended());
  EXPECT_EQ(got.sink.transport, "bar");
  EXPECT_EQ(got.sink.drops, 4U);
  EXPECT_EQ(got.switches, 6U);
  ASSERT_EQ(got.events.size(), report.events.size());
  EXPECT_EQ(got.events[77].since_ns, report.events[77].since_ns);
  EXPECT_EQ(got.events[77].kind, Event::Kind::latency);
}

TEST(Lines, TellThatNobodyIsThere) {
  TwoLines ends;
  EXPECT_FALSE(ends.near->receive(milliseconds(1)));
  EXPECT_FALSE(ends.near->ended());
  ends.far.reset();
  EXPECT_FALSE(ends.near->receive(patience));
  EXPECT_TRUE(ends.near->ended());
  ends.near->send({{"line", "a"}});  // no signal ends the test
}

TEST(Lines, CarryAJob) {
  const ProducerJob job{
      .line = "a \"b\"",
      .plan =
          {.caps = "c", .frame_bytes = 7, .frames = 8, .in_place = false, .rate = 59.94, .in_flight = 3, .spin = true},
      .held = true,
      .warmup = 9,
      .socket_folder = "/d e",
      .arrivals = 11};
  const nlohmann::json text = nlohmann::json::parse(nlohmann::json(job).dump());
  EXPECT_EQ(nlohmann::json(text.get<ProducerJob>()), nlohmann::json(job));
  EXPECT_EQ(text.get<ProducerJob>().plan.rate, 59.94);
  EXPECT_TRUE(text.get<ProducerJob>().held);
}

}  // namespace
}  // namespace latency
