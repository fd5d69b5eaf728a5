// SPDX-License-Identifier: MIT
// The socket and its file: who may take a place, who is at the other end, and that nothing blocks; and the messages,
// there and back, cut and changed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "link/socket.hpp"
#include "link/wire.hpp"
#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using link::Listener;

struct LinkSocket : testing::Test {
  TemporaryFolder folder;
  std::string path = folder.path() / "link";
};

TEST_F(LinkSocket, FileHasItsModeAndGoesWithTheServer) {
  for (const mode_t mode : {mode_t{0600}, mode_t{0660}, mode_t{0666}}) {
    {
      const Listener listener(path, mode);
      struct stat found {};
      ASSERT_EQ(lstat(path.c_str(), &found), 0);
      EXPECT_EQ(found.st_mode & 07777U, mode);
      EXPECT_TRUE(S_ISSOCK(found.st_mode));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST_F(LinkSocket, WhatADeadServerLeftIsReplaced) {
  {
    Listener dead(path, 0600);
    dead.leave_file();
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  const Listener listener(path, 0600);
  EXPECT_TRUE(link::connect_to(path));
  EXPECT_TRUE(listener.accept());
}

TEST_F(LinkSocket, WhoLivesIsNotRobbed) {
  const Listener first(path, 0600);
  const std::string text = error_text([&] { const Listener second(path, 0600); }, ErrorCode::invalid);
  EXPECT_NE(text.find("served by process " + std::to_string(getpid())), std::string::npos) << text;
  EXPECT_TRUE(link::connect_to(path));
}

TEST_F(LinkSocket, WhoLivesIsNotRobbedWithAFullQueueEither) {
  const Listener first(path, 0600);
  std::vector<UniqueFd> waiting;
  do waiting.push_back(link::connect_to(path));
  while (waiting.back());
  EXPECT_EQ(errno, EAGAIN);
  error_text([&] { const Listener second(path, 0600); }, ErrorCode::invalid);
}

// A listener that a child of the dead server still holds answers, but nobody is there. A child of fork() does not.
void serve_and_leave_a_child(const std::string& path, bool forks, bool fills_queue) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t server = fork();
  if (server == 0) {
    auto* listener = new Listener(path, 0600);
    const auto child = static_cast<pid_t>(forks ? fork() : syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (child == 0) {
      sleep(60);
      _exit(0);
    }
    listener->leave_file();
    static_cast<void>(!write(ready[1], &child, sizeof child));
    _exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  // The child has yet to come out of fork().
  EXPECT_TRUE(comes_true([&] { return static_cast<bool>(link::connect_to(path)) == !forks; })) << "it answers";
  for (int n = 0; n < 100 && fills_queue; ++n) (void)link::connect_to(path);
  EXPECT_NO_THROW(const Listener second(path, 0600));
  EXPECT_EQ(kill(child, SIGKILL), 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(LinkSocket, ADeadServersChildDoesNotKeepThePlace) {
  serve_and_leave_a_child(path, true, false);
  serve_and_leave_a_child(path, false, false);
}

// A process that was killed ends soon, and its parent may ask for it late.
TEST_F(LinkSocket, OneThatEndsKeepsThePlaceNoLonger) {
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t server = fork();
  if (server == 0) {
    auto* listener = new Listener(path, 0600);
    listener->leave_file();
    static_cast<void>(!write(ready[1], "", 1));
    usleep(100'000);
    _exit(0);
  }
  char there = 1;
  ASSERT_EQ(read(ready[0], &there, 1), 1);
  EXPECT_NO_THROW(const Listener second(path, 0600));
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  close(ready[0]);
  close(ready[1]);
}

// Each try to connect stays in its queue, which is full after 64.
TEST_F(LinkSocket, ADeadServersChildDoesNotKeepThePlaceHoweverManyTriedToConnect) {
  serve_and_leave_a_child(path, true, true);
}

TEST_F(LinkSocket, NoFileIsLeftBesideIt) {
  const auto files = [this] {
    return std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
  };
  {
    const Listener listener(path, 0600);
    EXPECT_EQ(files(), 1) << "the socket";
    error_text([&] { const Listener second(path, 0600); }, ErrorCode::invalid);
    EXPECT_EQ(files(), 1);
  }
  EXPECT_EQ(files(), 0);
}

/// As somebody else, who may write to its folder; what it says where that fails.
std::string serve_as_nobody(const std::string& path) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    std::string said;
    if (setresgid(nobody, nobody, nobody) != 0 || setresuid(nobody, nobody, nobody) != 0) said = "still root";
    try {
      if (said.empty()) const Listener listener(path, 0600);
    } catch (const std::exception& error) {
      said = error.what();
    }
    const bool told = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 256> some{};
  for (ssize_t bytes = 0; (bytes = read(ends[0], some.data(), some.size())) > 0;) {
    said.append(some.data(), static_cast<std::size_t>(bytes));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

// Who cannot remove another user's file is told whose it is, and not that the folder cannot be written to, or that a
// process which may be dead serves it.
TEST_F(LinkSocket, WhatAnotherUserLeftIsSaidToBeThatUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a second user, which only root can become";
  ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
  for (const mode_t mode : {0600, 0666}) {
    const pid_t child = fork();
    if (child == 0) {
      const Listener left(path, mode);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(std::filesystem::exists(path));
    const std::string said = serve_as_nobody(path);
    EXPECT_NE(said.find("user 0"), std::string::npos) << said;
    EXPECT_NE(said.find("have that user remove it"), std::string::npos) << said;
    ASSERT_EQ(unlink(path.c_str()), 0);
  }
}

// The folder is opened to lock it, for which it must be readable.
TEST_F(LinkSocket, AFolderThatLacksARightIsToldWithBothItNeeds) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a second user, which only root can become";
  for (const mode_t mode : {0333, 0555, 0111}) {
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    const std::string said = serve_as_nobody(path);
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_NE(said.find("let this user read and write the folder"), std::string::npos) << said;
  }
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

// Killed at any moment of its start, in a folder where other users cannot remove its files.
TEST_F(LinkSocket, AKilledProcessOfRootKeepsNobodyOut) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a second user, which only root can become";
  ASSERT_EQ(chmod(folder.path().c_str(), 01777), 0);
  for (int round = 0; round < 100; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) const Listener listener(path, 0600);
    }
    usleep(static_cast<useconds_t>(1000 + round * 10));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    unlink(path.c_str());  // the socket itself stays root's
    ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()),
              0);
    ASSERT_EQ(serve_as_nobody(path), "");
  }
}

TEST_F(LinkSocket, ASuspendedProcessThatHoldsTheFolderIsAnErrorAndADeadOneNone) {
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int held = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char locked = flock(held, LOCK_EX) == 0 ? 'y' : 'n';
    if (write(ready[1], &locked, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char locked = 0;
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  const std::string text = error_text([&] { const Listener listener(path, 0600); }, ErrorCode::invalid);
  EXPECT_NE(text.find("is locked by another process for 1 s: end that process"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(path));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const Listener listener(path, 0600);
  close(ready[0]);
  close(ready[1]);
}

// A process that may write to the folder swaps the socket for a link to another file.
TEST_F(LinkSocket, ItsModeIsGivenToNoOtherFile) {
  const std::string victim = folder.path() / "victim";
  std::ofstream(victim) << "secret";
  ASSERT_EQ(chmod(victim.c_str(), 0600), 0);
  std::atomic<bool> over{false};
  std::thread swapper([&] {
    const std::string link_to_victim = folder.path() / "swap";
    while (!over) {
      struct stat found {};
      if (lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) continue;
      if (symlink(victim.c_str(), link_to_victim.c_str()) == 0) rename(link_to_victim.c_str(), path.c_str());
    }
  });
  const mode_t before = umask(0077);
  for (int round = 0; round < 300; ++round) {
    try {
      const Listener listener(path, 0666);
    } catch (const Error&) {
    }
    unlink(path.c_str());
  }
  umask(before);
  over = true;
  swapper.join();
  struct stat found {};
  ASSERT_EQ(stat(victim.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0600U);
}

TEST_F(LinkSocket, PathsInErrorsCanBePrinted) {
  const std::string text =
      error_text([&] { const Listener listener(std::string(folder.path() / "no\x1b[2J" / "link\xff"), 0600); },
                 ErrorCode::not_found);
  EXPECT_NE(text.find("no\\x1b[2J/link\\xff"), std::string::npos) << text;
}

TEST_F(LinkSocket, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path) << "a file of somebody's";
  error_text([&] { const Listener listener(path, 0600); }, ErrorCode::invalid);
  EXPECT_EQ(std::filesystem::file_size(path), 20U);
  error_text([&] { const Listener listener(std::string(108, 'x'), 0600); }, ErrorCode::invalid);
  error_text([&] { const Listener listener("", 0600); }, ErrorCode::invalid);
  error_text([&] { const Listener listener(folder.path() / "none" / "link", 0600); }, ErrorCode::not_found);
}

TEST_F(LinkSocket, OneOfManyThatStartAtOnceServes) {
  for (int round = 0; round < 20; ++round) {
    {
      Listener dead(path, 0600);
      dead.leave_file();
    }
    std::atomic<int> serving{0};
    std::atomic<bool> go{false};
    std::vector<std::unique_ptr<Listener>> winners(4);
    std::vector<std::thread> all;
    for (auto& winner : winners) {
      all.emplace_back([&] {
        while (!go) std::this_thread::yield();
        try {
          winner = std::make_unique<Listener>(path, 0600);
          ++serving;
        } catch (const Error&) {
        }
      });
    }
    go = true;
    for (auto& one : all) one.join();
    EXPECT_EQ(serving, 1);
    EXPECT_TRUE(link::connect_to(path));
  }
}

TEST_F(LinkSocket, KernelSaysWhoIsThere) {
  const Listener listener(path, 0600);
  const UniqueFd client = link::connect_to(path);
  const UniqueFd server = listener.accept();
  for (const int end : {client.get(), server.get()}) {
    EXPECT_EQ(link::peer_of(end).pid, getpid());
    EXPECT_EQ(link::peer_of(end).uid, geteuid());
  }
  EXPECT_TRUE(link::is_allowed({1, geteuid()}, {}));
  EXPECT_FALSE(link::is_allowed({1, geteuid() + 1}, {geteuid() + 2}));
  EXPECT_TRUE(link::is_allowed({1, geteuid() + 1}, {geteuid() + 1}));
}

TEST_F(LinkSocket, NothingBlocksWhateverThePeerDoes) {
  const Listener listener(path, 0600);
  const UniqueFd client = link::connect_to(path);
  const UniqueFd server = listener.accept();
  std::vector<std::byte> buffer(100);
  std::size_t bytes = 0;
  // The flag is the open file's, which a peer with a copy of the descriptor could change.
  for (const int end : {client.get(), server.get()}) ASSERT_EQ(fcntl(end, F_SETFL, 0), 0);
  EXPECT_EQ(link::receive_message(server.get(), buffer, bytes), link::Received::nothing);
  const link::Bytes message(10'000);
  link::Sent sent = link::Sent::ok;
  for (int n = 0; n < 10'000 && sent == link::Sent::ok; ++n) sent = link::send_message(client.get(), message);
  EXPECT_EQ(sent, link::Sent::full);
  EXPECT_EQ(link::receive_message(server.get(), buffer, bytes), link::Received::too_long);
}

TEST_F(LinkSocket, ALongMessageThatNeverFitsIsNoLostConnection) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  const UniqueFd client(ends[0]);
  const UniqueFd server(ends[1]);
  constexpr int small = 4096;
  ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  const link::Bytes message(link::largest_message);
  EXPECT_EQ(link::send_message(client.get(), message), link::Sent::too_long);
  EXPECT_EQ(link::send_message(client.get(), link::Bytes(5)), link::Sent::ok);
  // As the sockets of the link have it, whatever net.core.wmem_default is.
  EXPECT_GT(link::make_room(client.get()), static_cast<int>(link::largest_message));
  EXPECT_EQ(link::send_message(client.get(), message), link::Sent::ok);
}

TEST_F(LinkSocket, LastWordsAreHeardThoughSomethingWasUnread) {
  const Listener listener(path, 0600);
  const UniqueFd client = link::connect_to(path);
  {
    const UniqueFd server = listener.accept();
    EXPECT_EQ(link::send_message(client.get(), link::Bytes(5)), link::Sent::ok);
    EXPECT_EQ(link::send_message(server.get(), link::Bytes(7)), link::Sent::ok);
  }
  std::vector<std::byte> buffer(100);
  std::size_t bytes = 0;
  EXPECT_EQ(link::receive_message(client.get(), buffer, bytes), link::Received::message);
  EXPECT_EQ(bytes, 7U);
  EXPECT_EQ(link::receive_message(client.get(), buffer, bytes), link::Received::gone);
  EXPECT_EQ(link::send_message(client.get(), link::Bytes(5)), link::Sent::gone);
}

link::Welcome some_welcome() {
  link::Welcome welcome;
  welcome.client = 3;
  welcome.slots = 7;
  welcome.slot_bytes = 5000;
  welcome.slot_stride = 8192;
  welcome.memory.kind = static_cast<std::uint32_t>(link::MemoryKind::memfd);
  welcome.memory.bytes = welcome.memory.allocation_bytes = std::uint64_t{7} * 8192;
  return welcome;
}

link::Bytes some_report() {
  link::RingFigures ring;
  ring.slots = 4;
  ring.slot_bytes = 1000;
  link::ClientFigures client;
  client.index = 2;
  client.name = link::to_name("cam");
  return link::encode_report(9, ring, std::array{client});
}

std::vector<link::Bytes> one_of_each() {
  link::Hello hello;
  hello.leak = 2;
  hello.name = {'c', 'a', 'm'};
  const link::Bytes payload{std::byte{1}, std::byte{2}, std::byte{3}};
  return {link::encode(0, hello),
          link::encode(9, some_welcome()),
          link::encode(9, link::Look{}),
          link::encode_reason(9, link::MessageType::refuse, link::Why::full, "no\nroom"),
          link::encode_reason(9, link::MessageType::bye, link::Why::lied, std::string(1000, 'x')),
          link::encode_data(9, {4, 5}, payload),
          link::encode(9, link::Observe{}),
          some_report()};
}

TEST(LinkWire, WhatIsEncodedIsParsed) {
  const auto all = one_of_each();
  for (std::size_t n = 0; n < all.size(); ++n) {
    const auto message = link::parse(all[n]);
    ASSERT_TRUE(message) << n;
    EXPECT_EQ(message->generation, n == 0 ? 0U : 9U);
  }
  EXPECT_STREQ(std::get<link::Hello>(link::parse(all[0])->body).name.data(), "cam");
  EXPECT_EQ(std::get<link::Welcome>(link::parse(all[1])->body).slot_stride, 8192U);
  EXPECT_EQ(std::get<link::Refuse>(link::parse(all[3])->body).text, "noroom") << "nothing that moves a cursor";
  EXPECT_EQ(std::get<link::Bye>(link::parse(all[4])->body).text.size(), link::text_bytes);
  const auto data = link::parse(all[5]);
  EXPECT_EQ(std::get<link::Data>(data->body).head.before, 5U);
  EXPECT_EQ(std::get<link::Data>(data->body).payload.size(), 3U);
}

TEST(LinkWire, WhatIsCutOrTooLongIsNoMessage) {
  for (const link::Bytes& whole : one_of_each()) {
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      EXPECT_FALSE(link::parse(std::span(whole).first(bytes))) << bytes << " of " << whole.size();
    }
    link::Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(link::parse(longer));
  }
  EXPECT_FALSE(link::parse(link::Bytes(link::largest_message + 1)));
}

TEST(LinkWire, FiguresThatCannotBeAreNoWelcome) {
  const auto refused = [](auto change) {
    link::Welcome welcome = some_welcome();
    change(welcome);
    return !link::parse(link::encode(9, welcome));
  };
  EXPECT_FALSE(refused([](link::Welcome&) {}));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.client = 16; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.slots = 1; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.slot_bytes = 0; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.slot_bytes = 8193; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.slot_stride = 8191; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.slot_stride = std::uint64_t{1} << 62U; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.memory.kind = 3; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.memory.bytes -= 1; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.memory.base = 1; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.memory.base = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](link::Welcome& one) { one.memory.memory_type = 32; }));
}

TEST(LinkWire, NamesEndAndCanBePrinted) {
  const auto refused = [](const std::string& name) {
    link::Hello hello;
    std::copy(name.begin(), name.end(), hello.name.begin());
    return !link::parse(link::encode(0, hello));
  };
  EXPECT_FALSE(refused(""));
  EXPECT_FALSE(refused("Grüße"));
  EXPECT_FALSE(refused(std::string(63, 'x')));
  EXPECT_TRUE(refused(std::string(64, 'x')));
  EXPECT_TRUE(refused("\x1b[2J"));
  EXPECT_TRUE(refused(std::string("a\0b", 3))) << "something behind its end";
}

}  // namespace
}  // namespace gpumap
