// Carries out the movements of a plan that touch a tier below the pool, and tells how long they took.
//
// Engine thread only.
#pragma once

#include <span>

#include "engine/step_plan.h"
#include "runtime/disk_file.h"
#include "runtime/host_tier.h"
#include "runtime/kv_storage.h"

namespace tidemill {

// All moves in order: those inside the pool by the storage, the others here. host may be null where no move needs it.
void carry_out(std::span<const BlockMove> moves, KvStorage& storage, HostTier* host, StepResult& result);

// Hands a plan's movements to and from the disk to the file's thread. disk may be null where there are none.
void begin_disk_moves(std::span<const DiskMove> moves, const KvStorage& storage, DiskFile* disk);

}  // namespace tidemill
