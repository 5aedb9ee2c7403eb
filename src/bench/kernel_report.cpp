// What bench/kernel_run measured, as tables and as JSON.
#include <nlohmann/json.hpp>

#include "bench/kernel_run.h"
#include "bench/svg_chart.h"
#include "bench/table.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;

std::string percent_text(double value, std::optional<double> limit) {
  return limit ? number_text(value / *limit * 100, 1) : "-";
}

Json share(double value, std::optional<double> limit) {
  return limit ? Json(value / *limit) : Json();
}

double tmacs(double macs, double seconds) {
  return macs / seconds / 1e12;
}

double gb_s(size_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

std::vector<std::pair<const char*, std::optional<double>>> named(const MachineLimits& limits) {
  return {{"int8 dot product", limits.int8_dot},
          {"int8 matrix unit", limits.int8_matrix},
          {"BF16 dot product", limits.bf16_dot},
          {"BF16 matrix unit", limits.bf16_matrix},
          {"FP32 multiply-add", limits.fp32_fma}};
}

std::string product_table(const KernelFigures& figures) {
  Table table({"product", "MB", "rows", "ms", "TMAC/s", "% of vector", "% of matrix", "GB/s", "% of read"});
  for (const ProductFigure& figure : figures.products) {
    const TypeLimits limits = limits_for(figure.type, figures.limits);
    const double rate = tmacs(figure.macs, figure.seconds), read = gb_s(figure.weight_bytes, figure.seconds);
    table.add({figure.matrices + " " + dtype_name(figure.type),
               number_text(static_cast<double>(figure.weight_bytes) / 1e6, 1), fmt::format("{}", figure.rows),
               number_text(figure.seconds * 1e3, 3), number_text(rate, 4), percent_text(rate, limits.vector_tmacs),
               percent_text(rate, limits.matrix_tmacs), number_text(read, 1),
               percent_text(read, figure.read_limit_gb_s)});
  }
  return table.text();
}

std::string attention_table(const KernelFigures& figures) {
  Table table({"attention", "sequences", "rows each", "length", "ms", "TMAC/s", "% of FP32", "KV GB/s", "% of read"});
  for (const AttentionFigure& figure : figures.attention) {
    const AttentionTime& time = figure.time;
    const double rate = tmacs(time.macs, time.seconds);
    table.add({figure.is_prefill ? "prefill" : "decode", fmt::format("{}", figure.load.num_sequences),
               fmt::format("{}", figure.load.rows_each), fmt::format("{}", figure.load.length),
               number_text(time.seconds * 1e3, 3), number_text(rate, 4), percent_text(rate, figures.limits.fp32_fma),
               number_text(time.read_bytes / time.seconds / 1e9, 1),
               number_text(time.read_seconds / time.seconds * 100, 1)});
  }
  return table.text();
}

}  // namespace

std::string kernel_tables(const KernelFigures& figures) {
  Table limits({"limit of this machine now", "TMAC/s"});
  for (const auto& [name, value] : named(figures.limits)) {
    if (value) limits.add({name, number_text(*value, 3)});
  }
  return limits.text() + "\n" + product_table(figures) + "\n" + attention_table(figures);
}

Json json_of(const KernelFigures& figures) {
  Json json;
  for (const auto& [name, value] : named(figures.limits)) {
    json["limits_tmac_per_s"][name] = value ? Json(*value) : Json();
  }
  for (const ProductFigure& figure : figures.products) {
    const TypeLimits limits = limits_for(figure.type, figures.limits);
    const double rate = tmacs(figure.macs, figure.seconds), read = gb_s(figure.weight_bytes, figure.seconds);
    json["products"].push_back({{"matrices", figure.matrices},
                                {"type", dtype_name(figure.type)},
                                {"rows", figure.rows},
                                {"ms", figure.seconds * 1e3},
                                {"tmac_per_s", rate},
                                {"share_of_vector_limit", share(rate, limits.vector_tmacs)},
                                {"share_of_matrix_limit", share(rate, limits.matrix_tmacs)},
                                {"weight_bytes", figure.weight_bytes},
                                {"read_gb_per_s", read},
                                {"read_limit_gb_per_s", figure.read_limit_gb_s},
                                {"share_of_read_limit", read / figure.read_limit_gb_s}});
  }
  for (const AttentionFigure& figure : figures.attention) {
    const AttentionTime& time = figure.time;
    const double rate = tmacs(time.macs, time.seconds);
    json["attention"].push_back({{"phase", figure.is_prefill ? "prefill" : "decode"},
                                 {"sequences", figure.load.num_sequences},
                                 {"rows_each", figure.load.rows_each},
                                 {"length", figure.load.length},
                                 {"ms", time.seconds * 1e3},
                                 {"tmac_per_s", rate},
                                 {"share_of_fp32_limit", share(rate, figures.limits.fp32_fma)},
                                 {"kv_bytes", time.read_bytes},
                                 {"read_ms", time.read_seconds * 1e3},
                                 {"share_of_read_limit", time.read_seconds / time.seconds}});
  }
  return json;
}

std::string attention_picture(const KernelFigures& figures, const std::string& subtitle) {
  SvgPage page("Attention over the length of the context", subtitle);
  LineSeries one{"attention of one token", {}}, read{"reading its keys and values", {}};
  LineSeries prefill{"attention of a prompt's token", {}};
  for (const AttentionFigure& figure : figures.attention) {
    const int32_t length = figure.load.length;
    if (figure.is_prefill) prefill.points.emplace_back(length, figure.time.seconds / figure.load.rows_each * 1e3);
    if (figure.is_prefill || figure.load.num_sequences > 1) continue;
    one.points.emplace_back(length, figure.time.seconds * 1e3);
    read.points.emplace_back(length, figure.time.read_seconds * 1e3);
  }
  page.add_lines("One sequence, all layers: milliseconds a token", "positions before it", {one, read});
  page.add_lines("Prompts, all layers: milliseconds a token", "positions before it", {prefill});
  return page.text();
}

}  // namespace tidemill
