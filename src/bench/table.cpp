#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tidemill {

void Table::add(std::vector<std::string> cells) {
  TM_CHECK(cells.size() == rows_.front().size(), "a row has a cell for every heading");
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(rows_.front().size(), 3);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto append = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? fmt::format("| {:<{}} ", row[i], widths[i]) : fmt::format("| {:>{}} ", row[i], widths[i]);
    }
    text += "|\n";
  };
  append(rows_.front());
  for (size_t i = 0; i < widths.size(); ++i) {
    text += i == 0 ? fmt::format("|:{:-<{}} ", "", widths[i]) : fmt::format("| {:-<{}}:", "", widths[i]);
  }
  text += "|\n";
  for (size_t i = 1; i < rows_.size(); ++i) append(rows_[i]);
  return text;
}

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string ms_text(double seconds) {
  const double ms = seconds * 1e3;
  return number_text(ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

}  // namespace tidemill
