// Results as text tables for people: a line of headings, columns as wide as they must be, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace tidemill {

class Table {
 public:
  explicit Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}
  // As many cells as there are headings.
  void add(std::vector<std::string> cells);
  // Markdown, with every line ended.
  std::string text() const;
  // The headings, then the rows.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A value with so many digits behind the point; "-" where it is not a number.
std::string number_text(double value, int digits);
// Seconds as milliseconds, with digits as the size wants them.
std::string ms_text(double seconds);

}  // namespace tidemill
