// SPDX-License-Identifier: MIT
// A path that is taken before there is a ring: who connects waits, nobody else gets it, one server follows another.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

struct AddressOfALink : testing::Test {
  [[nodiscard]] std::unique_ptr<LinkServer> serve(const std::shared_ptr<Ring>& ring) const {
    LinkServerOptions options;
    options.address = address;
    return LinkServer::serve(ring, std::move(options));
  }
  [[nodiscard]] std::future<std::unique_ptr<LinkConsumer>> connect() const {
    return std::async(std::launch::async, [path = path] {
      LinkConsumerOptions options;
      options.path = path;
      options.leak = LinkLeak::no;
      options.patience = patience;
      return LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
    });
  }

  TemporaryFolder folder;
  std::string path = folder.path() / "link";
  std::shared_ptr<LinkAddress> address = LinkAddress::take(path);
};

TEST_F(AddressOfALink, IsNobodyElsesFromTheBeginning) {
  EXPECT_EQ(address->path(), path);
  struct stat found {};
  ASSERT_EQ(lstat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0600U);
  const std::string text = error_text([&] { (void)LinkAddress::take(path); }, ErrorCode::invalid);
  EXPECT_NE(text.find("served by process " + std::to_string(getpid())), std::string::npos) << text;
  LinkServerOptions options;
  options.path = path;
  error_text([&] { (void)LinkServer::serve(link_ring(2), options); }, ErrorCode::invalid);
  address.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_NO_THROW((void)LinkServer::serve(link_ring(2), options));
}

TEST_F(AddressOfALink, WhoConnectsBeforeThereIsARingMissesNothing) {
  std::vector<std::future<std::unique_ptr<LinkConsumer>>> coming;
  for (int n = 0; n < 5; ++n) coming.push_back(connect());
  for (auto& one : coming) EXPECT_EQ(one.wait_for(50ms), std::future_status::timeout) << "nobody answers yet";
  const auto ring = link_ring(3);
  const auto server = serve(ring);
  EXPECT_EQ(server->path(), path);
  std::vector<std::unique_ptr<LinkConsumer>> all;
  for (auto& one : coming) all.push_back(one.get());
  for (std::uint64_t n = 0; n < 20; ++n) {
    ASSERT_EQ(send_frame(*server, *ring, n), RingStatus::ok);
    for (const auto& one : all) EXPECT_EQ(next_of(*one), std::to_string(n));
  }
}

TEST_F(AddressOfALink, OneServerFollowsAnother) {
  const auto first_ring = link_ring(2);
  auto first = serve(first_ring);
  const std::string text = error_text([&] { (void)serve(link_ring(2)); }, ErrorCode::invalid);
  EXPECT_NE(text.find("second server"), std::string::npos) << text;
  auto consumer = connect().get();
  EXPECT_EQ(send_frame(*first, *first_ring, 7), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "7");
  first->announce_successor();
  first.reset();
  EXPECT_EQ(next_of(*consumer), "closed");
  EXPECT_TRUE(consumer->moved());
  EXPECT_TRUE(std::filesystem::exists(path)) << "others could take it";
  auto again = connect();
  const auto second_ring = link_ring(4);
  const auto second = serve(second_ring);
  consumer = again.get();
  EXPECT_EQ(consumer->ring()->slots(), 4U);
  EXPECT_EQ(send_frame(*second, *second_ring, 8), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "8");
}

TEST_F(AddressOfALink, WhoGaveUpIsInNobodysWay) {
  for (int n = 0; n < 40; ++n) {
    LinkConsumerOptions options;
    options.path = path;
    std::atomic<bool> cancel{true};
    options.cancel = &cancel;
    error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::io);
  }
  const auto ring = link_ring(2);
  const auto server = serve(ring);
  const auto consumer = connect().get();
  EXPECT_EQ(send_frame(*server, *ring, 1), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "1");
  EXPECT_TRUE(comes_true([&] { return server->clients().size() == 1; }));
}

TEST_F(AddressOfALink, IsLeftAloneByAChildOfFork) {
  const pid_t child = fork();
  if (child == 0) {
    address.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  const auto server = serve(link_ring(2));
  EXPECT_NE(connect().get(), nullptr);
}

}  // namespace
}  // namespace gpumap
