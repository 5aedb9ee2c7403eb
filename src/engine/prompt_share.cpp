#include "engine/prompt_share.h"

#include <algorithm>

namespace tidemill {
namespace {

// What one group of prompts may still take.
struct Lane {
  int32_t num_rows = 0;
  double seconds = 0;
};

// Rows of one more grant to a prompt that the lane has room for, taken out of the lane.
int32_t take(Lane& lane, PromptDemand& demand, const StepCost& cost) {
  const int32_t wanted = std::min(lane.num_rows, demand.num_remaining - demand.num_granted);
  const int64_t first = demand.first_position + demand.num_granted;
  const int32_t rows = lane.seconds < endless_s ? cost.rows_within(lane.seconds, first, wanted) : std::max(0, wanted);
  if (rows <= 0) return 0;
  demand.num_granted += rows;
  lane.num_rows -= rows;
  if (lane.seconds < endless_s) {
    lane.seconds -= cost.added_s(first, rows, demand.num_granted == demand.num_remaining);
  }
  return rows;
}

bool all_fit(std::span<const PromptDemand> demands, Lane lane, const StepCost& cost) {
  return std::ranges::all_of(demands, [&](PromptDemand demand) {  // a copy
    return take(lane, demand, cost) == demand.num_remaining;
  });
}

}  // namespace

void share_room(std::span<PromptDemand> demands, StepRoom room, const StepCost& cost,
                std::span<PromptDemand*> scratch) {
  if (demands.empty()) return;
  PromptDemand& first = demands.front();
  const int32_t least = std::min({room.min_rows, room.num_rows, first.num_remaining});
  if (least > 0) room.seconds = std::max(room.seconds, cost.added_s(first.first_position, least, true));
  Lane all{room.num_rows, room.seconds};
  if (!all_fit(demands, all, cost)) {
    size_t num_overtaking = 0;
    for (PromptDemand& demand : demands) {
      const bool shorter = demand.num_remaining < first.num_remaining;
      if (shorter && demand.latency_class <= first.latency_class) scratch[num_overtaking++] = &demand;
    }
    const auto overtaking = scratch.first(num_overtaking);
    // By length, equal ones in order: `demands` is one array.
    std::ranges::sort(overtaking, {}, [](const PromptDemand* each) { return std::pair(each->num_remaining, each); });
    Lane half{all.num_rows / 2, all.seconds / 2};
    for (PromptDemand* demand : overtaking) {
      const Lane before = half;
      all.num_rows -= take(half, *demand, cost);
      if (all.seconds < endless_s) all.seconds -= before.seconds - half.seconds;
    }
  }
  for (PromptDemand& demand : demands) take(all, demand, cost);
}

}  // namespace tidemill
