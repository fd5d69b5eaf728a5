// SPDX-License-Identifier: MIT
// What a peer writes in the place of metas is not believed; what cannot be written is left out.
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "gpumap/link.hpp"
#include "gst/link/meta_text.hpp"
#include "link_written.hpp"
#include "numbered_metas.hpp"

namespace gpumap::gst::test {
namespace {

struct MetaTexts : testing::Test {
  void SetUp() override { register_metas(); }
};

constexpr std::uint64_t plenty = 1U << 20U;

/// What a peer's text adds to a frame of `bytes`; "refused: " ahead of it where some of it was.
std::string read_from(const LinkText& text, std::uint64_t bytes = plenty) {
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  const bool all = add_metas(carrier.get(), text, bytes, names);
  EXPECT_EQ(gst_buffer_n_memory(carrier.get()), 0U);
  return (all ? "" : "refused: ") + metas_of(carrier.get());
}

TEST_F(MetaTexts, WithoutAnyThereIsNothingToSay) {
  const Buffer buffer = new_buffer(random_data(100, 1));
  gst_buffer_add_video_meta(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 10, 10);
  const MetaText text = text_of_metas(buffer.get(), max_link_note);
  EXPECT_TRUE(text.text.empty());
  EXPECT_EQ(text.left_out, 0U);
  EXPECT_EQ(read_from(text.text), "");
}

TEST_F(MetaTexts, WhatCannotBeWrittenOrHasNoRoomIsLeftOut) {
  const Buffer buffer(gst_buffer_new());
  gst_buffer_add_meta(buffer.get(), gst_meta_get_info(private_name), nullptr);
  EXPECT_EQ(text_of_metas(buffer.get(), max_link_note).left_out, 1U);
  give_metas(buffer.get(), 1);
  const std::size_t whole = text_of_metas(buffer.get(), max_link_note).text.size();
  for (std::size_t most = 0; most < whole; most += 13) {
    const MetaText text = text_of_metas(buffer.get(), most);
    EXPECT_LE(text.text.size(), most);
    EXPECT_GT(text.left_out, 1U);
    EXPECT_EQ(read_from(text.text).find("refused"), std::string::npos) << "the rest is whole";
  }
}

// What is written of it takes no more than the room that is left.
TEST_F(MetaTexts, ARegionCrossesWithTheParametersThatHaveRoom) {
  const Buffer buffer(gst_buffer_new());
  GstVideoRegionOfInterestMeta* region = gst_buffer_add_video_region_of_interest_meta(buffer.get(), "face", 1, 2, 3, 4);
  const std::string long_one(1000, 'x');
  for (int n = 0; n < 40; ++n) {
    gst_video_region_of_interest_meta_add_param(
        region, gst_structure_new("param", "text", G_TYPE_STRING, long_one.c_str(), nullptr));
  }
  const MetaText text = text_of_metas(buffer.get(), max_link_note);
  EXPECT_EQ(text.left_out, 1U) << "in part";
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  EXPECT_TRUE(add_metas(carrier.get(), text.text, plenty, names));
  const GstVideoRegionOfInterestMeta* got = gst_buffer_get_video_region_of_interest_meta_id(carrier.get(), 0);
  ASSERT_NE(got, nullptr);
  const auto whole = [](const GstStructure* one) { return gst_structure_has_field(one, "text") != 0; };
  guint params = 0;
  for (const GList* at = got->params; at != nullptr; at = at->next) {
    params += whole(static_cast<const GstStructure*>(at->data)) ? 1U : 0U;
  }
  EXPECT_GE(params, 14U);
  EXPECT_LT(params, 17U);
}

TEST_F(MetaTexts, ARegionWithoutATypeCrosses) {
  const Buffer buffer(gst_buffer_new());
  gst_buffer_add_video_region_of_interest_meta_id(buffer.get(), 0, 1, 2, 3, 4);
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  EXPECT_TRUE(add_metas(carrier.get(), text_of_metas(buffer.get(), max_link_note).text, plenty, names));
  const GstVideoRegionOfInterestMeta* got = gst_buffer_get_video_region_of_interest_meta_id(carrier.get(), 0);
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->roi_type, 0U);
  EXPECT_EQ(got->h, 4U);
}

LinkText text_of_one(const std::function<void(GstBuffer*)>& add) {
  const Buffer buffer(gst_buffer_new());
  add(buffer.get());
  return text_of_metas(buffer.get(), max_link_note).text;
}
LinkText text_of_crop(guint x, guint y, guint width, guint height) {
  return text_of_one([&](GstBuffer* buffer) {
    GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer);
    crop->x = x;
    crop->y = y;
    crop->width = width;
    crop->height = height;
  });
}

TEST_F(MetaTexts, WhatCannotBeTrueIsRefused) {
  const auto refused = [](const LinkText& text, std::uint64_t bytes = plenty) {
    return read_from(text, bytes) == "refused: ";
  };
  EXPECT_FALSE(refused(text_of_crop(1, 2, 3, 4)));
  EXPECT_TRUE(refused(text_of_crop(~0U, 2, 3, 4)));
  EXPECT_TRUE(refused(text_of_crop(1, 2, 3, G_MAXINT)));
  const auto region = [](guint x, guint h) {
    return text_of_one(
        [&](GstBuffer* buffer) { gst_buffer_add_video_region_of_interest_meta(buffer, "face", x, 1, 2, h); });
  };
  EXPECT_FALSE(refused(region(1, 2)));
  EXPECT_TRUE(refused(region(~0U, 2)));
  EXPECT_TRUE(refused(region(1, ~0U)));
  const auto reference = [](GstCaps* caps) {
    return text_of_one([&](GstBuffer* buffer) { gst_buffer_add_reference_timestamp_meta(buffer, caps, 1, 2); });
  };
  EXPECT_FALSE(refused(reference(new_caps("timestamp/x-unix").get())));
  EXPECT_TRUE(refused(reference(new_caps("ANY").get())));
  EXPECT_TRUE(refused(reference(new_caps("EMPTY").get())));
}

template <typename Value>
LinkText patched(LinkText text, std::size_t at, Value value) {
  std::memcpy(&text.at(at), &value, sizeof value);
  return text;
}

TEST_F(MetaTexts, PlanesThatCannotBeAreRefused) {
  // A kind, a length; format, rate, channels, layout, samples; positions; offsets.
  constexpr std::size_t format = 5, rate = 9, channels = 13, layout = 17, samples = 21, positions = 29, offsets = 41;
  constexpr std::uint64_t bytes = std::uint64_t{3} * (100 * 4 + 24);
  const Buffer audio = planar_audio(3, 100, 1);
  const LinkText text = text_of_metas(audio.get(), max_link_note).text;
  const auto refused = [&](const LinkText& one) { return read_from(one, bytes) == "refused: "; };
  EXPECT_FALSE(refused(text));
  EXPECT_EQ(read_from(text, bytes - 25), "refused: ") << "a frame that is too short";
  for (const int lie : {-1, 0, 1, 100000, G_MAXINT, G_MININT}) EXPECT_TRUE(refused(patched(text, format, lie))) << lie;
  for (const int lie : {-1, 0}) EXPECT_TRUE(refused(patched(text, rate, lie))) << lie;
  for (const int lie : {-1, 0, 2, 4, 64, 65, 1024, 1025, G_MAXINT}) EXPECT_TRUE(refused(patched(text, channels, lie)));
  for (const int lie : {-1, 0, 2}) EXPECT_TRUE(refused(patched(text, layout, lie))) << lie;
  for (const std::uint64_t lie : {std::uint64_t{107}, ~std::uint64_t{0}, std::uint64_t{1} << 62U}) {
    EXPECT_TRUE(refused(patched(text, samples, lie))) << lie;
  }
  for (const int lie : {-2, 1, 63, 64, G_MAXINT, G_MININT}) EXPECT_TRUE(refused(patched(text, positions, lie))) << lie;
  for (const std::uint64_t lie : {std::uint64_t{1}, bytes - 399, ~std::uint64_t{0}, ~std::uint64_t{0} - 399}) {
    EXPECT_TRUE(refused(patched(text, offsets, lie))) << lie;
  }
}

TEST_F(MetaTexts, TimeCodesThatCannotBeAreRefused) {
  constexpr std::size_t fps_n = 5, fps_d = 9, flags = 13, hours = 17, frames = 29, jam = 37;
  const LinkText text = text_of_one([](GstBuffer* buffer) {
    GDateTime* when = g_date_time_new_from_iso8601("2026-02-03T04:05:06Z", nullptr);
    GstVideoTimeCode* code = gst_video_time_code_new(25, 1, when, GST_VIDEO_TIME_CODE_FLAGS_NONE, 23, 2, 59, 24, 0);
    gst_buffer_add_video_time_code_meta(buffer, code);
    gst_video_time_code_free(code);
    g_date_time_unref(when);
  });
  const auto refused = [](const LinkText& one) { return read_from(one) == "refused: "; };
  EXPECT_FALSE(refused(text));
  EXPECT_TRUE(refused(patched(text, fps_n, 0U)));
  EXPECT_TRUE(refused(patched(text, fps_d, 0U)));
  EXPECT_TRUE(refused(patched(text, flags, 4U)));
  EXPECT_TRUE(refused(patched(text, hours, 25U)));
  EXPECT_TRUE(refused(patched(text, frames, 25U)));
  EXPECT_TRUE(refused(patched(text, jam, 'x')));
}

TEST_F(MetaTexts, OfNoneThatIsKnownHereIsNothing) {
  const auto custom = [](const std::string& name, const std::string& structure) {
    LinkText text(5);
    text[0] = std::byte{6};
    put_text(text, name);
    if (!structure.empty()) (void)put_structure(text, parsed(structure).get(), max_link_note);
    return patched(text, 1, static_cast<std::uint32_t>(text.size() - 5));
  };
  EXPECT_EQ(read_from(custom(custom_name, "x, n=(int)1")), std::string(custom_name) + custom_name + ", n=(int)1;\n");
  EXPECT_EQ(read_from(custom("NobodyKnowsIt", "x, n=(int)1")), "");
  EXPECT_EQ(read_from(custom("GstVideoCropMeta", "x, n=(int)1")), "refused: ") << "it is not that kind";
  EXPECT_EQ(read_from(custom(custom_name, "")), "refused: ");
}

#if GST_CHECK_VERSION(1, 24, 0)
struct CountMeta {
  GstMeta meta;
  guint32 count;
};
/// An application's, with a writer and a reader of its own.
const GstMetaInfo* count_meta() {
  static const GstMetaInfo* const registered = [] {
    static const gchar* tags[] = {nullptr};
    GstMetaInfo* info = gst_meta_info_new(gst_meta_api_type_register("GpumapLinkTestCountAPI", tags),
                                          "GpumapLinkTestCount", sizeof(CountMeta));
    info->init_func = [](GstMeta*, gpointer, GstBuffer*) -> gboolean { return TRUE; };
    info->serialize_func = [](const GstMeta* meta, GstByteArrayInterface* to, guint8* version) -> gboolean {
      *version = 3;
      const auto* one = reinterpret_cast<const CountMeta*>(meta);
      return gst_byte_array_interface_append_data(to, reinterpret_cast<const guint8*>(&one->count), sizeof one->count);
    };
    info->deserialize_func = [](const GstMetaInfo* mine, GstBuffer* buffer, const guint8* data, gsize size,
                                guint8 version) -> GstMeta* {
      if (version != 3 || size != sizeof(guint32)) return nullptr;
      auto* one = reinterpret_cast<CountMeta*>(gst_buffer_add_meta(buffer, mine, nullptr));
      std::memcpy(&one->count, data, sizeof one->count);
      return &one->meta;
    };
    return gst_meta_info_register(info);
  }();
  return registered;
}

TEST_F(MetaTexts, OthersCrossWhereTheyCanBeSerialised) {
  const LinkText text = text_of_one([](GstBuffer* buffer) {
    reinterpret_cast<CountMeta*>(gst_buffer_add_meta(buffer, count_meta(), nullptr))->count = 1234567;
  });
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  ASSERT_TRUE(add_metas(carrier.get(), text, plenty, names));
  const auto* read = reinterpret_cast<CountMeta*>(gst_buffer_get_meta(carrier.get(), count_meta()->api));
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->count, 1234567U);
  // GStreamer's head: a total length, the name's, the name, a version.
  constexpr std::size_t total = 5, name_length = 9, name = 13;
  for (const std::uint32_t lie : {0U, 1U, 100U, ~0U, ~0U - 9}) {
    EXPECT_EQ(read_from(patched(text, total, lie)), "refused: ") << lie;
    EXPECT_EQ(read_from(patched(text, name_length, lie)), "refused: ") << lie;
  }
  EXPECT_EQ(read_from(patched(text, name, 'X')), "") << "nobody here knows it";
  EXPECT_EQ(read_from(patched(text, name + std::strlen("GpumapLinkTestCount") + 1, '\4')), "refused: ") << "a version";
}
#endif

// Anything, and what is nearly right, leaves nothing that cannot be.
TEST_F(MetaTexts, NoBytesDoAnyHarm) {
  const Buffer buffer(gst_buffer_new());
  give_metas(buffer.get(), 19);
  const LinkText metas = text_of_metas(buffer.get(), max_link_note).text;
  const Buffer planes = planar_audio(5, 100, 1);
  const LinkText audio = text_of_metas(planes.get(), max_link_note).text;
  std::mt19937 random(3);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  NewNames names;
  std::size_t whole = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    LinkText text = turn % 3 == 0 ? audio : metas;
    if (turn % 3 == 2) {  // one record of them, so that more of its fields are hit
      std::size_t at = 0;
      for (std::size_t skip = below(8); skip > 0 && at < text.size(); --skip) {
        std::uint32_t length = 0;
        std::memcpy(&length, &text[at + 1], sizeof length);
        at += 5 + length;
      }
      text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size() - 1)));
    }
    for (std::size_t changes = below(4); changes > 0; --changes) {
      text[below(text.size())] = static_cast<std::byte>(turn % 2 == 0 ? random() : 1U << below(8));
    }
    if (turn % 7 == 0) text.resize(below(text.size()));
    const std::uint64_t bytes = below(3000);
    const Buffer carrier(gst_buffer_new());
    whole += add_metas(carrier.get(), text, bytes, names) ? 1 : 0;
    gpointer state = nullptr;
    while (GstMeta* meta = gst_buffer_iterate_meta(carrier.get(), &state)) {
      ASSERT_NE(text_of_meta(meta), "");
      if (meta->info->api != GST_AUDIO_META_API_TYPE) continue;
      const auto& one = *reinterpret_cast<GstAudioMeta*>(meta);
      const std::uint64_t plane = one.samples * static_cast<std::uint64_t>(GST_AUDIO_INFO_WIDTH(&one.info)) / 8;
      for (int channel = 0; one.offsets != nullptr && channel < one.info.channels; ++channel) {
        ASSERT_LE(one.offsets[channel] + plane, bytes);
      }
    }
  }
  EXPECT_GT(whole, 1000U);
}

}  // namespace
}  // namespace gpumap::gst::test
