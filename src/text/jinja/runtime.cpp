#include "text/jinja/runtime.h"

#include "text/chat_template.h"

namespace tidemill::jinja {

void Runtime::charge_steps(int64_t count) {
  if (count < 0 || count > options_.max_steps - steps_) {
    fail("the chat template needs more than {} steps", options_.max_steps);
  }
  steps_ += count;
}

void Runtime::charge_bytes(size_t count) {
  if (count > static_cast<size_t>(options_.max_built_bytes - built_bytes_)) {
    fail("the chat template builds more than {} bytes of intermediate values", options_.max_built_bytes);
  }
  built_bytes_ += static_cast<int64_t>(count);
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
  if (runtime.depth_ >= runtime.options_.max_depth) {
    fail("the chat template nests deeper than {} levels", runtime.options_.max_depth);
  }
  ++runtime.depth_;
}

}  // namespace tidemill::jinja
