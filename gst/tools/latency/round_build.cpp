// SPDX-License-Identifier: MIT
// The pipeline of a round, and where it is looked at.
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "gst/tools/latency/latency_elements.hpp"
#include "gst/tools/latency/running_round.hpp"

namespace latency {
namespace {

using gpumap::FrameRecord;
using gpumap::Stamp;

void mark(FrameRecord& frame, Stamp stamp) {
  frame.at_ns[static_cast<std::size_t>(stamp)] = gpumap::monotonic_ns();
}

}  // namespace

void Round::probe(GstElement* element, const char* pad, GstPadProbeCallback callback) {
  const Ptr<GstPad> found(element != nullptr ? gst_element_get_static_pad(element, pad) : nullptr);
  if (!found) throw std::runtime_error(fmt::format("no pad {} to look at", pad));
  gst_pad_add_probe(found.get(), GST_PAD_PROBE_TYPE_BUFFER, callback, this, nullptr);
}

void Round::build_line() {
  const Case& which = outcome_.which;
  const std::string whole = options_.pipeline.empty() ? own_line(which, options_, frames_) : options_.pipeline;
  const SplitLine parts = far_ ? split(whole) : SplitLine{{}, whole};
  const std::string far = expand(parts.producer, which, options_, log_->channel());
  const std::string near = expand(parts.consumer, which, options_, log_->channel());
  outcome_.line = far_ ? far + " & gst-launch-1.0 " + near : near;  // as a shell starts both
  Line made = make_line(near, watch_);
  pipeline_ = std::move(made.pipeline);
  if (which.is_upload()) {
    // Its channel has its name, which is known by now.
    const auto upload = element("latency-sink");
    const Ptr<gchar> path(gst_object_get_path_string(GST_OBJECT(upload.get())));
    follow(path.get());
  }
  bus_ = std::move(made.bus);
  if (far_) start_far_producer(far);
}

void Round::build() {
  const Case& which = outcome_.which;
  build_line();
  if (far_) return;
  const auto sink = element("latency-sink");
  if (!sink) throw std::runtime_error("{sink} is not in the pipeline that the line makes");

  if (which.is_rival()) {
    // Without a queue between them all of it runs in the producer's thread.
    probe(sink.get(), "src", [](GstPad*, GstPadProbeInfo*, gpointer self) {
      mark(static_cast<Round*>(self)->rival_, Stamp::published);
      return GST_PAD_PROBE_OK;
    });
  }
  if (has_own_producer()) {
    link_producer(sink.get());
  } else {
    watch_upstream(sink.get());
  }
  if (options_.pipeline.empty()) watch_end();
}

/// Of a line that makes its frames itself.
void Round::watch_upstream(GstElement* sink) {
  probe(sink, "sink", [](GstPad*, GstPadProbeInfo* info, gpointer user) {
    auto& self = *static_cast<Round*>(user);
    const std::size_t number = self.entered_++;
    self.start_counting(number);
    if (self.outcome_.which.is_rival()) {
      self.rival_ = {.sequence = number};
      if (const GstClockTime pts = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)); GST_CLOCK_TIME_IS_VALID(pts)) {
        self.rival_.due_ns = static_cast<std::int64_t>(gst_element_get_base_time(self.pipeline_.get()) + pts);
      }
      // It was made since its thread came back: gpumapsink's frames have their making in them, too.
      mark(self.rival_, Stamp::last_store);
      const std::int64_t began_ns = self.held_->began_ns();
      self.rival_.at_ns[static_cast<std::size_t>(Stamp::first_store)] =
          began_ns != 0 ? began_ns : self.rival_.at(Stamp::last_store);
    }
    return GST_PAD_PROBE_OK;
  });
  if (options_.pipeline.empty()) held_.emplace(sink, options_.frames_in_flight(), outcome_.which.spin);
}

/// Where a frame is done with.
void Round::watch_end() {
  const auto end = element("latency-end");
  probe(end.get(), "sink", [](GstPad*, GstPadProbeInfo*, gpointer user) {
    auto& self = *static_cast<Round*>(user);
    if (self.outcome_.which.is_rival() && self.options_.stamps) {
      mark(self.rival_, Stamp::visible);
      self.log_->add(self.rival_);
    }
    if (self.far_) {
      self.far_->arrived();
    } else {
      self.gate()->arrived();
    }
    return GST_PAD_PROBE_OK;
  });
}

ProducerPlan Round::plan() const {
  const Case& which = outcome_.which;
  return {.caps = which.is_rival() ? as_rgba(which.frame, options_.rate) : caps_of(which.frame, options_.rate),
          .frame_bytes = which.frame.bytes,
          .frames = frames_,
          .in_place = options_.upstream == "in-place",
          .rate = options_.rate,
          .in_flight = options_.frames_in_flight(),
          .spin = which.spin};
}

void Round::start_far_producer(const std::string& line) {
  const auto src = element("latency-src");
  probe(src.get(), "src", [](GstPad*, GstPadProbeInfo*, gpointer user) {
    auto& self = *static_cast<Round*>(user);
    self.start_counting(self.entered_++);
    return GST_PAD_PROBE_OK;
  });
  ProducerJob job{.line = line, .plan = plan(), .warmup = warmup_};
  if (!has_own_producer()) job.plan.caps.clear();
  if (options_.pipeline.empty()) {
    job.held = true;
    watch_end();
  }
  far_->start(std::move(job));
  outcome_.producer_pids.push_back(far_->pid());
}

void Round::link_producer(GstElement* sink) {
  ProducerOptions made{.plan = plan()};
  made.before_frame = [this](std::size_t number) {
    entered_ = number + 1;
    start_counting(number);
  };
  if (outcome_.which.is_rival()) {
    made.before_push = [this](FrameRecord record) {
      rival_ = record;
      // Its own copy begins here, as gpumapsink's does.
      for (const Stamp stamp : {Stamp::first_store, Stamp::last_store}) {
        if (rival_.at(stamp) == 0) mark(rival_, stamp);
      }
    };
  }
  producer_.emplace(pipeline_.get(), sink, std::move(made));
}

}  // namespace latency
