// SPDX-License-Identifier: MIT
// How servers are found: in tables that are made up, and in the kernel's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "link/server_discovery.hpp"
#include "link_child.hpp"
#include "link_observe.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> paths_in(const std::string& table, uid_t user = 1000) {
  std::vector<std::string> paths;
  for (const auto& place : link::marked_servers(table, user))
    paths.push_back(std::to_string(place.pid) + " " + place.path);
  return paths;
}

constexpr auto table =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01    17 /run/user/1000/second\n"
    "0000000092a2618a: 00000003 00000000 00000000 0001 03 1334039\n"
    "00000000dc3b7be2: 00000002 00000000 00000000 0005 01 18 @gpumap-link/1000/4711/17/8ab\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 1352473 /tmp/a camera\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 1352474 @gpumap-link/1000/42/1352473/ffffffffffffffff\n"
    // Of another user, a server of a foreign kind, and marks of what does not listen, is no SEQPACKET or is abstract.
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 30 /tmp/theirs\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 31 @gpumap-link/1001/43/30/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 40 /tmp/foreign\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 41 @gpumap-link/1000/44/99/1\n"
    "00000000abe11fd7: 00000003 00000000 00000000 0005 03 50 /tmp/connected\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 51 @gpumap-link/1000/44/50/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0001 01 60 /tmp/stream\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 61 @gpumap-link/1000/44/60/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 70 @abstract\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 71 @gpumap-link/1000/44/70/1\n"
    // A listener that calls itself a mark is none.
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 81 @gpumap-link/1000/44/40/1\n";

TEST(LinkPlaces, OnlyMarkedListenersOfTheUser) {
  EXPECT_EQ(paths_in(table), (std::vector<std::string>{"4711 /run/user/1000/second", "42 /tmp/a camera"}));
  EXPECT_EQ(paths_in(table, 1001), (std::vector<std::string>{"43 /tmp/theirs"}));
  EXPECT_TRUE(paths_in(table, 0).empty());
  EXPECT_TRUE(paths_in("").empty());
}

TEST(LinkPlaces, MarksThatMakeNoSenseAreLeftOut) {
  for (const char* const mark : {"@gpumap-link/1000/42/17", "@gpumap-link/1000/42/17/", "@gpumap-link/1000/42/17/1x",
                                 "@gpumap-link/1000/-1/17/1", "@gpumap-link/1000/0/17/1", "@gpumap-link/1000/42/0x17/1",
                                 "@gpumap-link/1000//17/1", "@gpumap-link/", "@gpumap-link/1000/42/17/1/2",
                                 "@gpumap-link/1000/42/99999999999999999999/1", "gpumap-link/1000/42/17/1"}) {
    const std::string lines = "0: 2 0 00010000 0005 01 17 /tmp/here\n0: 2 0 00000000 0005 01 18 ";
    EXPECT_TRUE(paths_in(lines + mark + "\n").empty()) << mark;
    EXPECT_EQ(paths_in(lines + "@gpumap-link/1000/42/17/1\n").size(), 1U);
  }
}

TEST(LinkPlaces, TablesThatAreCutAndChangedDoNoHarm) {
  std::mt19937 random(1);
  const std::string whole = table;
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) EXPECT_LE(paths_in(whole.substr(0, bytes)).size(), 2U);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = whole;
    for (int n = 0; n < 5; ++n) changed[random() % changed.size()] = static_cast<char>(random());
    EXPECT_LE(paths_in(changed).size(), 5U);
  }
}

TEST(LinkPlaces, AServerIsFoundWhileItServes) {
  std::string path;
  {
    const Served served(4);
    path = served.path;
    EXPECT_THAT(find_links(), Contains(path));
    const Served other(3);
    EXPECT_THAT(find_links(), Contains(path));
    EXPECT_THAT(find_links(), Contains(other.path));
  }
  EXPECT_THAT(find_links(), Not(Contains(path)));
}

TEST(LinkPlaces, ARelativePathIsFoundFromElsewhere) {
  const TemporaryFolder folder;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  {
    const auto server = LinkServer::serve(link_ring(2), {.path = "in-the-folder"});
    const std::string path = std::filesystem::canonical(folder.path()) / "in-the-folder";
    EXPECT_THAT(find_links(), Contains(path));
    EXPECT_EQ(report_of(path).generation, server->generation());
  }
  std::filesystem::current_path(here);
}

TEST(LinkPlaces, AKilledServerIsNotFoundAndSaysSoByItsPath) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  Child server({"produce", path, "1", "leased", "1000000"});  // waits for a client
  ASSERT_TRUE(comes_true([&] { return observe(path).report.has_value(); }));
  EXPECT_THAT(find_links(), Contains(path));
  const LinkReport report = report_of(path);
  EXPECT_EQ(report.pid, server.pid());
  EXPECT_EQ(report.program, "link_peer");
  server.signal(SIGSTOP);
  const std::string silent = "process " + std::to_string(server.pid()) + " did not answer: it is stopped, or busy";
  EXPECT_TRUE(comes_true([&] { return observe(path, 50ms).trouble == silent; }));
  server.signal(SIGKILL);
  EXPECT_EQ(server.wait(), "signal 9");
  EXPECT_THAT(find_links(), Not(Contains(path)));
  EXPECT_TRUE(std::filesystem::exists(path)) << "what it left";
  EXPECT_EQ(observe(path).trouble, "Connection refused");
  EXPECT_EQ(observe(folder.path() / "none").trouble, "No such file or directory");
  EXPECT_THAT(observe(std::string(108, 'x')).trouble, HasSubstr("choose a shorter one"));
}

}  // namespace
}  // namespace gpumap
