#include "base/metadata.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

TEST(Metadata, TypedGettersNameKeyAndTypes) {
  Metadata metadata;
  metadata.set("a.count", int64_t{7});
  metadata.set("a.name", std::string("x"));
  EXPECT_EQ(*metadata.integer("a.count"), 7);
  EXPECT_EQ(*metadata.number("a.count"), 7.0);
  EXPECT_EQ(*metadata.integer("absent", 3), 3);
  auto wrong = metadata.integer("a.name");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "metadata key 'a.name' must be an integer, but is a string");
  EXPECT_FALSE(metadata.string("absent").ok());
}

}  // namespace
}  // namespace tidemill
