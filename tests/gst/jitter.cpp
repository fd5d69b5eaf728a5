// SPDX-License-Identifier: MIT
// Preloaded into a test (LD_PRELOAD), this makes threads late: at a lock in so many they sleep for a random time, as
// they do on a machine with too few processors, where a thread may be away between any two of its steps. Races that
// some load finds in a day are found in minutes (tests/run jitter).
#include <dlfcn.h>
#include <glib.h>
#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return value != 0 ? value : otherwise;
}

/// xorshift: a library's generator may take locks.
std::uint64_t next_random() {
  thread_local std::uint64_t state = 0;
  if (state == 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    state = (static_cast<std::uint64_t>(now) ^ reinterpret_cast<std::uintptr_t>(&state)) | 1;
  }
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}

void be_late() {
  static const std::uint64_t one_in = setting("GPUMAP_JITTER_ONE_IN", 3000);
  static const std::uint64_t max_us = setting("GPUMAP_JITTER_US", 30000);
  const std::uint64_t random = next_random() >> 20U;
  if (random % one_in != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random / one_in % max_us));
}

template <typename Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void g_mutex_lock(GMutex* mutex) {
  static auto* const next = next_of<void(GMutex*)>("g_mutex_lock");
  be_late();
  next(mutex);
}

void g_mutex_unlock(GMutex* mutex) {
  static auto* const next = next_of<void(GMutex*)>("g_mutex_unlock");
  next(mutex);
  be_late();
}

void g_rec_mutex_lock(GRecMutex* mutex) {
  static auto* const next = next_of<void(GRecMutex*)>("g_rec_mutex_lock");
  be_late();
  next(mutex);
}

void g_rec_mutex_unlock(GRecMutex* mutex) {
  static auto* const next = next_of<void(GRecMutex*)>("g_rec_mutex_unlock");
  next(mutex);
  be_late();
}

void g_cond_signal(GCond* condition) {
  static auto* const next = next_of<void(GCond*)>("g_cond_signal");
  be_late();
  next(condition);
}

void g_cond_broadcast(GCond* condition) {
  static auto* const next = next_of<void(GCond*)>("g_cond_broadcast");
  be_late();
  next(condition);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const next = next_of<int(pthread_mutex_t*)>("pthread_mutex_lock");
  be_late();
  return next(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static auto* const next = next_of<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  const int result = next(mutex);
  be_late();
  return result;
}

}  // extern "C"
