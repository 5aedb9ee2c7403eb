#include "bench/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Elements nest, attributes are quoted, and text holds no bare mark: what any XML parser asks for, of the subset that
// charts use.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '>') return false;
    if (xml[at] == '&' && xml.compare(at, 4, "&lt;") != 0 && xml.compare(at, 4, "&gt;") != 0 &&
        xml.compare(at, 5, "&amp;") != 0 && xml.compare(at, 6, "&quot;") != 0) {
      return false;
    }
    if (xml[at] != '<') continue;
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos || std::ranges::count(tag, '"') % 2 != 0) return false;
    const std::string name = tag.substr(tag.starts_with('/') ? 1 : 0, tag.find_first_of(" /", 1));
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end;
  }
  return open.empty();
}

TEST(XmlText, EscapesWhatHasAMeaning) {
  EXPECT_EQ(xml_text("a<b> & \"c\"\x01\xff"), "a&lt;b&gt; &amp; &quot;c&quot;\xEF\xBF\xBD");
}

TEST(SvgPage, IsWellFormedWhateverItShows) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  SvgPage page("a & <b>", "\"sub\"");
  page.add_bars("<bars>", {{"one & only", 3, "3"}, {"none", 0, "0"}, {"odd", nan, "-"}});
  page.add_bars("empty", {});
  page.add_lines("lines", "x", {{"a", {{64, 1}, {128, 2}, {1000, nan}}}, {"b<", {}}});
  page.add_lines("one point", "x", {{"a", {{64, 1}}}});
  page.add_lines("nothing", "x", {});
  EXPECT_TRUE(is_well_formed(page.text())) << page.text();
  EXPECT_THAT(page.text(), HasSubstr("one &amp; only"));
  EXPECT_THAT(page.text(), Not(HasSubstr("nan")));
  EXPECT_THAT(page.text(), Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace tidemill
