// SPDX-License-Identifier: MIT
// A buffer outlives its pipeline: from the sink's pool, from gpumapsrc, from a kernel. It can be read, written where it
// is the writer's, and freed.
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "gst/ptr.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

/// Frames that leave the pipeline, which then goes away while they are held.
std::vector<Sample> frames_of_a_gone_pipeline(const std::string& downstream, std::vector<Data>& pushed, int count) {
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL slots=8 gpumapsrc $CHANNEL ! " +
                                   downstream + "appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("RGB", 33, 7).get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Sample> held;
  for (int i = 0; i < count; ++i) {
    pushed.push_back(random_data(frame_bytes(video_caps("RGB", 33, 7).get()), static_cast<std::uint64_t>(i)));
    push(pipeline.appsrc(), new_buffer(pushed.back()));
    held.push_back(pull(pipeline.appsink()));
  }
  return held;
}

class Held : public testing::TestWithParam<const char*> {};

TEST_P(Held, ReadAfterThePipelineIsGone) {
  std::vector<Data> pushed;
  const auto held = frames_of_a_gone_pipeline(GetParam(), pushed, 5);
  for (std::size_t i = 0; i < held.size(); ++i) {
    ASSERT_NE(held[i], nullptr);
    EXPECT_TRUE(data_of(gst_sample_get_buffer(held[i].get())) == pushed[i]) << i;
  }
}

TEST_P(Held, FreedUnread) {
  std::vector<Data> pushed;
  EXPECT_EQ(frames_of_a_gone_pipeline(GetParam(), pushed, 5).size(), 5U);
}

// A CPU that writes gets a copy: another holder of the frame sees what was there.
TEST_P(Held, WrittenInACopy) {
  std::vector<Data> pushed;
  const auto held = frames_of_a_gone_pipeline(GetParam(), pushed, 1);
  ASSERT_NE(held[0], nullptr);
  GstBuffer* mine = gst_buffer_make_writable(gst_buffer_ref(gst_sample_get_buffer(held[0].get())));
  GstMapInfo map;
  ASSERT_TRUE(gst_buffer_map(mine, &map, GST_MAP_READWRITE));
  EXPECT_EQ(std::memcmp(map.data, pushed[0].data(), map.size), 0);
  std::memset(map.data, 0x5a, map.size);
  gst_buffer_unmap(mine, &map);
  EXPECT_TRUE(data_of(mine) == Data(pushed[0].size(), std::byte{0x5a}));
  EXPECT_TRUE(data_of(gst_sample_get_buffer(held[0].get())) == pushed[0]);
  gst_buffer_unref(mine);
}

INSTANTIATE_TEST_SUITE_P(From, Held,
                         testing::Values("", "gpumapkernel kernel=checksum ! ",
                                         "gpumapkernel kernel=identity ! "
                                         "video/x-raw(memory:GPUMap) ! ",
                                         "gpumapkernel kernel=identity ! video/x-raw ! "),
                         [](const auto& test) {
                           const std::string_view text(test.param);
                           return text.empty()                                      ? "Src"
                                  : text.find("checksum") != std::string_view::npos ? "KernelInPlace"
                                  : text.find("GPUMap") != std::string_view::npos   ? "KernelOnTheGpu"
                                                                                    : "KernelInHostMemory";
                         });

/// The pool that gpumapsink offers for `caps`.
GstBufferPool* offered_pool(Pipeline& pipeline, GstCaps* caps) {
  const Pad pad(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  GstQuery* query = gst_query_new_allocation(caps, TRUE);
  GstBufferPool* pool = nullptr;
  guint size = 0, least = 0, most = 0;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  EXPECT_GE(gst_query_get_n_allocation_pools(query), 1U);
  EXPECT_TRUE(gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr));
  gst_query_parse_nth_allocation_pool(query, 0, &pool, &size, &least, &most);
  gst_query_unref(query);
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps, size, least, most);
  EXPECT_TRUE(gst_buffer_pool_set_config(pool, config));
  return pool;
}

TEST(HeldFromThePool, WrittenAndFreedAfterThePipelineIsGone) {
  const Caps caps = video_caps("NV12", 333, 77);
  GstBufferPool* pool = nullptr;
  std::vector<Buffer> held;
  {
    Pipeline pipeline(on_new_channel("gpumapsink name=sink slots=4 $CHANNEL"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
    pool = offered_pool(pipeline, caps.get());
    ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
    for (int i = 0; i < 3; ++i) {
      GstBuffer* buffer = nullptr;
      ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
      held.emplace_back(buffer);
    }
  }
  for (const Buffer& buffer : held) {
    EXPECT_STREQ(gst_buffer_peek_memory(buffer.get(), 0)->allocator->mem_type, "GPUMapMemory");
    const Data data = random_data(gst_buffer_get_size(buffer.get()), 5);
    GstMapInfo map;
    ASSERT_TRUE(gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE));
    std::memcpy(map.data, data.data(), data.size());
    gst_buffer_unmap(buffer.get(), &map);
    EXPECT_TRUE(data_of(buffer.get()) == data);
  }
  // The pool may still give host memory, but neither hangs nor crashes.
  GstBuffer* more = nullptr;
  if (gst_buffer_pool_acquire_buffer(pool, &more, nullptr) == GST_FLOW_OK) gst_buffer_unref(more);
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  held.clear();
}

// Ptr gives back each kind of thing once, and nothing that it handed on. Of what is not counted (structures, texts,
// errors) there is one here of each: AddressSanitizer tells of one that is given back twice, or in another way.

static_assert(sizeof(Ptr<GstCaps>) == sizeof(GstCaps*));
static_assert(!std::is_invocable_v<Release, GValue*>, "what is not named is not given back in some other way");
static_assert(!std::is_invocable_v<Release, GList*> && !std::is_invocable_v<Release, void*>);

/// Of a thing that begins with its count, as GObject says it, or GstMiniObject.
gint count_of(GstMiniObject* one) {
  return GST_MINI_OBJECT_REFCOUNT_VALUE(one);
}
gint count_of(GObject* one) {
  return static_cast<gint>(one->ref_count);
}

/// `one` (transfer full), of which this takes a second reference through `Base`, which counts them.
template <typename Base, typename T>
void expect_given_back(T* one) {
  auto* const base = reinterpret_cast<Base*>(one);
  const auto ref = [base] {
    if constexpr (std::is_same_v<Base, GObject>) {
      g_object_ref(base);
    } else {
      gst_mini_object_ref(base);
    }
  };
  ref();
  const gint both = count_of(base);
  { const Ptr<T> owns(one); }
  EXPECT_EQ(count_of(base), both - 1);

  ref();
  Ptr<T> first(one);
  Ptr<T> second = std::move(first);
  EXPECT_EQ(count_of(base), both) << "moved, not taken twice";
  EXPECT_EQ(second.release(), one);
  second.reset();
  EXPECT_EQ(count_of(base), both) << "handed on";
  const Ptr<T> rest(one);
  if constexpr (std::is_same_v<Base, GObject>) {
    g_object_unref(base);
  } else {
    gst_mini_object_unref(base);
  }
}

TEST(Ptr, GivesBackWhatIsCounted) {
  expect_given_back<GstMiniObject>(gst_buffer_new());
  expect_given_back<GstMiniObject>(gst_caps_new_empty_simple("video/x-raw"));
  expect_given_back<GstMiniObject>(gst_event_new_eos());
  expect_given_back<GstMiniObject>(gst_message_new_eos(nullptr));
  expect_given_back<GstMiniObject>(gst_query_new_latency());
  expect_given_back<GstMiniObject>(gst_allocator_alloc(nullptr, 77, nullptr));
  expect_given_back<GstMiniObject>(gst_sample_new(nullptr, nullptr, nullptr, nullptr));
  expect_given_back<GstMiniObject>(gst_context_new("a.context", TRUE));
  expect_given_back<GObject>(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
  expect_given_back<GObject>(GST_OBJECT(gst_object_ref_sink(gst_bin_new(nullptr))));
  expect_given_back<GObject>(GST_PAD(gst_object_ref_sink(gst_pad_new("pad", GST_PAD_SRC))));
  expect_given_back<GObject>(gst_bus_new());
  expect_given_back<GObject>(gst_buffer_pool_new());
  expect_given_back<GObject>(gst_system_clock_obtain());
  expect_given_back<GObject>(static_cast<GObject*>(g_object_new(G_TYPE_OBJECT, nullptr)));
}

TEST(Ptr, FreesWhatIsNot) {
  const Ptr<GstStructure> structure(gst_structure_new("a", "text", G_TYPE_STRING, "and more", nullptr));
  const Ptr<gchar> text(gst_structure_to_string(structure.get()));
  EXPECT_STREQ(text.get(), "a, text=(string)\"and\\ more\";");
  const Ptr<GError> error(g_error_new(GST_CORE_ERROR, GST_CORE_ERROR_CLOCK, "%s", text.get()));
  EXPECT_STREQ(error->message, text.get());
  const Ptr<GDateTime> time(g_date_time_new_utc(2024, 2, 29, 23, 59, 59));
  EXPECT_EQ(g_date_time_get_year(time.get()), 2024);
  const Ptr<GByteArray> bytes(g_byte_array_append(g_byte_array_new(), reinterpret_cast<const guint8*>("odd"), 3));
  EXPECT_EQ(bytes->len, 3U);
  const Ptr<GstCaps> none;
  EXPECT_FALSE(none);
}

}  // namespace
}  // namespace gpumap::gst::test
