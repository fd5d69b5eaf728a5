// SPDX-License-Identifier: MIT
//
// Precompiled for most of lib/: what many files include. No file leans on it: each includes what it uses, and
// clang-tidy (tests/run --all) reads every file without it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
