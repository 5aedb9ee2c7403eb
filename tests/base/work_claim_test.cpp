#include "base/work_claim.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"

namespace tidemill {
namespace {

TEST(WorkClaim, EveryPieceOnceWhoeverClaims) {
  for (const std::vector<int32_t>& nodes :
       {std::vector<int32_t>{0}, {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 1, 2}, {1, 1}}) {
    WorkClaim claim(nodes);
    for (const int32_t num_pieces : {0, 1, 2, 7, 100, 1001}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(num_pieces));
      ThreadPool pool(static_cast<int32_t>(nodes.size()));
      claim.start(num_pieces);
      pool.run([&](int32_t worker) {
        while (const WorkClaim::Share share = claim.next(worker))
          for (int32_t piece = share.first; piece < share.end; ++piece) ++taken[static_cast<size_t>(piece)];
      });
      for (const auto& count : taken) EXPECT_EQ(count, 1);
    }
  }
}

TEST(WorkClaim, TheOwnNodesPiecesFirstThenTheOthers) {
  WorkClaim claim({0, 0, 1, 1});
  claim.start(100);
  std::vector<int> by_worker_3(100);
  int32_t num_taken = 0;
  while (const WorkClaim::Share share = claim.next(3)) {
    for (int32_t piece = share.first; piece < share.end; ++piece, ++num_taken) {
      EXPECT_EQ(piece >= 50, num_taken < 50) << "piece " << piece << " taken as number " << num_taken;
    }
  }
  EXPECT_EQ(num_taken, 100);
}

// What is touched first by a node's workers is what they claim later.
TEST(WorkClaim, OwnPiecesAreTheSameEveryTime) {
  WorkClaim claim({0, 1, 1});
  for (int round = 0; round < 2; ++round) {
    claim.start(90);
    int32_t lowest = 90, highest = 0, count = 0;
    while (const WorkClaim::Share share = claim.next_own(round == 0 ? 1 : 2)) {
      lowest = std::min(lowest, share.first);
      highest = std::max(highest, share.end);
      count += share.end - share.first;
    }
    EXPECT_EQ(lowest, 30);
    EXPECT_EQ(highest, 90);
    EXPECT_EQ(count, 60);
    EXPECT_TRUE(claim.next_own(0));
  }
}

}  // namespace
}  // namespace tidemill
