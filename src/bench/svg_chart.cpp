#include "bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/utf8.h"

namespace tidemill {
namespace {

constexpr int panel_width = 460, panel_height = 250, columns = 2, head_height = 64;
constexpr std::array<const char*, 6> colors = {"#9a3b26", "#b57d1f", "#4f7d3a", "#2f6f8f", "#5b4a8a", "#6b6b6b"};

std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, xml_text(text));
}

std::string title_of(const std::string& title) {
  return text_at(12, 22, title, "font-weight=\"bold\"");
}

const char* color_of(size_t index) {
  return colors[index % colors.size()];
}

// The smallest 1, 2 or 5 times a power of ten that is not below.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

// Where points lie in a panel.
struct Frame {
  double left = 60, right = 440, top = 36, bottom = 200;
  double log_low = 0, log_high = 1, highest = 1;
  double x(double value) const { return left + (std::log2(value) - log_low) / (log_high - log_low) * (right - left); }
  double y(double value) const { return bottom - value / highest * (bottom - top); }
};

Frame frame_for(const std::vector<LineSeries>& series) {
  Frame frame;
  double low = INFINITY, high = -INFINITY, highest = 0;
  for (const LineSeries& line : series) {
    for (const auto& [x, y] : line.points) {
      if (!std::isfinite(y)) continue;
      low = std::min(low, x);
      high = std::max(high, x);
      highest = std::max(highest, y);
    }
  }
  if (low < high) {
    frame.log_low = std::log2(low);
    frame.log_high = std::log2(high);
  }
  frame.highest = round_up(highest);
  return frame;
}

std::string axes(const Frame& frame, const std::string& x_title) {
  std::string text = fmt::format("<path d=\"M {:.1f} {:.1f} V {:.1f} H {:.1f}\" fill=\"none\" stroke=\"#444\"/>\n",
                                 frame.left, frame.top, frame.bottom, frame.right);
  for (int i = 0; i <= 4; ++i) {
    const double value = frame.highest * i / 4;
    text += text_at(frame.left - 6, frame.y(value) + 4, fmt::format("{:g}", value), "text-anchor=\"end\"");
  }
  for (double log = std::ceil(frame.log_low); log <= frame.log_high + 1e-9; ++log) {
    const double value = std::exp2(log);
    text += text_at(frame.x(value), frame.bottom + 16, fmt::format("{:g}", value), "text-anchor=\"middle\"");
  }
  return text + text_at((frame.left + frame.right) / 2, frame.bottom + 34, x_title, "text-anchor=\"middle\"");
}

}  // namespace

std::string xml_text(const std::string& text) {
  std::string escaped;
  for (const char c : sanitize_utf8(text)) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      escaped += c;
    }
  }
  return escaped;
}

void SvgPage::add_bars(const std::string& title, const std::vector<Bar>& bars) {
  double highest = 0;
  for (const Bar& bar : bars) highest = std::isfinite(bar.value) ? std::max(highest, bar.value) : highest;
  std::string panel = title_of(title);
  constexpr double left = 150, widest = 200, step = 34;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = 42 + step * static_cast<double>(i);
    panel += text_at(left - 8, y + 15, bars[i].label, "text-anchor=\"end\"");
    const double width = std::isfinite(bars[i].value) && highest > 0 ? bars[i].value / highest * widest : 0;
    panel += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"22\" fill=\"{}\"/>\n", left, y,
                         std::max(0.0, width), color_of(i));
    panel += text_at(left + std::max(0.0, width) + 6, y + 15, bars[i].text);
  }
  panels_.push_back(std::move(panel));
}

void SvgPage::add_lines(const std::string& title, const std::string& x_title, const std::vector<LineSeries>& series) {
  const Frame frame = frame_for(series);
  std::string panel = title_of(title) + axes(frame, x_title);
  for (size_t i = 0; i < series.size(); ++i) {
    std::string path;
    for (const auto& [x, y] : series[i].points) {
      if (!std::isfinite(y)) continue;
      path += fmt::format("{} {:.1f} {:.1f} ", path.empty() ? "M" : "L", frame.x(x), frame.y(y));
    }
    panel += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\" {}/>\n", path,
                         color_of(3 * i), i == 0 ? "" : "stroke-dasharray=\"6 3\"");
    panel +=
        fmt::format("<rect x=\"80\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n", 46 + 18 * i, color_of(3 * i));
    panel += text_at(100, 52 + 18 * static_cast<double>(i), series[i].name);
  }
  panels_.push_back(std::move(panel));
}

void SvgPage::add_points(const std::string& title, const std::string& x_title,
                         const std::vector<LabeledPoint>& points) {
  constexpr double left = 60, right = 400, top = 36, bottom = 200, line = 15;
  double widest = 0, low = INFINITY, high = -INFINITY;
  for (const LabeledPoint& point : points) {
    widest = std::max(widest, point.x);
    if (!(point.y > 0) || !std::isfinite(point.y)) continue;
    low = std::min(low, std::floor(std::log10(point.y)));
    high = std::max(high, std::ceil(std::log10(point.y)));
  }
  if (!(low <= high)) low = -1, high = 0;
  high = std::max(high, low + 1);
  widest = round_up(widest);
  const auto y_of = [&](double log) { return bottom - (log - low) / (high - low) * (bottom - top); };
  std::string panel = title_of(title);
  panel += fmt::format("<path d=\"M {:.1f} {:.1f} V {:.1f} H {:.1f}\" fill=\"none\" stroke=\"#444\"/>\n", left, top,
                       bottom, right);
  for (double log = low; log <= high + 1e-9; ++log)
    panel += text_at(left - 6, y_of(log) + 4, fmt::format("{:g}", std::pow(10, log)), "text-anchor=\"end\"");
  for (int i = 0; i <= 4; ++i)
    panel += text_at(left + i * (right - left) / 4, bottom + 16, fmt::format("{:g}", widest * i / 4),
                     "text-anchor=\"middle\"");
  panel += text_at((left + right) / 2, bottom + 34, x_title, "text-anchor=\"middle\"");
  std::vector<std::pair<double, double>> labels;
  for (size_t i = 0; i < points.size(); ++i) {
    const LabeledPoint& point = points[i];
    if (!std::isfinite(point.y) || !std::isfinite(point.x)) continue;
    const double x = left + point.x / widest * (right - left);
    const double y = point.y > 0 ? y_of(std::log10(point.y)) : bottom;
    double label_y = y + 4;
    const auto in_the_way = [&](const auto& other) {
      return std::abs(other.second - label_y) < line && std::abs(other.first - x) < 90;
    };
    while (std::ranges::any_of(labels, in_the_way)) label_y += line / 3;
    labels.emplace_back(x, label_y);
    panel += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", x, y, color_of(i));
    panel += text_at(x + 9, label_y, point.label);
  }
  panels_.push_back(std::move(panel));
}

std::string SvgPage::text() const {
  const int rows = (static_cast<int>(panels_.size()) + columns - 1) / columns;
  const int width = columns * panel_width + 20, height = head_height + rows * panel_height + 10;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n"
      "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      width, height, xml_text(title_));
  text +=
      text_at(22, 30, title_, "font-size=\"18\" font-weight=\"bold\"") + text_at(22, 52, subtitle_, "fill=\"#555\"");
  for (size_t i = 0; i < panels_.size(); ++i) {
    const int column = static_cast<int>(i) % columns, row = static_cast<int>(i) / columns;
    text += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", 10 + column * panel_width,
                        head_height + row * panel_height, panels_[i]);
  }
  return text + "</svg>\n";
}

}  // namespace tidemill
