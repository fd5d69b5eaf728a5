// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>

#include "gpumap/link.hpp"
#include "link/socket.hpp"
#include "own_process.hpp"

namespace gpumap {

struct LinkAddress::State {
  State(const std::string& path, mode_t mode) : listener(path, mode) {}
  const OwnProcess process;
  link::Listener listener;
  std::atomic<bool> has_server{false};
};

/// A server at its address: its own, or one that was taken before. Throws what LinkServer::serve() says.
class LinkServer::Seat {
 public:
  explicit Seat(const LinkServerOptions& options);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  [[nodiscard]] link::Listener& listener() const noexcept { return address_->state_->listener; }

 private:
  const std::shared_ptr<LinkAddress> address_;
};

}  // namespace gpumap
