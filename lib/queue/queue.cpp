// SPDX-License-Identifier: MIT
#include "gpumap/queue.hpp"

#include "gpumap/error.hpp"

namespace gpumap {

void Queue::end_span(GpuSpan& /*span*/) {
  throw Error(ErrorCode::invalid, "end_span: the span was begun on another queue: end it there");
}

}  // namespace gpumap
