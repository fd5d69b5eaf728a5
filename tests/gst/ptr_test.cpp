// SPDX-License-Identifier: MIT
// Ptr gives back each kind of thing once, and nothing that it handed on. Of what is not counted (structures, texts,
// errors) there is one here of each: AddressSanitizer tells of one that is given back twice, or in another way.
#include "gst/ptr.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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
