// SPDX-License-Identifier: MIT
//
// Precompiled for programs of many files that write JSON, see lib/pch/standard.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
