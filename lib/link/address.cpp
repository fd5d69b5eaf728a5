// SPDX-License-Identifier: MIT
#include "link/address.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {

LinkAddress::LinkAddress(std::unique_ptr<State> state) : state_(std::move(state)) {}

LinkAddress::~LinkAddress() {
  if (!state_->process.here()) state_->listener.leave_file();
}

std::shared_ptr<LinkAddress> LinkAddress::take(const std::string& path, mode_t mode) {
  return std::shared_ptr<LinkAddress>(new LinkAddress(std::make_unique<State>(path, mode)));
}

const std::string& LinkAddress::path() const noexcept {
  return state_->listener.path();
}

LinkServer::Seat::Seat(const LinkServerOptions& options)
    : address_(options.address ? options.address : LinkAddress::take(options.path, options.mode)) {
  if (address_->state_->has_server.exchange(true)) {
    throw Error(ErrorCode::invalid, fmt::format("a second server at {} requested, at most one allowed: end the first",
                                                printable(address_->path())));
  }
}

LinkServer::Seat::~Seat() {
  address_->state_->has_server = false;
}

}  // namespace gpumap
