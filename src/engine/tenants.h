// Fair shares between the tenants (API keys) that compete: how much each consumed while others waited.
//
// Virtual token counter: a tenant is charged for what is computed for it; when it comes back after having had nothing
// open, its counter starts at the least of the active ones, so that nobody saves up credit. Who has consumed least is
// admitted first. One tenant alone has no effect on the order. Used by the engine thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace tidemill {

class Tenants {
 public:
  void open_request(const std::string& tenant);
  void close_request(const std::string& tenant);
  void start_running(const std::string& tenant) { ++active_.at(tenant).num_running; }
  void stop_running(const std::string& tenant) { --active_.at(tenant).num_running; }
  void charge(const std::string& tenant, double tokens) { active_.at(tenant).service += tokens; }
  double service(const std::string& tenant) const { return active_.at(tenant).service; }
  int32_t num_running(const std::string& tenant) const { return active_.at(tenant).num_running; }
  size_t num_active() const { return active_.size(); }

 private:
  struct Account {
    int32_t num_open = 0;
    int32_t num_running = 0;  // requests with a running sequence
    double service = 0;
  };
  std::unordered_map<std::string, Account> active_;
};

}  // namespace tidemill
