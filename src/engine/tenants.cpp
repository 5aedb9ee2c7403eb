#include "engine/tenants.h"

#include <algorithm>
#include <limits>

namespace tidemill {

void Tenants::open_request(const std::string& tenant) {
  const auto found = active_.find(tenant);
  if (found != active_.end()) {
    ++found->second.num_open;
    return;
  }
  double least = std::numeric_limits<double>::max();
  for (const auto& [name, account] : active_) least = std::min(least, account.service);
  const double service = active_.empty() ? 0 : least;
  active_[tenant] = {.num_open = 1, .num_running = 0, .service = service};
}

void Tenants::close_request(const std::string& tenant) {
  const auto found = active_.find(tenant);
  if (--found->second.num_open == 0) active_.erase(found);
}

}  // namespace tidemill
