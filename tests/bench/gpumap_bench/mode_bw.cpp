// SPDX-License-Identifier: MIT
#include "bench.hpp"

namespace bench {

nlohmann::json run_bw(Context&) {
  return make_report({.mode = "bw", .what = ""});
}

}  // namespace bench
