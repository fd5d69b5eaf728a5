// SPDX-License-Identifier: MIT
#include "gst/channel/new_names.hpp"

#include <glib.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace gpumap::gst {
namespace {

/// Bytes that a table takes for a name beside its letters.
constexpr std::size_t around = 64;

/// What names have cost in this process. As the names, it is never given back.
class Spent {
 public:
  bool knows(const char* name) {
    const std::lock_guard lock(mutex_);
    return names_.contains(name);
  }
  bool take(const char* name, std::size_t cost, std::optional<uid_t> user) {
    const std::lock_guard lock(mutex_);
    std::size_t& of_side = user ? of_clients_ : of_producers_;
    if (cost > NewNames::most_of_side - of_side) return false;
    if (user) {
      std::size_t& of_user = of_users_[*user];
      if (cost > NewNames::most_of_user - of_user) return false;
      of_user += cost;
    }
    of_side += cost;
    names_.insert(name);
    return true;
  }

 private:
  std::mutex mutex_;
  std::size_t of_clients_ = 0, of_producers_ = 0;
  std::map<uid_t, std::size_t> of_users_;
  std::set<std::string, std::less<>> names_;
};

Spent& spent() {
  static auto* const spent = new Spent;
  return *spent;
}

}  // namespace

bool NewNames::knows(const char* name) {
  return g_quark_try_string(name) != 0 || spent().knows(name);
}

bool NewNames::admit(const char* name) {
  const std::size_t length = std::strlen(name);
  if (length == 0) return false;  // although GLib may know the empty name
  if (knows(name)) return true;
  if (length > longest || g_utf8_validate(name, static_cast<gssize>(length), nullptr) == 0) return false;
  if (own_) return true;
  const std::size_t cost = length + around;
  if (cost > left_ || !spent().take(name, cost, user_)) {
    refused_ = true;
    return false;
  }
  left_ -= cost;
  return true;
}

bool NewNames::tells_of_refusal() {
  if (!refused_ || told_) return false;
  told_ = true;
  return true;
}

}  // namespace gpumap::gst
