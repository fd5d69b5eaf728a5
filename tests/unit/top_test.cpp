// SPDX-License-Identifier: MIT
// gpumap-top: what two looks make of the figures, what may reach a terminal, and the program itself beside real servers
// and clients: its JSON, its table, a server that is killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "link_child.hpp"
#include "top_rows.hpp"

namespace gpumap::top {
namespace {

using namespace test;  // NOLINT: the tests' own words
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// --- Rows

LinkSight sight(std::uint64_t frames, std::int64_t at_ns, std::uint64_t generation = 1) {
  LinkSight one;
  one.path = "/tmp/camera";
  LinkReport& report = one.report.emplace();
  report.generation = generation;
  report.pid = 4711;
  report.program = "capture";
  report.at_ns = at_ns;
  report.transport = Transport::pinned;
  report.slots = 8;
  report.slot_bytes = 1003;
  report.frames = frames;
  report.bytes = frames * 1003;
  LinkClientReport& client = report.clients.emplace_back();
  client.who.index = 3;
  client.who.connection = 5;
  client.who.name = "infer";
  client.who.leak = LinkLeak::newest;
  client.who.shown = frames / 2;
  client.timed = frames / 4;
  client.times[LinkTimeSteps::bucket_of(70'000)] = static_cast<std::uint32_t>(frames / 4);
  return one;
}

TEST(TopRows, RatesAreOfTheTimeBetweenTheServersFigures) {
  const auto rows = make_rows(std::vector{sight(400, 5'000'000'000)}, {sight(1200, 7'000'000'000)});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].frames_per_s.value(), 400);
  EXPECT_DOUBLE_EQ(rows[0].bytes_per_s.value(), 400 * 1003);
  EXPECT_EQ(rows[0].frame_bytes, 1003U);
  ASSERT_EQ(rows[0].clients.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].clients[0].frames_per_s.value(), 200);
  EXPECT_NEAR(rows[0].clients[0].latency.value().p50_us, 70, 70 / 16.0);
}

TEST(TopRows, LatencyIsOfTheFramesBetweenTheLooks) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> around(std::log(300e3), 1.7);
  for (const std::size_t frames : {1U, 2U, 99U, 100U, 101U, 5003U}) {
    LinkSight before = sight(10, 1'000'000'000);
    // Much before, which is forgotten; and counts that are about to begin anew.
    for (std::uint32_t& count : before.report->clients[0].times)
      count = static_cast<std::uint32_t>(random() | ~0xffULL);
    LinkSight now = before;
    now.report->at_ns = 2'000'000'000;
    std::vector<double> times;
    while (times.size() < frames) times.push_back(std::floor(around(random)));
    for (const double time : times) {
      ++now.report->clients[0].times[LinkTimeSteps::bucket_of(static_cast<std::uint64_t>(time))];
    }
    std::ranges::sort(times);
    const auto rank = [&](double share) {
      return times[static_cast<std::size_t>(std::ceil(share * static_cast<double>(frames))) - 1] * 1e-3;
    };
    const Latency latency = make_rows(std::vector{before}, {now})[0].clients[0].latency.value();
    EXPECT_NEAR(latency.p50_us, rank(0.5), rank(0.5) / 16) << frames;
    EXPECT_NEAR(latency.p99_us, rank(0.99), rank(0.99) / 16) << frames;
    EXPECT_NEAR(latency.max_us, times.back() * 1e-3, times.back() * 1e-3 / 16) << frames;
    EXPECT_FALSE(make_rows(std::vector{now}, {now})[0].clients[0].latency) << "none came back";
  }
}

TEST(TopRows, WhatWasNotThereBeforeHasNoRates) {
  const auto none = [](const std::vector<RingRow>& rows) {
    return !rows.at(0).frames_per_s && !rows[0].clients.at(0).frames_per_s && rows[0].frame_bytes == 1003;
  };
  EXPECT_TRUE(none(make_rows({}, {sight(1200, 7'000'000'000)})));
  EXPECT_TRUE(none(make_rows(std::vector{sight(10, 5'000'000'000, 2)}, {sight(1200, 7'000'000'000)})))
      << "another ring";
  EXPECT_TRUE(none(make_rows(std::vector{sight(10, 7'000'000'000)}, {sight(1200, 7'000'000'000)}))) << "the same look";
  LinkSight other = sight(10, 5'000'000'000);
  other.report->clients[0].who.connection = 4;
  const auto rows = make_rows(std::vector{other}, {sight(1200, 7'000'000'000)});
  EXPECT_TRUE(rows[0].frames_per_s);
  EXPECT_FALSE(rows[0].clients[0].frames_per_s) << "another client in the same place";
}

TEST(TopRows, AServerMaySayAnything) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    LinkSight before = sight(random(), static_cast<std::int64_t>(random()));
    LinkSight now = sight(random(), static_cast<std::int64_t>(random()));
    before.report->bytes = random();
    for (std::uint32_t& count : now.report->clients[0].times) count = static_cast<std::uint32_t>(random());
    now.report->clients[0].lag = random();
    now.report->clients[0].lag_ns = static_cast<std::int64_t>(random());
    const auto rows = make_rows(std::vector{before}, {now});
    EXPECT_GE(rows[0].frames_per_s.value_or(0), 0);
    EXPECT_TRUE(json::accept(to_json(rows, 1)));
    EXPECT_FALSE(to_table(rows).empty());
  }
}

TEST(TopTable, NothingMovesTheTerminalsCursor) {
  EXPECT_EQ(visible("Grüße 日本 \U0001f3a5"), "Grüße 日本 \U0001f3a5");
  EXPECT_EQ(visible("a\x1b[2J\n\x7f"), "a?[2J??");
  EXPECT_EQ(visible("\xc2\x9b"
                    "2J"),
            "??2J")
      << "CSI as one character";
  EXPECT_EQ(visible("\xff\xc3"), "??");
  // Longer ways to write ESC and CSI, a surrogate, more than there is: what a terminal makes of them is its business.
  for (const char* const one : {"\xc0\x9b", "\xe0\x80\x9b", "\xe0\x82\x9b", "\xf0\x80\x80\x9b", "\xed\xa0\x80",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xe2\x28\xa1"}) {
    const std::string shown = visible(one);
    EXPECT_EQ(shown.find_first_not_of("?("), std::string::npos) << shown;
  }
  for (const char* const one :
       {"\u00a0", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"}) {
    EXPECT_EQ(visible(one), one);
  }
  LinkSight bad = sight(10, 1);
  bad.path = "/tmp/\x1b[2J\xff";
  bad.report->program = "\x1b]0;title\a";
  bad.report->clients[0].who.name = "\xc2\x9bx";
  LinkSight gone;
  gone.path = "/tmp/x";
  gone.trouble = "\x1b[31m";
  bad.report->clients.push_back(bad.report->clients[0]);
  bad.report->clients[1].who.name = "\x7f\xe0\x80\x9b";
  const auto rows = make_rows({}, {bad, gone});
  const std::string table = to_table(rows);
  for (const char one : table) EXPECT_TRUE(one == '\n' || static_cast<unsigned char>(one) >= 0x20) << table;
  EXPECT_THAT(table, Not(HasSubstr("\xc2\x9b")));
  const std::string all = to_json(rows, 1);
  for (const char one : all) EXPECT_TRUE(one == '\n' || (one >= 0x20 && one < 0x7f)) << all;
  EXPECT_EQ(json::parse(all).at("rings").at(0).at("clients").at(0).at("name"), "\xc2\x9bx")
      << "a reader gets what it is";
}

TEST(TopTable, FitsIntoTheWindow) {
  const auto rows = make_rows(std::vector{sight(400, 5'000'000'000)}, {sight(1200, 7'000'000'000)});
  const std::string table = to_table(rows);
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_THAT(to_table({}), HasSubstr("no ring of this user"));
}

// --- The program

std::string program() {
  const char* const named = std::getenv("GPUMAP_TOP");
  if (named != nullptr) return named;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../lib/tools/gpumap-top";
}

struct Said {
  std::string text;
  int status = -1;
};
Said shell(const std::string& command) {
  Said said;
  FILE* const pipe = popen(command.c_str(), "re");
  EXPECT_NE(pipe, nullptr);
  char part[4096];
  while (const std::size_t bytes = fread(part, 1, sizeof part, pipe)) said.text.append(part, bytes);
  const int status = pclose(pipe);
  said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return said;
}
Said run(const std::string& args) {
  return shell(program() + " " + args + " 2>&1");
}
json look(const std::string& args) {
  const Said said = run("--json --interval 0.3 " + args);
  EXPECT_EQ(said.status, 0) << said.text;
  return json::parse(said.text);
}
json ring_of(const json& all, const std::string& path) {
  for (const json& ring : all.at("rings")) {
    if (ring.at("path") == path) return ring;
  }
  return nullptr;
}

/// Sends frames to two clients of different policies: one takes all of them, the other none.
struct Busy : Served {
  Busy() : Served(8), quick(consumer(LinkLeak::no, "quick")), slow(consumer(LinkLeak::oldest, "slow")) {
    frames = std::thread([this] {
      while (!done) {
        if (send() == RingStatus::ok && next_of(*quick) != "closed") ++sent;
        std::this_thread::sleep_for(1ms);
      }
    });
    comes_true([&] { return sent > 20; });
  }
  ~Busy() {
    done = true;
    frames.join();
  }
  std::unique_ptr<LinkConsumer> quick, slow;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> sent{0};
  std::thread frames;
};

TEST(Top, JsonTellsOfAServerAndItsClients) {
  Busy busy;
  const std::uint64_t least = busy.sent;
  json all;
  // On a busy machine the server, or who sends the frames, may be silent for as long as a look takes.
  ASSERT_TRUE(comes_true([&] {
    all = look("");
    const json ring = ring_of(all, busy.path);
    return ring.contains("frames_per_s") && ring.at("frames_per_s").is_number() && ring.at("frames_per_s") > 0;
  }));
  const std::uint64_t most = busy.sent + 1;
  EXPECT_EQ(all.at("version"), GPUMAP_VERSION);
  EXPECT_EQ(all.at("interval_s"), 0.3);
  const json ring = ring_of(all, busy.path);
  ASSERT_TRUE(ring.is_object()) << all.dump(2);
  EXPECT_EQ(ring.at("pid"), getpid());
  EXPECT_EQ(ring.at("program"), program_invocation_short_name);
  EXPECT_EQ(ring.at("transport"), "zero-copy");
  EXPECT_EQ(ring.at("slots"), 8);
  EXPECT_EQ(ring.at("slot_bytes"), 1000);
  EXPECT_EQ(ring.at("frame_bytes"), 1000);
  EXPECT_GE(ring.at("frames"), least);
  EXPECT_LE(ring.at("frames"), most);
  EXPECT_LE(ring.at("frames_per_s"), 1010);
  EXPECT_NEAR(ring.at("bytes_per_s").get<double>(), 1000 * ring.at("frames_per_s").get<double>(), 0.001);
  EXPECT_EQ(ring.at("stamps"), false);
  EXPECT_EQ(ring.at("drops"), 0);
  EXPECT_EQ(ring.at("unseen"), 0);
  const json& clients = ring.at("clients");
  ASSERT_EQ(clients.size(), 2U);
  EXPECT_EQ(clients[0].at("name"), "quick");
  EXPECT_EQ(clients[0].at("leaky"), "no");
  EXPECT_EQ(clients[0].at("pid"), getpid());
  EXPECT_EQ(clients[0].at("missed"), 0);
  EXPECT_NEAR(clients[0].at("frames_per_s").get<double>(), ring.at("frames_per_s").get<double>(), 20);
  for (const char* const figure : {"latency_p50_us", "latency_p99_us", "latency_max_us"}) {
    EXPECT_TRUE(clients[0].at(figure).is_null()) << "without stamps";
  }
  EXPECT_EQ(clients[1].at("index"), 1);
  EXPECT_EQ(clients[1].at("name"), "slow");
  EXPECT_EQ(clients[1].at("leaky"), "oldest");
  // Of its share of 6 slots it has as many as the other one leaves it, and takes none.
  const int slots = clients[1].at("slots");
  EXPECT_GE(slots, 3);
  EXPECT_LE(slots, 6);
  EXPECT_GE(ring.at("with_clients"), slots);
  EXPECT_EQ(clients[1].at("frames"), slots);
  EXPECT_GE(clients[1].at("lag_frames"), slots);
  EXPECT_GT(clients[1].at("lag_ms"), 0);
  EXPECT_GT(clients[1].at("missed"), 10);
}

TEST(Top, TellsLatenciesOfTheLastInterval) {
  Busy busy;
  busy.ring->set_stamping(true);
  json client;
  ASSERT_TRUE(comes_true([&] {
    const json ring = ring_of(look(busy.path), busy.path);
    if (!ring.contains("clients")) return false;
    client = ring.at("clients").at(0);
    return client.at("latency_p50_us").is_number();
  }));
  EXPECT_GT(client.at("latency_p50_us"), 0);
  EXPECT_LE(client.at("latency_p50_us"), client.at("latency_p99_us"));
  EXPECT_LE(client.at("latency_p99_us"), client.at("latency_max_us"));
  EXPECT_TRUE(comes_true(
      [&] { return run("--once --interval 0.3 " + busy.path).text.find("     latency: P50 ") != std::string::npos; }));
}

TEST(Top, TableIsPlainText) {
  Busy busy;
  Said once;
  EXPECT_TRUE(comes_true([&] {
    once = run("--once --interval 0.1 " + busy.path);
    return once.text.find("1 ring, 2 clients, every 0.1 s") != std::string::npos;
  }));
  EXPECT_EQ(once.status, 0);
  EXPECT_THAT(once.text, HasSubstr(busy.path));
  EXPECT_THAT(once.text, HasSubstr(" slow "));
  EXPECT_THAT(once.text, Not(HasSubstr("\x1b")));
  const std::string pages = busy.folder.path() / "pages";
  const Said twice = shell(program() + " --interval 0.1 " + busy.path + " > " + pages +
                           " & for turn in $(seq 1200); do [ $(grep -c 'every 0.1 s' " + pages +
                           ") -ge 2 ] && break; sleep 0.05; done; kill $!; wait $!; cat " + pages);
  const std::size_t first = twice.text.find("1 ring, ");
  EXPECT_NE(first, std::string::npos) << twice.text;
  EXPECT_NE(twice.text.find("1 ring, ", first + 1), std::string::npos) << twice.text;
}

TEST(Top, EndsThoughNobodyReadsWhatItSays) {
  const Served served(4);
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  // More than the pipe holds on one page.
  std::vector<std::string> words{program(), "--interval", "0.1"};
  words.insert(words.end(), 1000, served.path);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, pipe[1], STDOUT_FILENO);
  pid_t pid = -1;
  ASSERT_EQ(posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&files);
  close(pipe[1]);
  EXPECT_TRUE(comes_true([&] {
    int bytes = 0;
    return ioctl(pipe[0], FIONREAD, &bytes) == 0 && bytes >= fcntl(pipe[0], F_GETPIPE_SZ) - 4096;
  }));
  kill(pid, SIGTERM);
  int status = 0;
  const bool ended = comes_true([&] { return waitpid(pid, &status, WNOHANG) == pid; });
  close(pipe[0]);
  EXPECT_TRUE(ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  if (ended) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(Top, AKilledServerIsGoneUnlessItIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  Child server({"produce", path, "1", "leased", "1000000"});  // waits for a client
  json ring;
  ASSERT_TRUE(comes_true([&] {
    ring = ring_of(look(""), path);
    return ring.contains("pid");
  }));
  EXPECT_EQ(ring.at("pid"), server.pid());
  server.signal(SIGKILL);
  server.wait();
  EXPECT_TRUE(ring_of(look(""), path).is_null());
  EXPECT_EQ(ring_of(json::parse(run("--json --interval 0.3 " + path).text), path).at("trouble"), "Connection refused");
  for (const char* const options : {"--once", "--json", "--once --json"}) {
    const Said said = run(std::string(options) + " --interval 0.1 " + path);
    EXPECT_THAT(said.text, HasSubstr("Connection refused"));
    EXPECT_EQ(said.status, 1) << options;
  }
  EXPECT_EQ(run("--once --interval 0.1").status, 0) << "nothing was named";
}

TEST(Top, WhatItIsAskedWronglyItSays) {
  EXPECT_NE(run("--interval 0").status, 0);
  EXPECT_NE(shell("timeout 20 " + program() + " --once --interval nan 2>&1").status % 124, 0) << "124: it never ends";
  EXPECT_NE(run("--nonsense").status, 0);
  EXPECT_EQ(run("--version").text, "gpumap-top " GPUMAP_VERSION "\n");
  const Said help = run("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* const word : {"--interval", "--once", "--json", "latency", "P50", "MISSED", "UNSEEN"}) {
    EXPECT_THAT(help.text, HasSubstr(word));
  }
}

TEST(Top, WhatCannotBeWrittenIsAnError) {
  for (const char* const what : {"--json", "--once", ""}) {
    const std::string args = std::string(what) + " --interval 0.1 /nowhere";
    EXPECT_EQ(run(args + " > /dev/full").status, 1) << "nor can the error";
    const Said said = shell(program() + " " + args + " 2>&1 > /dev/full");
    EXPECT_EQ(said.status, 1);
    EXPECT_THAT(said.text, HasSubstr("No space left"));
  }
}

}  // namespace
}  // namespace gpumap::top
