#include "runtime/memory_pressure.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

constexpr size_t mib = size_t{1} << 20;
constexpr BreathingRules rules{.min_bytes = 100 * mib, .max_bytes = 2000 * mib, .reserve_bytes = 512 * mib};

size_t next(size_t budget_mib, size_t occupied_mib, size_t available_mib, std::optional<double> stalled = {}) {
  return next_budget_bytes(rules, budget_mib * mib, occupied_mib * mib,
                           {.available_bytes = available_mib * mib, .stalled_perc = stalled}) /
         mib;
}

TEST(MemoryPressure, ReadsTheKernelsText) {
  EXPECT_EQ(parse_stalled_perc("some avg10=1.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=9.00"), 1.5);
  for (const char* text : {"", "full avg10=9.00", "some avg10=", "some avg10=x", "some avg10=-1", "some avg10=1e9"})
    EXPECT_FALSE(parse_stalled_perc(text)) << text;
  EXPECT_GT(read_memory_pressure().available_bytes, 0u);
}

TEST(MemoryPressure, ShrinksWhereMemoryIsShort) {
  EXPECT_EQ(next(1000, 1000, 412), 875u);  // 100 are missing, an eighth is more
  EXPECT_EQ(next(1000, 1000, 12), 500u);
  EXPECT_EQ(next(1000, 600, 12), 100u);  // what was never used gives nothing back
  EXPECT_EQ(next(1000, 1000, 8000, 50.0), 875u);
  EXPECT_EQ(next(100, 100, 0), 100u);
}

TEST(MemoryPressure, GrowsWhereThereIsRoomAndUse) {
  EXPECT_EQ(next(1000, 1000, 4000), 1125u);
  EXPECT_EQ(next(1000, 1000, 4000, 0.5), 1125u);
  EXPECT_EQ(next(1000, 1000, 4000, 5.0), 1000u);  // neither calm nor short
  EXPECT_EQ(next(1000, 900, 4000), 1000u);        // not full
  EXPECT_EQ(next(1000, 1000, 1100), 1000u);       // it would have to shrink again
  EXPECT_EQ(next(1950, 1950, 9000), 2000u);
}

}  // namespace
}  // namespace tidemill
