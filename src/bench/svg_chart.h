// Small charts as SVG text: panels of bars and of lines, in a grid on one page. No scripts, no fonts to load.
//
// Colors have enough contrast on white, and every bar has its value written beside it, so that nothing is told by color
// alone. Values that are not finite are left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tidemill {

struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // beside the bar
};

struct LineSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending and above 0
};

struct LabeledPoint {
  std::string label;
  double x = 0, y = 0;
};

class SvgPage {
 public:
  explicit SvgPage(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}
  void add_bars(const std::string& title, const std::vector<Bar>& bars);
  // x on a scale of powers of two, y linear from 0.
  void add_lines(const std::string& title, const std::string& x_title, const std::vector<LineSeries>& series);
  // x linear from 0, y on a scale of powers of ten; points whose y is not above 0 lie on the lower edge. Labels keep
  // out of each other's way downwards.
  void add_points(const std::string& title, const std::string& x_title, const std::vector<LabeledPoint>& points);
  // The whole document.
  std::string text() const;

 private:
  std::string title_, subtitle_;
  std::vector<std::string> panels_;  // each drawn with its upper left corner at 0, 0
};

// Fit to stand in a text or an attribute of XML; control characters are left out.
std::string xml_text(const std::string& text);

}  // namespace tidemill
