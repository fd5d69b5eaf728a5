// SPDX-License-Identifier: MIT
// Tensors and analytics between two processes: what each meta says arrives with its frame, what a peer makes up does
// not, and within a process they are the same as before.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gst/video/video.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/channel/meta_text.hpp"
#include "link_sides.hpp"
#include "link_written.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

const AnalyticsLibrary& library() {
  return AnalyticsLibrary::get();
}

struct LinkAnalytics : LinkSides {
  void SetUp() override {
    if (!library().tensors_problem.empty()) GTEST_SKIP() << library().tensors_problem;
  }
};

GstTensor* tensor(const char* id, GstTensorDataType type, std::vector<gsize> dims, const Data& bytes,
                  GstTensorDimOrder order = GST_TENSOR_DIM_ORDER_ROW_MAJOR) {
  GstBuffer* const data = bytes.empty() ? gst_buffer_new() : new_buffer(bytes).release();
  return library().gst_tensor_new_simple(id != nullptr ? g_quark_from_string(id) : 0, type, data, order, dims.size(),
                                         dims.data());
}

constexpr auto int4 = static_cast<GstTensorDataType>(0), bfloat16 = static_cast<GstTensorDataType>(13);

/// Of every kind, in two metas.
void give_tensors(GstBuffer* buffer, std::uint64_t n) {
  const auto bytes = [n](std::size_t count) { return random_data(count, n); };
  add_tensor_meta(buffer, {tensor("boxes", GST_TENSOR_DATA_TYPE_FLOAT32, {1, 3, 4}, bytes(48)),
                           tensor("käse", GST_TENSOR_DATA_TYPE_UINT8, {7}, bytes(7), GST_TENSOR_DIM_ORDER_COL_MAJOR),
                           tensor(nullptr, int4, {3, 5}, bytes(8)), tensor("b", bfloat16, {2, 1}, bytes(4))});
  add_tensor_meta(buffer, {tensor("any number", GST_TENSOR_DATA_TYPE_INT64, {0, 2}, bytes(32)),
                           tensor("none", GST_TENSOR_DATA_TYPE_INT64, {0}, {})});
  add_tensor_meta(buffer, {});
}

/// A face that is part of a person who is followed, and what else there may be.
GstAnalyticsRelationMeta* give_relations(GstBuffer* buffer, std::uint64_t n) {
  const auto small = static_cast<gint>(n % 100);
  GstAnalyticsRelationMeta* const meta = library().gst_buffer_add_analytics_relation_meta(buffer);
  GstAnalyticsMtd person{}, face{}, kind{}, followed{}, lost{}, nothing{};
  library().gst_analytics_relation_meta_add_od_mtd(meta, g_quark_from_string("person"), -3, small, 100, 200, 0.75F,
                                                   &person);
  library().gst_analytics_relation_meta_add_oriented_od_mtd(meta, g_quark_from_string("käse"), small, 2, 30, 40, 0.5F,
                                                            -1, &face);
  library().gst_analytics_relation_meta_add_od_mtd(meta, 0, 0, 0, 0, 0, 0, &nothing);
  gfloat levels[] = {0.5F, -1, 1e-30F};
  GQuark classes[] = {g_quark_from_string("cat"), 0, g_quark_from_string("dog")};
  library().gst_analytics_relation_meta_add_cls_mtd(meta, 3, levels, classes, &kind);
  library().gst_analytics_relation_meta_add_tracking_mtd(meta, n << 40U, 17, &followed);
  library().gst_analytics_relation_meta_add_tracking_mtd(meta, 1, GST_CLOCK_TIME_NONE, &lost);
  library().gst_analytics_tracking_mtd_update_last_seen(&lost, n);
  library().gst_analytics_tracking_mtd_set_lost(&lost);
  const auto relate = [meta](const GstAnalyticsMtd& one, const GstAnalyticsMtd& other, int types) {
    library().gst_analytics_relation_meta_set_relation(meta, static_cast<GstAnalyticsRelTypes>(types), one.id,
                                                       other.id);
  };
  relate(face, person, GST_ANALYTICS_REL_TYPE_IS_PART_OF);
  relate(person, face, GST_ANALYTICS_REL_TYPE_CONTAIN | GST_ANALYTICS_REL_TYPE_RELATE_TO);
  relate(person, followed, GST_ANALYTICS_REL_TYPE_RELATE_TO);
  relate(lost, lost, GST_ANALYTICS_REL_TYPE_N_TO_N);
  relate(kind, nothing, GST_ANALYTICS_REL_TYPE_RELATE_TO);
  return meta;
}

template <typename... Values>
std::string line(const std::string& what, const Values&... values) {
  std::string text = what;
  ((text += " " + std::to_string(values)), ...);
  return text + "\n";
}
std::string name_of(GQuark name) {
  return name != 0 ? g_quark_to_string(name) : "";
}

std::string said_by(const GstTensorMeta& meta) {
  std::string text = line("tensors", meta.num_tensors);
  for (gsize i = 0; i < meta.num_tensors; ++i) {
    const GstTensor& one = *meta.tensors[i];
    text += line(name_of(one.id), int{one.layout}, int{one.data_type}, int{one.dims_order}, one.num_dims);
    for (gsize dim = 0; dim < one.num_dims; ++dim) text += line("dim", one.dims()[dim]);
    for (const std::byte byte : data_of(one.data)) text += std::to_string(std::to_integer<int>(byte)) + ",";
  }
  return text;
}

std::string said_by(const GstAnalyticsMtd& one) {
  const GstAnalyticsMtdType type = library().gst_analytics_mtd_get_mtd_type(&one);
  if (type == library().gst_analytics_od_mtd_get_mtd_type()) {
    gint x = 0, y = 0, width = 0, height = 0;
    gfloat rotation = 0, confidence = 0;
    library().gst_analytics_od_mtd_get_oriented_location(&one, &x, &y, &width, &height, &rotation, &confidence);
    EXPECT_TRUE(std::isfinite(rotation) && std::isfinite(confidence) && width >= 0 && height >= 0);
    library().gst_analytics_od_mtd_get_location(&one, &x, &y, &width, &height, &confidence);
    return line(name_of(library().gst_analytics_od_mtd_get_obj_type(&one)), x, y, width, height, rotation, confidence);
  }
  if (type == library().gst_analytics_cls_mtd_get_mtd_type()) {
    std::string text = "classes\n";
    for (gsize i = 0; i < library().gst_analytics_cls_mtd_get_length(&one); ++i) {
      text += line(name_of(library().gst_analytics_cls_mtd_get_quark(&one, i)),
                   library().gst_analytics_cls_mtd_get_level(&one, i));
    }
    return text;
  }
  if (type != library().gst_analytics_tracking_mtd_get_mtd_type()) return "other\n";
  guint64 id = 0;
  GstClockTime first = 0, last = 0;
  gboolean lost = FALSE;
  library().gst_analytics_tracking_mtd_get_info(&one, &id, &first, &last, &lost);
  return line("tracking", id, first, last, lost);
}

std::string said_by(GstAnalyticsRelationMeta* meta) {
  std::string text = "relations\n";
  std::vector<guint> ids;
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  while (library().gst_analytics_relation_meta_iterate(meta, &state, 0, &one)) {
    text += said_by(one);
    ids.push_back(one.id);
  }
  for (std::size_t first = 0; first < ids.size(); ++first) {
    for (std::size_t second = 0; second < ids.size(); ++second) {
      const int types = library().gst_analytics_relation_meta_get_relation(meta, ids[first], ids[second]);
      if (types != 0) text += line("between", first, second, types);
    }
  }
  return text;
}

/// What the metas of the library on `buffer` say, relations last.
std::string analytics_of(GstBuffer* buffer) {
  std::string text, relations;
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta->info == library().gst_tensor_meta_get_info()) {
      text += said_by(*reinterpret_cast<GstTensorMeta*>(meta));
    } else if (meta->info == library().gst_analytics_relation_meta_get_info()) {
      relations += said_by(reinterpret_cast<GstAnalyticsRelationMeta*>(meta));
    }
  }
  return text + relations;
}
std::string analytics_of_frame(std::uint64_t n) {
  const Buffer wanted(gst_buffer_new());
  give_tensors(wanted.get(), n);
  give_relations(wanted.get(), n);
  return analytics_of(wanted.get());
}

// Across a link as written and read; in one process they are not touched.
TEST_F(LinkAnalytics, ArriveWithTheirFrame) {
  const auto pass = [](Pipeline& producer, Pipeline& consumer) {
    for (std::uint64_t n = 1; n < 20; ++n) {
      Buffer buffer = new_buffer(random_data(frame_size, n), n * GST_MSECOND);
      give_tensors(buffer.get(), n);
      give_relations(buffer.get(), n);
      EXPECT_TRUE(push(producer.appsrc(), std::move(buffer)));
      const Sample sample = pull(consumer.appsink());
      ASSERT_TRUE(sample) << consumer.error() << producer.error();
      EXPECT_EQ(analytics_of(gst_sample_get_buffer(sample.get())), analytics_of_frame(n));
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), random_data(frame_size, n));
    }
  };
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  Pipeline consumer(to_appsink());
  start(consumer);
  pass(producer, consumer);
  Pipeline whole(
      on_new_channel("appsrc name=in format=time caps=application/octet-stream ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! appsink name=out sync=false"));
  start(whole);
  pass(whole, whole);
}

struct AnalyticsTexts : LinkAnalytics {};

/// What a peer's text adds; "refused: " ahead of it where some of it was.
std::string read_from(const LinkText& text) {
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  const bool all = add_metas(carrier.get(), text, 0, names);
  return (all ? "" : "refused: ") + analytics_of(carrier.get());
}
MetaText text_of_one(const std::function<void(GstBuffer*)>& give) {
  const Buffer buffer(gst_buffer_new());
  give(buffer.get());
  return text_of_metas(buffer.get(), max_link_note);
}
MetaText text_of_tensor(GstTensor* one) {
  return text_of_one([&](GstBuffer* buffer) { add_tensor_meta(buffer, {one}); });
}
template <typename Value>
LinkText patched(LinkText text, std::size_t at, Value value) {
  std::memcpy(&text.at(at), &value, sizeof value);
  return text;
}

TEST_F(AnalyticsTexts, WhatHasNoRoomStaysBehind) {
  const Buffer buffer(gst_buffer_new());
  give_relations(buffer.get(), 5);
  const std::string relations = analytics_of(buffer.get());
  add_tensor_meta(buffer.get(), {tensor("large", GST_TENSOR_DATA_TYPE_UINT8, {20'000}, random_data(20'000, 1))});
  const MetaText text = text_of_metas(buffer.get(), max_link_note);
  EXPECT_EQ(text.left_out, 1U);
  EXPECT_EQ(read_from(text.text), relations);
  give_tensors(buffer.get(), 5);
  const std::size_t whole = text_of_metas(buffer.get(), max_link_note).text.size();
  for (std::size_t most = 0; most < whole; most += 7) {
    const MetaText some = text_of_metas(buffer.get(), most);
    EXPECT_LE(some.text.size(), most);
    EXPECT_GT(some.left_out, 1U);
    EXPECT_EQ(read_from(some.text).find("refused"), std::string::npos) << "the rest is whole";
  }
}

// Segmentations, key points, and what applications add: the library does not tell all that is in them.
TEST_F(AnalyticsTexts, ThingsOfOtherKindsStayBehind) {
  void* const opened = dlopen("libgstanalytics-1.0.so.0", RTLD_NOW);
  auto* const add = reinterpret_cast<gpointer (*)(GstAnalyticsRelationMeta*, gconstpointer, gsize, GstAnalyticsMtd*)>(
      dlsym(opened, "gst_analytics_relation_meta_add_mtd"));
  static const gconstpointer own[32] = {"own"};  // its name, and no functions
  const MetaText text = text_of_one([&](GstBuffer* buffer) {
    GstAnalyticsRelationMeta* const meta = library().gst_buffer_add_analytics_relation_meta(buffer);
    GstAnalyticsMtd made[4] = {};
    library().gst_analytics_relation_meta_add_tracking_mtd(meta, 1, 2, &made[0]);
    add(meta, own, 8, &made[1]);
    library().gst_analytics_relation_meta_add_tracking_mtd(meta, 3, 4, &made[2]);
    library().gst_analytics_relation_meta_add_od_mtd(meta, 0, 1, 2, -3, 4, 0.5F, &made[3]);
    for (const guint other : {1U, 2U, 3U}) {
      library().gst_analytics_relation_meta_set_relation(meta, GST_ANALYTICS_REL_TYPE_CONTAIN, made[0].id,
                                                         made[other].id);
    }
  });
  EXPECT_EQ(text.left_out, 1U);
  EXPECT_EQ(read_from(text.text), "relations\ntracking 1 2 2 0\ntracking 3 4 4 0\nbetween 0 1 4\n");
}

TEST_F(AnalyticsTexts, TensorsThatCannotBeAreRefused) {
  // A kind, a length; type, order, dimensions, bytes; a name; the dimensions; the bytes.
  constexpr std::size_t type = 5, order = 9, rank = 13, size = 17, name = 21, dims = 23;
  const LinkText text = text_of_tensor(tensor("t", GST_TENSOR_DATA_TYPE_INT16, {2, 3}, random_data(12, 1))).text;
  EXPECT_EQ(read_from(text).find("refused"), std::string::npos);
  const auto refused = [](const LinkText& one) { return read_from(one) == "refused: "; };
  for (const int lie : {-1, 0, 1, 3, 14, 15, 100, G_MAXINT, G_MININT}) EXPECT_TRUE(refused(patched(text, type, lie)));
  for (const int lie : {-1, 2, G_MAXINT}) EXPECT_TRUE(refused(patched(text, order, lie))) << lie;
  for (const std::uint32_t lie : {0U, 1U, 3U, ~0U}) EXPECT_TRUE(refused(patched(text, rank, lie))) << lie;
  for (const std::uint32_t lie : {0U, 11U, 13U, ~0U}) EXPECT_TRUE(refused(patched(text, size, lie))) << lie;
  for (const std::uint64_t lie : {1ULL, 4ULL, 1ULL << 63U, (1ULL << 63U) + 2, ~0ULL}) {
    EXPECT_TRUE(refused(patched(text, dims, lie))) << lie;
  }
  EXPECT_TRUE(refused(patched(text, name, '\xff'))) << "no UTF-8";
}

TEST_F(AnalyticsTexts, ThingsThatCannotBeAreRefused) {
  const auto refused = [](const LinkText& one) { return read_from(one) == "refused: "; };
  // A kind, a length; how many things; a thing's kind, a name, a place, a rotation, a confidence; relations.
  constexpr std::size_t count = 5, kind = 9, name = 10, x = 12, width = 20, rotation = 28, confidence = 32, first = 36,
                        types = 44;
  const LinkText box =
      text_of_one([](GstBuffer* buffer) {
        GstAnalyticsRelationMeta* const meta = library().gst_buffer_add_analytics_relation_meta(buffer);
        GstAnalyticsMtd made{};
        library().gst_analytics_relation_meta_add_od_mtd(meta, g_quark_from_string("t"), 1, 2, 3, 4, 0.5F, &made);
        library().gst_analytics_relation_meta_set_relation(meta, GST_ANALYTICS_REL_TYPE_CONTAIN, made.id, made.id);
      }).text;
  EXPECT_EQ(read_from(box), "relations\nt 1 2 3 4 0.000000 0.500000\nbetween 0 0 4\n");
  for (const std::uint32_t lie : {0U, 2U, 2000U, ~0U}) EXPECT_TRUE(refused(patched(box, count, lie))) << lie;
  for (const char lie : {'\0', '\2', '\3', '\4', '\xff'}) EXPECT_TRUE(refused(patched(box, kind, lie))) << int{lie};
  EXPECT_TRUE(refused(patched(box, name, '\xff'))) << "no UTF-8";
  for (const gint lie : {G_MAXINT, G_MININT, 1 << 29, -(1 << 29)}) EXPECT_TRUE(refused(patched(box, x, lie))) << lie;
  for (const gint lie : {-1, G_MAXINT, G_MININT, 1 << 29}) EXPECT_TRUE(refused(patched(box, width, lie))) << lie;
  for (const float lie : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(refused(patched(box, rotation, lie))) << lie;
    EXPECT_TRUE(refused(patched(box, confidence, lie))) << lie;
  }
  for (const std::uint32_t lie : {1U, 65'536U, ~0U}) {
    EXPECT_TRUE(refused(patched(box, first, lie))) << lie;
    EXPECT_TRUE(refused(patched(box, first + 4, lie))) << lie;
  }
  EXPECT_EQ(read_from(patched(box, types, ~0U)), "relations\nt 1 2 3 4 0.000000 0.500000\nbetween 0 0 30\n")
      << "what this process does not know is no relation";
  LinkText twice = box;
  twice.insert(twice.end(), box.begin(), box.end());
  EXPECT_EQ(read_from(twice), "refused: " + read_from(box)) << "a frame has one such meta";
  // How many classes; a level; a name.
  constexpr std::size_t classes = 10, level = 14;
  const LinkText kinds = text_of_one([](GstBuffer* buffer) {
                           gfloat levels[] = {0.5F, 0.25F};
                           GQuark names[] = {g_quark_from_string("t"), g_quark_from_string("u")};
                           GstAnalyticsMtd made{};
                           library().gst_analytics_relation_meta_add_cls_mtd(
                               library().gst_buffer_add_analytics_relation_meta(buffer), 2, levels, names, &made);
                         }).text;
  EXPECT_FALSE(refused(kinds));
  for (const std::uint32_t lie : {0U, 1U, 3U, ~0U}) EXPECT_TRUE(refused(patched(kinds, classes, lie))) << lie;
  EXPECT_TRUE(refused(patched(kinds, level, std::nanf(""))));
}

// As any names: a peer may bring some, and not fill the memory.
TEST_F(AnalyticsTexts, NewNamesAreLimited) {
  const Buffer buffer(gst_buffer_new());
  give_tensors(buffer.get(), 1);
  LinkText text = text_of_metas(buffer.get(), max_link_note).text;
  text = patched(text, 21, 'X');  // the first tensor's
  const Buffer carrier(gst_buffer_new());
  NewNames names(0);
  EXPECT_FALSE(add_metas(carrier.get(), text, 0, names));
  EXPECT_TRUE(names.tells_of_refusal());
  EXPECT_EQ(g_quark_try_string("Xoxes"), 0U);
}

// Anything, and what is nearly right, leaves nothing that cannot be: no assertion, and it is written as it was read.
TEST_F(AnalyticsTexts, NoBytesDoAnyHarm) {
  const LinkText whole = text_of_one([](GstBuffer* buffer) {
                           give_tensors(buffer, 7);
                           give_relations(buffer, 7);
                         }).text;
  const LinkText relations = text_of_one([](GstBuffer* buffer) { give_relations(buffer, 7); }).text;
  std::mt19937 random(3);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  NewNames names;
  std::size_t taken = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    LinkText text = turn % 2 == 0 ? whole : relations;
    for (std::size_t changes = below(4); changes > 0; --changes) {
      text[below(text.size())] = static_cast<std::byte>(turn % 4 < 2 ? random() : 1U << below(8));
    }
    if (turn % 7 == 0) text.resize(below(text.size()));
    const Buffer carrier(gst_buffer_new());
    taken += add_metas(carrier.get(), text, 0, names) ? 1 : 0;
    const std::string said = analytics_of(carrier.get());
    const MetaText again = text_of_metas(carrier.get(), 2 * max_link_note);
    ASSERT_EQ(again.left_out, 0U);
    ASSERT_EQ(read_from(again.text), said);
  }
  EXPECT_GT(taken, 1000U);
}

// Here nobody knows such metas: the others of the frame cross, and it is not a fault.
TEST(WithoutLibrary, AnalyticsArePassedOver) {
  if (library().relations_problem.empty()) GTEST_SKIP() << "libgstanalytics is there";
  LinkText text;
  for (const int kind : {9, 10}) {
    text.push_back(static_cast<std::byte>(kind));
    put(text, std::uint32_t{3});
    text.resize(text.size() + 3, std::byte{1});
  }
  const Buffer crop(gst_buffer_new());
  gst_buffer_add_video_crop_meta(crop.get())->x = 5;
  const LinkText known = text_of_metas(crop.get(), max_link_note).text;
  text.insert(text.end(), known.begin(), known.end());
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  EXPECT_TRUE(add_metas(carrier.get(), text, 0, names));
  ASSERT_NE(gst_buffer_get_video_crop_meta(carrier.get()), nullptr);
  EXPECT_EQ(gst_buffer_get_video_crop_meta(carrier.get())->x, 5U);
}

}  // namespace
}  // namespace gpumap::gst::test
